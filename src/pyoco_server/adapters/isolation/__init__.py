"""Where user functions run: in threads that can be left behind, or in processes that can be killed.

- ``threads.ThreadSlots`` — cheap; a call that hangs is abandoned, its thread cannot be ended.
- ``processes.ProcessSlots`` — dearer; a call that hangs is killed, and is gone when its caller hears of it.

Nothing is imported here on purpose: a child process passes through this file on its way up, and each import it
does not make is time a first call does not wait.
"""
