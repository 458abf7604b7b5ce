"""What runs in a child process, and what a function sees of it: ``child_control``.

The main thread runs the calls, one at a time, so that a function finds itself where it would be in a plain script. A
second thread listens to the parent: that is how a cancel arrives while a call runs, and how a child whose parent is
gone notices and ends. As few imports as possible: each of them delays the first call.
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

from pyoco_server.adapters.isolation.frames import Kind, read_frame, write_frame
from pyoco_server.adapters.isolation.main_module import ALIAS, MainModule, import_main

if TYPE_CHECKING:
    from pyoco_server.app.shield import Shield

# How long an idle child that was told to go may take for its exit handlers.
LEAVE_SEC = 1.0

_PR_SET_PDEATHSIG = 1


class Setup(NamedTuple):
    """What a child is told first."""

    max_message_bytes: int
    argv: list[str]
    main: MainModule | None


class ChildControl:
    """One call's link to the parent process. May be used from any thread of the child until the call has ended."""

    def __init__(self, fd: int, lock: threading.Lock, max_message_bytes: int, *, tells_begin: bool = False) -> None:
        self._fd = fd
        self._tells_begin = tells_begin
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
        """Let the function know. Called by the listener."""
        self._cancelled.set()
        if not is_flag_only:
            self._is_interrupted.set()
            self._call_back()

    def shield(self) -> "Shield":
        """The shield of this call; the parent is told when a section begins and when it ends."""
        if self._shield is None:
            from pyoco_server.app.shield import Shield  # noqa: PLC0415 (most calls have none)

            self._shield = Shield(self._tell_shield)
        return self._shield

    def _tell_shield(self, is_closed: bool) -> None:  # noqa: FBT001 (a callback of one argument)
        with self._lock:
            if not self._ended:
                write_frame(self._fd, Kind.SHIELDED if is_closed else Kind.UNSHIELDED, b"")

    def begin(self) -> None:
        """Say that the function is called now, if the parent wants to know."""
        if self._tells_begin:
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
    """The link of the call that runs in this process. Raises ``RuntimeError`` where there is none."""
    if _Here.control is None:
        raise RuntimeError("child_control() works only inside a function that runs in a ProcessSlots child.")
    return _Here.control


def main(fd: int) -> None:
    """Serve the parent at the other end of ``fd`` until it hangs up."""
    # Or what a function starts would keep the connection open.
    os.set_inheritable(fd, False)  # noqa: FBT003 (its signature)
    _die_with_parent()
    # Ctrl-C is for the parent, which then decides about its children. Not SIG_IGN: that would be inherited.
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
                    control = ChildControl(self._fd, self._writing, limit, tells_begin=is_timed)
                    self._calls.put((control, payload))
                    del payload
                elif kind is Kind.CANCEL and control is not None:
                    control.cancel(is_flag_only=bool(payload))
        except (EOFError, OSError):
            self._leave()

    def _leave(self) -> None:
        """The parent hung up: nobody wants a result any more."""
        if _Here.control is None:
            self._calls.put(None)  # the main thread ends in good order, with its exit handlers …
            time.sleep(LEAVE_SEC)  # … unless they, or threads a function left behind, take too long
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
        except BaseException as error:  # noqa: BLE001 (loading imports and runs the user's code; the parent is told)
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
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the parent is told)
            return _refused(f"the result, a {type(result).__qualname__}", error)


class _Unpickler(pickle.Unpickler):
    """Imports the main module when, and only when, something from it is needed."""

    # On the ignore below, here and elsewhere: typing.override is not in Python 3.11.

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # type: ignore[explicit-override]  # noqa: ANN401 (as its base)
        if module_name in ("__main__", ALIAS):
            import_main(_Here.main)
        return super().find_class(module_name, global_name)


def load(pickled: bytes) -> Any:  # noqa: ANN401 (anything)
    """What was pickled by itself and sent among the arguments."""
    return _Unpickler(io.BytesIO(pickled)).load()


def _awaited(result: Any, control: ChildControl) -> Any:  # noqa: ANN401 (anything)
    from pyoco_server.adapters.isolation.child_loop import run  # noqa: PLC0415 (most functions are plain)

    return run(result, control)


def _raised(error: BaseException) -> tuple[Kind, bytes]:
    from pyoco_server.adapters.isolation.carrying import pack_error  # noqa: PLC0415 (most calls do not fail)

    trace = error.__traceback__
    return Kind.RAISED, pack_error(error.with_traceback(trace and trace.tb_next))  # without our own frame


def _refused(what: str, error: BaseException) -> tuple[Kind, bytes]:
    return Kind.REFUSED, pickle.dumps((what, f"{type(error).__name__}: {error}"))


def _flush() -> None:
    """What a call printed is visible when its result is: the child may not live to flush it later."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # none, broken, or closed by the function
            continue


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that started it ends.

    The listener does the same everywhere, but cannot while a call keeps the interpreter's lock.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (only here)

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
