"""Check that a test leaves no threads, child processes or open files."""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def child_pids() -> set[int]:
    """The children of this process, zombies included."""
    pids = set[int]()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            pids.update(int(pid) for pid in (thread / "children").read_text().split())
    return pids


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


Held = tuple[set[threading.Thread], set[int], int]
"""Threads, children, and how many files are open."""


def _no_more_than(before: Held, after: Held) -> bool:
    return after[0] <= before[0] and after[1] <= before[1] and after[2] <= before[2]


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Check that the body leaves no thread, child or open file. What an earlier test abandoned may end meanwhile."""
    before = (set(threading.enumerate()), child_pids(), open_files())
    yield
    deadline = time.monotonic() + 10.0
    for thread in set(threading.enumerate()) - before[0]:  # a garbage collection would keep them from ending
        thread.join(max(deadline - time.monotonic(), 0))
    gc.collect()  # closes what only reference cycles hold, such as the sockets of an event loop
    while not _no_more_than(before, after := (set(threading.enumerate()), child_pids(), open_files())):
        assert time.monotonic() < deadline, f"left behind: {before} became {after}"
        time.sleep(0.01)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """``asyncio.run``, and a check that nothing is left behind."""
    with nothing_left_behind():
        return asyncio.run(main())
