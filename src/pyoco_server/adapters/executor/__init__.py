"""Where user functions run: on the event loop, in threads that can be abandoned, or in processes that can be killed.

- ``threads.ThreadSlots`` — cheap; a call that hangs is abandoned, its thread cannot be ended.
- ``processes.ProcessSlots`` — more expensive; a call that hangs is killed before its caller gets the cancellation.

This file imports nothing on purpose: each child process runs it while it starts, so an import would delay its first
call.
"""
