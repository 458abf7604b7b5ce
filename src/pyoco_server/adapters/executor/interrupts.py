"""Raise ``TaskInterrupted`` in a thread that runs a user function, and only where that does no harm.

CPython raises what ``PyThreadState_SetAsyncExc`` set at the thread's next check for pending work. CPython 3.11, 3.12
and 3.13 check when a function is entered, when a loop jumps back, and after a call of C code; not between ``__enter__``
of a C lock and the body of its ``with``, and not between that body and ``__exit__``. So ``with lock:`` releases it.

Five things make the delivery safe:

*Where.* Code of the import system, of ``logging``, ``threading``, ``queue``, ``contextlib``, ``asyncio``,
``concurrent.futures``, ``multiprocessing``, of pyoco and of this package (*guarded code*) takes locks in ways that an
exception at an arbitrary bytecode would break. While such a frame is on the user's part of the stack, nothing is set.
One place is an exception: a thread that sleeps in ``Condition.wait`` (``Event.wait``, ``Queue.get`` and others sleep
there) is inside the ``try`` that Python wrote for ``KeyboardInterrupt``.

*When.* After we inspect the stack and before we set the exception, the thread may move. So ``_set_if_still_there``
reads the topmost frame again and sets the exception only if the thread is still at the inspected instruction, in one
chain of C functions. CPython checks for pending work, and switches threads, only between bytecodes: no other thread can
run within the chain. The inspected instruction ends in such a check, so the exception is raised there. (In 3.11 a
garbage collection can run Python code inside the chain; then the thread may have left the instruction in that instant.
3.12 and later collect between bytecodes only.)

*Not while it is blocked, in 3.11.* There, an exception that waits for one thread makes every thread with a trace or
profile function repeat its next function entry until it is raised (``DO_TRACING`` first checks for pending work). So in
3.11 nothing is set for a thread that may be blocked in C code: it gets the profile function at once.

*At last.* A thread that writes log lines in a loop is inside ``logging`` whenever another thread can inspect it: it
releases the interpreter lock only to write. After the second inspection it gets a profile function, which raises the
exception when the thread returns from guarded code, or from C code, to the user's.

*Which call.* ``Interruption.end`` runs in the interrupted thread, after the call. From then on the thread is at another
instruction, so nothing can be set for it; an exception set before is raised at the latest when ``end`` is entered, and
then its caller calls it again. A set exception is never removed: 3.11 and 3.12 would continue to look for it.
"""

import _weakrefset
import asyncio
import concurrent.futures
import contextlib
import ctypes
import dis
import importlib
import logging
import multiprocessing
import operator
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import pyoco  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports.task_executor import Shield
from pyoco_server.errors import TaskInterrupted

RETRY_SEC: Final = 0.005
"""The first pause between two attempts to interrupt a thread."""

LONGEST_RETRY_SEC: Final = 0.05
"""The longest pause, for threads that have been blocked for a while."""


def _home(module: ModuleType) -> str:
    """Return the file of a module, or the folder of a package with a trailing separator."""
    path = Path(str(module.__file__))
    return f"{path.parent}/" if path.name == "__init__.py" else str(path)


_OURS: Final = f"{Path(__file__).parents[2]}/"
_MAY_WAIT: Final = tuple(map(_home, (threading, queue, concurrent.futures)))
"""Guarded code that calls ``Condition.wait`` with nothing left half done."""
_GUARDED: Final = (
    "<frozen importlib",
    _OURS,
    *_MAY_WAIT,
    *map(_home, (asyncio, contextlib, importlib, logging, multiprocessing, pyoco)),
    *map(_home, (_weakrefset, weakref)),  # their callbacks: Python drops what these raise, like what __del__ raises
)
_WRAPPERS: Final = frozenset({"inner"})
"""Functions of contextlib that call the user's in the body of a ``with``."""
_DELICATE: Final = frozenset({"__del__", "__enter__", "__exit__"})
"""Functions that are never interrupted: Python drops what ``__del__`` raises, and an exception in the other two could
leave a resource acquired."""
_NOT_LEFT_BY: Final = frozenset({"__enter__", "acquire", "_remove", "remove", "__call__"})
"""A thread that returns from the first two holds what it must release first; the others are callbacks of weakref."""


def _lines_of_sleep(wait: CodeType) -> frozenset[int]:
    """The lines of ``Condition.wait`` that sleep; inside its ``try``, which follows ``_release_save``."""
    lines, line, is_inside = set[int](), 0, False
    for instruction in dis.get_instructions(wait):
        line = (instruction.positions.lineno if instruction.positions else None) or line
        if instruction.argval == "_acquire_restore":
            break
        is_inside = is_inside or instruction.argval == "_release_save"
        if is_inside and instruction.argval == "acquire":
            lines.add(line)
    return frozenset(lines)


_WAIT: Final = threading.Condition.wait.__code__
_SLEEPS: Final = _lines_of_sleep(_WAIT)

_set_async_exc: Any = ctypes.PyDLL(None).PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int
_thread_state: Any = ctypes.PyDLL(None).PyThreadState_Get
_thread_state.restype = ctypes.c_void_p
_set_profile: Any = getattr(ctypes.PyDLL(None), "_PyEval_SetProfile", None)
_RUNS: Final = {"JUMP_BACKWARD", "RESUME"}
_MAY_BE_BLOCKED: Final = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "BEFORE_WITH"}
_INSTRUCTIONS: Final = _RUNS if sys.version_info < (3, 12) else _RUNS | _MAY_BE_BLOCKED
_OPCODES: Final = frozenset(dis.opmap[name] for name in _INSTRUCTIONS if name in dis.opmap)
"""Instructions that check for pending work at their end; BEFORE_WITH does not, and nothing can go wrong before the next
check."""
_hooking: Final = threading.Lock()
_hooked: Final[dict[int, "Interruption"]] = {}
"""By thread: the interruptions that have a profile function."""
_INTERRUPT: Final = ctypes.py_object(TaskInterrupted)
_place_of: Final = operator.attrgetter("f_back", "f_code", "f_lasti")


def can_interrupt() -> bool:
    """Return whether this is CPython with its global lock, which the delivery relies on."""
    has_gil: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and has_gil()


def _set_if_still_there(thread_id: int, place: tuple[Any, ...]) -> bool:
    """Set the exception if the thread is at ``place``, with no bytecode in between; return whether it was set."""
    frames = map(operator.methodcaller("get", thread_id), map(operator.call, (sys._current_frames,)))  # noqa: SLF001 the one way
    what = map({place: _INTERRUPT}.__getitem__, map(_place_of, frames))
    try:
        next(map(_set_async_exc, (thread_id,), what))
    except (KeyError, AttributeError):  # the thread is elsewhere, or gone
        return False
    return True


class Interruption:
    """The interruption of one call in a thread: requested at any time, raised at most once, never after the call.

    ``runner`` is the code of the function that makes the call; its frame and those below are not inspected. Without
    ``is_wanted`` the call is never interrupted.
    """

    __slots__ = (
        "_is_delivered",
        "_is_over",
        "_is_wanted",
        "_runner",
        "_shield",
        "_thread_id",
        "_thread_state",
        "is_asked",
    )

    def __init__(self, runner: CodeType, shield: Shield | None = None, *, is_wanted: bool = True) -> None:
        self.is_asked = False
        self._is_wanted = is_wanted
        self._runner = runner
        self._shield = shield
        self._thread_id: int | None = None
        self._thread_state: int | None = None
        self._is_delivered = False
        self._is_over = False

    def begin(self, thread_state: int) -> None:
        """Begin the call in this thread; ``thread_state`` is what ``current_thread`` returned in it."""
        self._thread_state = thread_state
        self._thread_id = threading.get_ident()

    def end(self) -> None:
        """End the call in this thread: once this has returned, the exception is never raised."""
        self._is_over = True
        if self.is_asked:
            with _hooking:
                if _hooked.pop(threading.get_ident(), None) is not None:
                    sys.setprofile(None)

    def ask(self) -> bool:
        """Request the interruption; False if it was requested before, or is not wanted."""
        if self.is_asked or not self._is_wanted:
            return False
        self.is_asked = True
        if self._shield is not None:
            self._shield.when_open(self._raise_behind_shield)
        return True

    def is_settled(self) -> bool:
        """Return whether the exception was delivered or the call is over."""
        return self._is_delivered or self._is_over

    def try_once(self) -> bool:
        """Interrupt the call if that is safe now; False if the caller must try again. One thread at a time calls it."""
        if self.is_settled():
            return True
        if self._thread_id is None or self._is_shielded():
            return False
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 the one way to see another thread's stack
        if frame is None or frame.f_code.co_code[frame.f_lasti] not in _OPCODES or not _is_safe(frame, self._runner):
            return False
        if _set_if_still_there(self._thread_id, _place_of(frame)):
            self._is_delivered = True
        return self._is_delivered

    def hook(self) -> None:
        """Install a profile function, with which the thread interrupts itself when it returns to the user's code."""
        with _hooking:  # the call, and so the thread, cannot end while we hold it
            if self._thread_id is None or self.is_settled() or self._thread_id in _hooked or _set_profile is None:
                return
            _hooked[self._thread_id] = self
            _set_profile(self._thread_state, _HOOK, None)

    def watch(self, frame: FrameType, event: str, callee: object) -> None:
        """Raise the exception where guarded code, or C code, returns to the user's: the profile function."""
        if self.is_settled() or self._is_shielded():
            return
        match event:
            case "return" if frame.f_code.co_filename.startswith(_GUARDED):
                name, caller = frame.f_code.co_name, frame.f_back
            case "c_return":
                name, caller = getattr(callee, "__name__", ""), frame
            case _:
                return
        if name not in _NOT_LEFT_BY and caller is not None and _is_safe(caller, self._runner):
            self._is_delivered = True
            raise TaskInterrupted(_WHY)

    def _is_shielded(self) -> bool:
        return self._shield is not None and self._shield.is_closed

    def _raise_behind_shield(self) -> None:
        """Raise as the task leaves its last shielded section; in our code no other delivery happens."""
        if threading.get_ident() == self._thread_id and not self.is_settled():
            self._is_delivered = True
            raise TaskInterrupted(_WHY)


_WHY: Final = "the run of this task was cancelled, or its time is over"


def current_thread() -> int:
    """Return the address of CPython's state of this thread, which is constant while the thread lives."""
    address: int = _thread_state()
    return address


def _begin_to_watch(_: object, __: FrameType, ___: int, ____: object) -> int:
    """Set the profile function; runs in the hooked thread, at its next call or return: no other thread can set it."""
    interruption = _hooked.get(threading.get_ident())
    sys.setprofile(None if interruption is None else interruption.watch)
    return 0


_HOOK: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p)(
    _begin_to_watch
)
if _set_profile is not None:
    _set_profile.argtypes = (ctypes.c_void_p, type(_HOOK), ctypes.c_void_p)


def _is_safe(top: FrameType, runner: CodeType) -> bool:
    """Return whether the thread can be interrupted here: inside the user's function, and outside of guarded code."""
    user_frames = _user_frames(top, runner)
    if not user_frames:
        return False
    sleeps = top.f_code is _WAIT and top.f_lineno in _SLEEPS
    return all(_is_free(frame, may_wait=sleeps) for frame in user_frames)


def _user_frames(top: FrameType, runner: CodeType) -> list[FrameType]:
    """Return the frames of the user's function and of what it called; none if it has not been called yet."""
    frames: list[FrameType] = []
    frame: FrameType | None = top
    while frame is not None and frame.f_code is not runner:
        frames.append(frame)
        frame = frame.f_back
    if frame is None:
        return []
    while frames and frames[-1].f_code.co_filename.startswith(_OURS):
        if frames[-1].f_code.co_name.startswith("_"):  # ours, and not the wrapper around the user's function
            return []
        frames.pop()
    return frames


def _is_free(frame: FrameType, *, may_wait: bool) -> bool:
    code = frame.f_code
    if code.co_name in _DELICATE:
        return False
    if not code.co_filename.startswith(_GUARDED):
        return True
    return (may_wait and code.co_filename.startswith(_MAY_WAIT)) or code.co_name in _WRAPPERS


class Interrupter:
    """Delivers interruptions: at once where that is safe, otherwise from a thread that tries repeatedly."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: list[Interruption] = []
        self._is_looking = False
        self._is_able = can_interrupt()

    def interrupt(self, interruption: Interruption) -> None:
        """Interrupt the call as soon as that is safe. Only the thread of the event loop may call it."""
        if not self._is_able or not interruption.ask() or interruption.try_once():
            return
        with self._lock:
            self._waiting.append(interruption)
            if self._is_looking:
                return
            self._is_looking = True
        try:
            threading.Thread(target=self._look, name=self._name, daemon=True).start()
        except RuntimeError:  # the system has no more threads: these functions only see their flag
            with self._lock:
                self._is_looking = False
                self._waiting.clear()

    def _look(self) -> None:
        pause_sec, seen = RETRY_SEC, set[Interruption]()
        while waiting := self._still_waiting():
            for one in waiting:
                if not one.try_once():
                    one.hook()
            pause_sec = min(1.1 * pause_sec, LONGEST_RETRY_SEC) if seen.issuperset(waiting) else RETRY_SEC
            seen = set(waiting)
            time.sleep(pause_sec)

    def _still_waiting(self) -> list[Interruption]:
        """Return the interruptions that are not settled; without any, the thread ends."""
        with self._lock:
            self._waiting = [one for one in self._waiting if not one.is_settled()]
            self._is_looking = bool(self._waiting)
            return [*self._waiting]
