"""The parent's side of one child process: its connection, its one call at a time, its end.

A child has ended when the parent knows its exit status and that no more data will arrive; these come in any order. A
pidfd reports the exit on Linux, and polling does elsewhere. The end of the connection does not prove the exit: a
process that the function forked can hold it open.

A child is a new interpreter that runs ``child.main``.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.spawn import get_executable
from typing import cast

from pyoco_server.adapters.executor.errors import ProcessDiedError
from pyoco_server.adapters.executor.messages import Messages, OnMessage
from pyoco_server.adapters.executor.processes.child import LEAVE_SEC, Setup
from pyoco_server.adapters.executor.processes.frames import FrameReader, Kind, frame
from pyoco_server.adapters.executor.processes.main_module import refuse_while_importing_main
from pyoco_server.flows.environment import environment_of_children

# The search path comes first, so that the child finds this package and the user's exactly where the parent does.
_PROGRAM = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from pyoco_server.adapters.executor.processes.child import main; main(fd)"
)


def launch(connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start a child on this end of a socket pair; the caller closes its own copy."""
    refuse_while_importing_main()
    fd = connection.fileno()
    command = [os.fsdecode(get_executable()), *_interpreter_flags(), "-c", _PROGRAM, str(fd), *sys.path]
    return subprocess.Popen(  # noqa: S603 (our own interpreter and program)
        command,
        stdin=subprocess.DEVNULL,
        env=environment_of_children(os.environ),
        pass_fds=(fd,),
        # Its own group: Ctrl-C in a terminal reaches only the parent, and a kill also ends what a function started.
        process_group=0,
    )


def _interpreter_flags() -> list[str]:
    # Not public, but multiprocessing uses it, too, so that -O, -W, -X and others apply in the child.
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]  # noqa: SLF001


Answer = tuple[Kind, bytes]

# How long a child may take to start and to import what a call needs, before that counts as the call's own time.
LOADING_SEC = 60.0

# Between SIGTERM and SIGKILL.
TERM_SEC = 0.5

# How long after its exit something may still come from a child.
_LAST_WORDS_SEC = 0.5

# How long a child may live without its connection: twice its own limit, because the machine may be busy.
_HANG_UP_SEC = 2 * LEAVE_SEC

_POLL_SEC = 0.05


class ChildHandle(asyncio.Protocol):
    """One child process. Make it with ``start_child``; it must be ended with ``retire``, ``kill`` or ``kill_now``."""

    def __init__(self, max_message_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(max_message_bytes)
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Future[Answer | ProcessDiedError] | None = None
        self._messages: Messages | None = None
        self._on_begin: Callable[[], None] | None = None
        self._free = asyncio.Event()
        self._ended = asyncio.Event()
        self._unshielded = asyncio.Event()
        """Set unless the call is in a shielded section."""
        self._free.set()
        self._unshielded.set()

    @property
    def pid(self) -> int:
        """The process id; another process may have it once the child has ended."""
        return self._running().pid

    @property
    def is_alive(self) -> bool:
        """Whether the child can receive a call, as far as the parent knows."""
        return self._transport is not None and not self._transport.is_closing() and self._exit_code is None

    async def call(
        self, payload: bytes, on_message: OnMessage | None, on_begin: Callable[[], None] | None = None
    ) -> Answer:
        """Send a call and wait for all its messages and the answer; ``on_begin`` is called when the function begins.

        Raises ``ProcessDiedError`` if there will be no answer. Cancelling this does not stop the call: see ``stop``.
        """
        future: asyncio.Future[Answer | ProcessDiedError] = self._loop.create_future()
        self._answer = future
        self._on_begin = on_begin
        self._messages = messages = Messages(on_message, pause=self._pause, resume=self._resume)
        self._free.clear()
        late = self._loop.call_later(LOADING_SEC, self._begin)
        self._write(Kind.CALL if on_begin is None else Kind.TIMED_CALL, payload)
        if self._ended.is_set():  # it died before this call, which has not been registered to learn of it
            self._settle()
        try:
            answer = await future
            await messages.finish()
        except asyncio.CancelledError:
            messages.drop()  # a cancelled call has no listener
            self._on_begin = None
            raise
        finally:
            late.cancel()
        if isinstance(answer, ProcessDiedError):
            raise answer
        return answer

    def set_flag(self) -> None:
        """Set the call's ``is_cancelled``, and do no more."""
        if not self._free.is_set():
            self._write(Kind.CANCEL, b"flag")

    async def stop(self, grace_sec: float, shield_sec: float = 0.0) -> None:
        """Ask the call to stop, and kill the child if it still runs after ``grace_sec``.

        A shielded section first has ``shield_sec`` to end; the code after it has ``grace_sec`` again.
        """
        if self._free.is_set():  # the call ended before the cancel
            return
        if grace_sec > 0:
            self._write(Kind.CANCEL, b"")
            if await _set_within(self._free, grace_sec):
                return
            if not self._unshielded.is_set():
                await _set_within(self._unshielded, shield_sec)
                if await _set_within(self._free, grace_sec):
                    return
        await self.kill()

    def end_shield(self) -> None:
        """Stop waiting for a shielded section to end."""
        self._unshielded.set()

    async def retire(self) -> None:
        """End an idle child: hang up, and kill it only if it does not exit."""
        try:
            if self._transport is not None:
                self._transport.close()
            if not await _set_within(self._ended, _HANG_UP_SEC):
                await self.kill()
        finally:
            self.kill_now()

    async def kill(self) -> None:
        """Kill the child and all it started, and return when it is gone. A cancel of this does not save the child."""
        try:
            self._signal(signal.SIGTERM)
            if not await _set_within(self._ended, TERM_SEC):
                self._signal(signal.SIGKILL)
                await self._ended.wait()
        finally:
            self.kill_now()

    def kill_now(self) -> None:
        """Kill the child without another turn of the event loop, if it still runs."""
        if self._exit_code is None:
            self._signal(signal.SIGKILL)
            self._exited()
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol; on the ignores: typing.override is not in Python 3.11.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        """Keep the connection."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        """Handle data from the child."""
        for kind, payload in self._frames.feed(data):
            if kind is Kind.MESSAGE:
                if self._messages is not None:
                    self._messages.put(payload)
            elif kind is Kind.BEGUN:
                self._begin()
            elif kind is Kind.SHIELDED:
                self._unshielded.clear()
            elif kind is Kind.UNSHIELDED:
                self._unshielded.set()
            else:
                self._settle((kind, payload))

    def connection_lost(self, _error: Exception | None) -> None:  # type: ignore[explicit-override]
        """Note that no more data will arrive from the child."""
        self._transport = None
        if self._process is None or self._exit_code is not None:
            self._finish()
        else:  # it has just died or will exit; if a function closed the connection, the child cannot be used again
            self._in(_HANG_UP_SEC, self._signal, signal.SIGKILL)

    # The process

    def attach(self, process: subprocess.Popen[bytes], setup: Setup) -> None:
        """Watch the process at the other end, and send it its setup."""
        self._process = process
        self._write(Kind.SETUP, pickle.dumps(setup))
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # an old kernel, or a sandbox that forbids it
                self._pidfd = os.pidfd_open(process.pid)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._exited)
        else:
            self._poll()

    @property
    def _exit_code(self) -> int | None:
        return self._running().returncode

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("The child has not been started.")
        return self._process

    def _exited(self) -> None:
        """Clean up after the process, which has ended or will end from a kill."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        # No other process gets its group's number until it is reaped: the last chance to kill what it started.
        self._signal(signal.SIGKILL)
        self._running().wait()
        if self._transport is None:
            self._finish()
        else:  # its last messages may still arrive
            self._in(_LAST_WORDS_SEC, self._transport.abort)

    def _poll(self) -> None:
        process = self._running()
        if process.returncode is not None:
            return
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._exited()
        else:
            self._loop.call_later(_POLL_SEC, self._poll)

    def _signal(self, number: signal.Signals) -> None:
        if self._exit_code is None:
            # No such group: it is gone. Not permitted: some systems answer so if only a zombie is left.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    # The call

    def _write(self, kind: Kind, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            for piece in frame(kind, payload):
                self._transport.write(piece)

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def _begin(self) -> None:
        on_begin, self._on_begin = self._on_begin, None
        if on_begin is not None:
            on_begin()

    def _settle(self, answer: Answer | None = None) -> None:
        """End the call, with an answer or without."""
        future, self._answer, self._messages, self._on_begin = self._answer, None, None, None
        self._free.set()
        self._unshielded.set()
        if future is None or future.done():
            return
        future.set_result(answer or ProcessDiedError(self.pid, self._running().returncode))

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ended.set()
        self._settle()

    def _in(self, delay_sec: float, callback: Callable[..., None], *args: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_sec, callback, *args)


async def start_child(setup: Setup) -> ChildHandle:
    """Start a child and return at once: a call sent before the child is ready waits in the connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        transport, child = await asyncio.get_running_loop().create_unix_connection(
            lambda: ChildHandle(setup.max_message_bytes), sock=ours
        )
        try:
            child.attach(launch(theirs), setup)
        except BaseException:
            transport.abort()
            raise
    return child


async def _set_within(event: asyncio.Event, timeout_sec: float) -> bool:
    try:
        async with asyncio.timeout(timeout_sec):
            await event.wait()
    except TimeoutError:
        return False
    return True
