"""Functions that the tests run in child processes, in a module that a child can import."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from pyoco_server.adapters.executor.processes.child import child_control


class Contrary(Exception):  # noqa: N818 (named for its constructor)
    """Its constructor takes something else than it passes on: it cannot be loaded the usual way."""

    def __init__(self, left: int, *, right: int) -> None:
        super().__init__(f"{left} is not {right}")
        self.left = left
        self.right = right


class Forgetful(Exception):  # noqa: N818 (named for its constructor)
    """Can be loaded the usual way, but comes out different."""

    def __init__(self, text: str = "nothing") -> None:
        super().__init__()
        self.text = text

    def __str__(self) -> str:  # type: ignore[explicit-override]
        return self.text


@dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818 (named for what it forbids)
    code: int


class Holder(Exception):  # noqa: N818 (named for what it does)
    """Holds something that cannot travel."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Mute(Exception):  # noqa: N818 (named for what it lacks)
    def __str__(self) -> str:  # type: ignore[explicit-override]
        raise ValueError("no words")


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class Unloadable:
    """Can be pickled, but not loaded."""

    def __reduce__(self) -> tuple[object, ...]:  # type: ignore[explicit-override]
        return refuse_to_load, ()


class LoadsOnlyIn:
    """Can be loaded in one process only."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __reduce__(self) -> tuple[object, ...]:  # type: ignore[explicit-override]
        return load_only_in, (self.pid,)


def refuse_to_load() -> Never:
    raise ValueError("does not want to be loaded")


def load_only_in(pid: int) -> LoadsOnlyIn:
    if os.getpid() != pid:
        raise ValueError("not at home here")
    return LoadsOnlyIn(pid)


def make_homebody() -> LoadsOnlyIn:
    return LoadsOnlyIn(os.getpid())


def add(left: int, right: int = 0) -> int:
    return left + right


def move(point: Point, *, by: int) -> Point:
    return Point(point.x + by, point.y + by)


def double(data: bytes) -> bytes:
    return data + data


def throw(error: str) -> None:
    match error:
        case "ValueError":
            raise ValueError("plain")
        case "Contrary":
            raise Contrary(1, right=2)
        case "Forgetful":
            raise Forgetful("something")
        case "Frozen":
            raise Frozen(7)
        case "Holder":
            raise Holder
        case "Mute":
            raise Mute
        case "SystemExit":
            sys.exit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "StopIteration":
            raise StopIteration(5)
        case _:
            raise AssertionError(error)


def throw_from_below() -> None:
    try:
        throw("ValueError")
    except ValueError as error:
        raise KeyError("above") from error


def generator() -> Generator[int]:
    yield 1


def segfault() -> None:
    ctypes.string_at(0)


def leave(code: int) -> None:
    os._exit(code)


def leave_a_fork_behind() -> None:
    """Die, while a process that is no longer in our group holds all our files open."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.write(done, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    child_control().send(pid)
    os._exit(4)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt_self() -> int:
    """What Ctrl-C in a terminal would do, were the child in the terminal's group."""
    os.kill(os.getpid(), signal.SIGINT)
    return os.getpid()


def send_pid_and_spin() -> None:
    child_control().send(os.getpid())
    while True:
        pass


def send_pid_and_ignore_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child_control().send(os.getpid())
    while True:
        time.sleep(60)


def send_pid_and_wait_for_cancel(seen: str) -> None:
    control = child_control()
    control.send(os.getpid())
    if control.wait_cancelled(60):
        Path(seen).write_text(str(control.is_cancelled))


def start_a_sleeper() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    child_control().send([os.getpid(), process.pid])
    process.wait()


def send_all(objects: list[object]) -> int:
    for obj in objects:
        child_control().send(obj)
    return len(objects)


def send_text(length: int) -> None:
    child_control().send("x" * length)


def send_the_unsendable() -> str:
    try:
        child_control().send(threading.Lock())
    except TypeError as error:
        return str(error)
    return "sent"


def send_too_late() -> None:
    """Leave a thread behind that speaks after the call, and never again."""
    control = child_control()
    _late.append(threading.Thread(target=_speak_when_over, args=(control.send,)))


def what_became_of_the_late() -> list[str]:
    thread = _late.pop()
    thread.start()
    thread.join()
    return _late_errors


_late: list[threading.Thread] = []
_late_errors: list[str] = []


def _speak_when_over(send: object) -> None:
    assert callable(send)
    try:
        send("late")
    except RuntimeError as error:
        _late_errors.append(str(error))


def hold(path: str) -> int:
    """Run until a file appears; a gate that works across processes."""
    while not Path(path).exists():
        time.sleep(0.002)
    return os.getpid()


def say(text: str) -> None:
    sys.stdout.write(text)


def argv() -> list[str]:
    return sys.argv


def stdin_text() -> str:
    return sys.stdin.read()


def send_pid_and_hold_the_interpreter() -> None:
    """Block in C without giving up the interpreter's lock: no other thread of this process runs again."""
    child_control().send(os.getpid())
    ctypes.PyDLL(None).sleep(60)
