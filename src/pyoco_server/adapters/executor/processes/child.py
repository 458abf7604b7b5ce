"""The program of a child process, and ``child_control``, through which a function reaches its parent.

The main thread runs the calls, one at a time, as in a plain script. A second thread reads from the parent: it receives
a cancel while a call runs, and ends the child when the parent is gone. This module imports little: each import delays
the first call.
"""

import io
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from pyoco_server.adapters.executor.processes.frames import Kind, read_frame, write_frame
from pyoco_server.adapters.executor.processes.main_module import ALIAS, MainModule, import_main

if TYPE_CHECKING:
    from pyoco_server.app.ports.task_executor import Shield

# How long the exit handlers of an idle child may take when the parent hung up.
LEAVE_SEC = 1.0

_PR_SET_PDEATHSIG = 1


class Setup(NamedTuple):
    """The first message to a child."""

    max_message_bytes: int
    argv: list[str]
    main: MainModule | None


class ChildControl:
    """One call's link to the parent process. May be used from any thread of the child until the call has ended."""

    def __init__(self, fd: int, lock: threading.Lock, max_message_bytes: int, *, reports_begin: bool = False) -> None:
        self._fd = fd
        self._reports_begin = reports_begin
        self._lock = lock
        self._max_message_bytes = max_message_bytes
        self._cancelled = threading.Event()
        self._is_interrupted = threading.Event()
        self._on_cancel: list[Callable[[], None]] = []
        self._ended = False
        self._shield: Shield | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the parent asked this call to stop; it is killed if it does not do so in the time it is given."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout_sec: float | None = None) -> bool:
        """Sleep until the call is asked to stop, at most ``timeout_sec``; whether it was."""
        return self._cancelled.wait(timeout_sec)

    def send(self, obj: object) -> None:
        """Pass an object to the parent's ``on_message``. Raises what pickling raises, ``ValueError`` if too large."""
        payload = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        if len(payload) > self._max_message_bytes:
            raise ValueError(f"The message has {len(payload)} bytes, the limit is {self._max_message_bytes}.")
        with self._lock:
            if self._ended:  # a thread the function left behind: its message must not reach the next call
                raise RuntimeError("The call this message belongs to has ended.")
            write_frame(self._fd, Kind.MESSAGE, payload)

    def when_cancelled(self, callback: Callable[[], None]) -> None:
        """Call back, once and from any thread, when the call is asked to stop or if it was."""
        self._on_cancel.append(callback)
        if self._is_interrupted.is_set():
            self._call_back()

    def cancel(self, *, is_flag_only: bool = False) -> None:
        """Set the flag, and interrupt the function unless ``is_flag_only``. The reading thread calls it."""
        self._cancelled.set()
        if not is_flag_only:
            self._is_interrupted.set()
            self._call_back()

    def shield(self) -> "Shield":
        """Return the shield of this call, which reports to the parent when a section begins and when it ends."""
        if self._shield is None:
            from pyoco_server.app.ports.task_executor import Shield  # noqa: PLC0415 (most calls have none)

            self._shield = Shield(self._report_shield)
        return self._shield

    def _report_shield(self, is_closed: bool) -> None:  # noqa: FBT001 (a callback of one argument)
        with self._lock:
            if not self._ended:
                write_frame(self._fd, Kind.SHIELDED if is_closed else Kind.UNSHIELDED, b"")

    def begin(self) -> None:
        """Report that the function is called now, if the parent asked for it."""
        if self._reports_begin:
            with self._lock:
                write_frame(self._fd, Kind.BEGUN, b"")

    def answer(self, kind: Kind, payload: bytes) -> None:
        """End the call with its last message."""
        with self._lock:
            self._ended = True
            write_frame(self._fd, kind, payload)

    def _call_back(self) -> None:
        if self._shield is not None and self._shield.is_closed:
            self._shield.when_open(self._call_back)
            return
        try:
            callback = self._on_cancel.pop()
        except IndexError:  # there is none, or the other thread was first
            return
        callback()


class _Here:
    control: ChildControl | None = None
    main: MainModule | None = None


def child_control() -> ChildControl:
    """Return the link of the call that runs in this process. Raises ``RuntimeError`` where there is none."""
    if _Here.control is None:
        raise RuntimeError("child_control() works only inside a function that runs in a ProcessSlots child.")
    return _Here.control


def main(fd: int) -> None:
    """Serve the parent at the other end of ``fd`` until it hangs up."""
    # Otherwise a process that a function starts would keep the connection open.
    os.set_inheritable(fd, False)  # noqa: FBT003 (its signature)
    _die_with_parent()
    # The parent handles Ctrl-C and decides about its children. Not SIG_IGN: processes of the function would inherit it.
    signal.signal(signal.SIGINT, lambda _number, _stack: None)
    try:
        _kind, payload = read_frame(fd)
    except EOFError:
        return
    setup: Setup = pickle.loads(payload)  # noqa: S301 (from our own parent)
    sys.argv[:] = setup.argv
    _Here.main = setup.main
    _Child(fd, setup).serve()


class _Child:
    def __init__(self, fd: int, setup: Setup) -> None:
        self._fd = fd
        self._setup = setup
        self._writing = threading.Lock()
        self._calls: SimpleQueue[tuple[ChildControl, bytearray] | None] = SimpleQueue()

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="pyoco-child-listener", daemon=True).start()
        while (call := self._calls.get()) is not None:
            self._perform(*call)
            del call  # an idle child must not keep the last call's arguments alive

    def _listen(self) -> None:
        control: ChildControl | None = None
        try:
            while True:
                kind, payload = read_frame(self._fd)
                if kind in {Kind.CALL, Kind.TIMED_CALL}:
                    limit, is_timed = self._setup.max_message_bytes, kind is Kind.TIMED_CALL
                    control = ChildControl(self._fd, self._writing, limit, reports_begin=is_timed)
                    self._calls.put((control, payload))
                    del payload
                elif kind is Kind.CANCEL and control is not None:
                    control.cancel(is_flag_only=bool(payload))
        except (EOFError, OSError):
            self._leave()

    def _leave(self) -> None:
        """End this process: the parent hung up, so no result can be delivered."""
        if _Here.control is None:
            self._calls.put(None)  # the main thread ends and runs its exit handlers …
            time.sleep(LEAVE_SEC)  # … unless these, or threads that a function left running, take too long
        os._exit(0)

    def _perform(self, control: ChildControl, payload: bytearray) -> None:
        _Here.control = control
        kind, answer = self._answer(control, payload)
        if len(answer) > self._setup.max_message_bytes:
            kind, answer = Kind.TOO_LARGE, pickle.dumps(len(answer))
        _flush()
        _Here.control = None
        try:
            control.answer(kind, answer)
        except OSError:
            self._leave()

    def _answer(self, control: ChildControl, payload: bytearray) -> tuple[Kind, bytes]:
        stream = io.BytesIO(payload)
        what = "the function"
        try:
            function = _Unpickler(stream).load()
            what = "the arguments"
            args, kwargs = _Unpickler(stream).load()
        except BaseException as error:  # noqa: BLE001 (loading imports and runs the user's code; the parent gets the error)
            return _refused(what, error)
        try:
            control.begin()
            result = function(*args, **kwargs)
            if hasattr(type(result), "__await__"):
                result = _awaited(result, control)
        except BaseException as error:  # noqa: BLE001 (whatever the user's code raises belongs to the caller)
            return _raised(error)
        try:
            return Kind.RETURNED, pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the parent gets the error)
            return _refused(f"the result, a {type(result).__qualname__}", error)


class _Unpickler(pickle.Unpickler):
    """Imports the main module when, and only when, something from it is needed."""

    # On the ignore below, here and elsewhere: typing.override is not in Python 3.11.

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # type: ignore[explicit-override]  # noqa: ANN401 (as its base)
        if module_name in ("__main__", ALIAS):
            import_main(_Here.main)
        return super().find_class(module_name, global_name)


def load(pickled: bytes) -> Any:  # noqa: ANN401 (anything)
    """Load a value that was pickled by itself and sent among the arguments."""
    return _Unpickler(io.BytesIO(pickled)).load()


def _awaited(result: Any, control: ChildControl) -> Any:  # noqa: ANN401 (anything)
    """Await a coroutine on an event loop of its own; a cancel of the call cancels it."""
    import asyncio  # noqa: PLC0415 (most functions are plain)

    async def watched() -> Any:  # noqa: ANN401 (anything)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def cancel() -> None:
            try:
                if task is not None:
                    loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # the loop is closed: there is nothing to cancel
                return

        control.when_cancelled(cancel)
        return await result

    return asyncio.run(watched())


def _raised(error: BaseException) -> tuple[Kind, bytes]:
    from pyoco_server.adapters.executor.processes.errors_in_transit import pack_error  # noqa: PLC0415 (most calls do not fail)

    trace = error.__traceback__
    return Kind.RAISED, pack_error(error.with_traceback(trace and trace.tb_next))  # without our own frame


def _refused(what: str, error: BaseException) -> tuple[Kind, bytes]:
    return Kind.REFUSED, pickle.dumps((what, f"{type(error).__name__}: {error}"))


def _flush() -> None:
    """Flush what the call printed before its result is sent: the child may be killed before it would flush later."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # there is no stream, or it is broken or closed
            continue


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that started it ends.

    The reading thread does the same on every system, but not while a call holds the interpreter's lock.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (only here)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
