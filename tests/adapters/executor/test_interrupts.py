"""Cancelled functions in threads are interrupted at any place, and leave no lock or resource in a bad state."""

import asyncio
import contextlib
import functools
import logging
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyoco_server.adapters.executor.threads import ThreadSlots
from pyoco_server.app.ports.task_executor import Shield
from pyoco_server.errors import TaskInterrupted
from tests.adapters.executor.leaks import run
from tests.waiting import wait_until

LOCK, IMPORTING, CONDITION, EVENT = threading.Lock(), threading.Lock(), threading.Condition(), threading.Event()
WAITING: "queue.Queue[int]" = queue.Queue()
LOG = logging.getLogger("tests.adapters.executor.interrupted")


def sleeps() -> None:
    time.sleep(0.001)


def computes() -> None:
    sum(number * number for number in range(100))


def locks() -> None:
    with LOCK:
        computes()


def logs() -> None:
    LOG.warning("a line of %s", "a task")


def imports() -> None:
    with IMPORTING:  # while another thread imports it, it must not be removed
        sys.modules.pop("colorsys", None)
        import colorsys  # noqa: F401, PLC0415 this is what is interrupted


class Watched:
    """Leaves a set of weak references when it is freed: a callback whose exceptions Python drops."""


WATCHED: "weakref.WeakSet[Watched]" = weakref.WeakSet()


def frees() -> None:
    for _ in range(20):
        WATCHED.add(Watched())


def waits() -> None:
    EVENT.wait(0.001)


def takes() -> None:
    with contextlib.suppress(queue.Empty):
        WAITING.get(timeout=0.001)


def puts() -> None:
    own: queue.Queue[int] = queue.Queue()
    own.put(1)
    own.get()


def notifies() -> None:
    with CONDITION:
        CONDITION.notify_all()


@contextlib.contextmanager
def both() -> Iterator[None]:
    with LOCK, CONDITION:
        yield


def enters() -> None:
    with both():
        computes()


STEPS = [sleeps, computes, locks, logs, imports, frees, waits, takes, puts, notifies, enters]


def for_ever(step: Callable[[], None], begun: Callable[[], object]) -> Callable[[], None]:
    def work() -> None:
        begun()
        while True:
            step()

    return work


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[logging.Handler]:
    handler = logging.FileHandler(tmp_path / "task.log")
    LOG.addHandler(handler)
    LOG.propagate = False
    yield handler
    LOG.removeHandler(handler)
    LOG.propagate = True
    handler.close()


def is_free(lock: object) -> bool:
    """Can another thread take the lock?"""
    taken = list[bool]()

    def take() -> None:
        taken.append(lock.acquire(timeout=5))  # type: ignore[attr-defined]
        lock.release()  # type: ignore[attr-defined]

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken == [True]


async def interrupted(slots: ThreadSlots, work: Callable[[Callable[[], object]], Callable[[], None]]) -> None:
    """Run what ``work`` makes, interrupt it when it has begun, and see that this is how it ends."""
    begun = threading.Event()
    interrupts = list[Callable[[], None]]()
    call = asyncio.create_task(slots.run(work(begun.set), on_begin=interrupts.append))
    await wait_until(begun.is_set, 60)
    interrupts[0]()
    with pytest.raises(TaskInterrupted):
        await asyncio.wait_for(call, 60)


def check_that_all_is_well(handler: logging.Handler) -> None:
    assert is_free(LOCK)
    assert is_free(IMPORTING)
    assert is_free(CONDITION)
    assert is_free(handler.lock)
    assert is_free(WAITING.mutex)
    assert is_free(logging._lock)  # type: ignore[attr-defined]
    assert not CONDITION._waiters  # type: ignore[attr-defined]  # one left there would swallow a notify
    assert not EVENT._cond._waiters  # type: ignore[attr-defined]
    assert not WAITING.not_empty._waiters  # type: ignore[attr-defined]
    sys.modules.pop("colorsys", None)
    import colorsys  # noqa: PLC0415

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


@pytest.mark.parametrize("step", STEPS)
def test_a_function_is_interrupted_whatever_it_does(step: Callable[[], None], log_file: logging.Handler) -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="interrupted")
        for _ in range(10):
            await interrupted(slots, functools.partial(for_ever, step))
        assert (slots.abandoned, slots.running) == (0, 0)
        assert await slots.run(sys.getprofile) is None
        assert await slots.run(lambda: 7) == 7
        await slots.close(1)

    run(main)
    check_that_all_is_well(log_file)


def test_hundreds_of_interruptions_side_by_side_harm_nothing(log_file: logging.Handler) -> None:
    async def main() -> None:
        slots = ThreadSlots(8, name="hammered")
        for _ in range(3):
            works = [step for step in STEPS for _ in range(4)]
            await asyncio.gather(*(interrupted(slots, functools.partial(for_ever, step)) for step in works))
        assert (slots.abandoned, slots.running, slots.waiting) == (0, 0, 0)
        assert sorted(await asyncio.gather(*(slots.run(functools.partial(int, n)) for n in range(50)))) == list(
            range(50)
        )
        await slots.close(1)

    run(main)
    check_that_all_is_well(log_file)


def test_an_interruption_that_meets_the_end_of_the_call_reaches_neither_the_pool_nor_the_next_call() -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="late")
        for number in range(300):
            interrupts = list[Callable[[], None]]()
            call = asyncio.create_task(
                slots.run(functools.partial(sum, range(number * 10)), on_begin=interrupts.append)
            )
            await asyncio.sleep(0)
            for _ in range(number % 7):
                await asyncio.sleep(0)
            interrupts[0]()
            with contextlib.suppress(TaskInterrupted):
                assert await call == sum(range(number * 10))
            assert await slots.run(lambda: "next") == "next"
        assert (slots.abandoned, slots.running) == (0, 0)
        await slots.close(1)

    run(main)


def test_an_interruption_runs_clean_up_and_except_exception_does_not_catch_it() -> None:
    cleaned = list[str]()

    def work(begun: Callable[[], object]) -> Callable[[], None]:
        def careful() -> None:
            begun()
            try:
                while True:
                    try:
                        time.sleep(0.001)
                    except Exception as error:  # noqa: BLE001 as users write it
                        cleaned.append(repr(error))
            finally:
                cleaned.append("cleaned up")

        return careful

    async def main() -> None:
        slots = ThreadSlots(1, name="careful")
        await interrupted(slots, work)
        await slots.close(1)

    run(main)
    assert cleaned == ["cleaned up"]


def test_an_interruption_is_raised_once_and_a_function_may_ignore_it() -> None:
    async def main() -> None:
        slots, begun, go_on = ThreadSlots(1, name="refusing"), threading.Event(), threading.Event()
        interrupts = list[Callable[[], None]]()

        def refuses() -> str:
            try:
                begun.set()
                while True:
                    time.sleep(0.001)
            except TaskInterrupted:
                go_on.wait(10)
                return "done all the same"

        call = asyncio.create_task(slots.run(refuses, on_begin=interrupts.append))
        await wait_until(begun.is_set)
        interrupts[0]()
        interrupts[0]()
        await asyncio.sleep(0.05)
        interrupts[0]()
        go_on.set()
        assert await call == "done all the same"
        await slots.close(1)

    run(main)


def test_a_shielded_section_ends_first_and_the_interruption_comes_at_its_end() -> None:
    steps = list[str]()
    shield = Shield()

    async def main() -> None:
        slots, begun, go_on = ThreadSlots(1, name="shielded"), threading.Event(), threading.Event()
        interrupts = list[Callable[[], None]]()

        def work() -> None:
            with shield:
                begun.set()
                with shield:
                    assert go_on.wait(10)
                steps.append("inner")
                computes()
                steps.append("outer")
            steps.append("never")

        call = asyncio.create_task(slots.run(work, on_begin=interrupts.append, shield=shield))
        await wait_until(begun.is_set)
        interrupts[0]()
        await asyncio.sleep(0.05)  # many looks; the section is under way
        assert not call.done()
        go_on.set()
        with pytest.raises(TaskInterrupted):
            await call
        await slots.close(1)

    run(main)
    assert steps == ["inner", "outer"]
    assert not shield.is_closed


def test_an_abandoned_call_is_interrupted_unless_it_uses_only_the_flag() -> None:
    async def main() -> None:
        slots, stop = ThreadSlots(2, name="abandoned"), threading.Event()
        calls = [
            asyncio.create_task(slots.run(for_ever(sleeps, int))),
            asyncio.create_task(slots.run(lambda: stop.wait(10), is_interrupted=False)),
        ]
        await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await wait_until(lambda: slots.abandoned == 1)
        stop.set()
        await wait_until(lambda: slots.abandoned == 0)
        await slots.close(1)

    run(main)


def test_an_interruption_that_waits_for_a_blocked_thread_does_not_stop_profiled_threads() -> None:
    """In CPython 3.11 a pending exception would keep every profiled thread at its next function entry."""

    async def main() -> None:
        slots, begun, go_on = ThreadSlots(2, name="blocked"), threading.Event(), threading.Lock()
        interrupts = list[Callable[[], None]]()
        go_on.acquire()

        def blocked() -> None:
            begun.set()
            with go_on:
                computes()
            raise AssertionError("never reached")

        def profiled() -> int:
            sys.setprofile(lambda *_: None)
            try:
                return sum(number for number in range(1_000))
            finally:
                sys.setprofile(None)

        call = asyncio.create_task(slots.run(blocked, on_begin=interrupts.append))
        await wait_until(begun.is_set)
        interrupts[0]()
        assert await asyncio.wait_for(slots.run(profiled), 20) == sum(range(1_000))
        go_on.release()
        with pytest.raises(TaskInterrupted):
            await call
        assert not go_on.locked()
        await slots.close(1)

    run(main)
