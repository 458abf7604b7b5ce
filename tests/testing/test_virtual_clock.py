import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from pyoco_server.testing import VirtualClock
from pyoco_server.testing.virtual_clock import START
from tests.waiting import wait_until

T = TypeVar("T")


def timed(work: Coroutine[Any, Any, T]) -> T:
    """Run it; virtual hours must not take real seconds."""
    began = time.monotonic()
    result = asyncio.run(work)
    assert time.monotonic() - began < 5
    return result


class LoopThread:
    """An event loop in a thread of its own, as an engine has it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def elsewhere() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def test_an_hour_takes_no_time() -> None:
    clock = VirtualClock()
    timed(clock.sleep(3_600))
    assert clock.now() == START + timedelta(hours=1)


def test_a_clock_begins_at_its_start_and_needs_a_time_zone() -> None:
    begin = datetime(2031, 5, 1, 12, tzinfo=UTC)
    assert VirtualClock(begin).now() == begin
    with pytest.raises(ValueError, match="time zone"):
        VirtualClock(begin.replace(tzinfo=None))


def test_sleeping_for_nothing_moves_nothing() -> None:
    clock = VirtualClock()
    timed(clock.sleep(0))
    assert clock.now() == START


def test_sleepers_wake_by_moment_and_then_in_the_order_in_which_they_lay_down() -> None:
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def one(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, (clock.now() - START).total_seconds()))

    async def all_of_them() -> None:
        await asyncio.gather(one("late", 30), one("b", 20), one("c", 20), one("early", 10), one("d", 20))

    timed(all_of_them())
    assert woken == [("early", 10), ("b", 20), ("c", 20), ("d", 20), ("late", 30)]


def test_time_does_not_stop_for_a_cancelled_sleeper() -> None:
    clock = VirtualClock()

    async def work() -> None:
        given_up = asyncio.create_task(clock.sleep(60))
        await asyncio.sleep(0)
        given_up.cancel()
        await clock.sleep(3_600)

    timed(work())
    assert clock.now() == START + timedelta(hours=1)


def test_time_does_not_jump_over_a_long_chain_of_work_on_the_loop() -> None:
    clock = VirtualClock()
    moments: list[datetime] = []

    async def chain() -> None:
        for _ in range(500):
            await asyncio.sleep(0)
        moments.append(clock.now())

    async def work() -> None:
        await asyncio.gather(clock.sleep(60), chain())

    timed(work())
    assert moments == [START]


def test_time_stands_still_while_it_is_held() -> None:
    clock = VirtualClock()
    moments: list[datetime] = []

    async def real_work() -> None:
        with clock.hold():
            await asyncio.sleep(0.05)
            moments.append(clock.now())

    async def work() -> None:
        await asyncio.gather(clock.sleep(60), real_work())

    timed(work())
    assert moments == [START]
    assert clock.now() == START + timedelta(minutes=1)


def test_all_holds_must_end() -> None:
    clock = VirtualClock()
    moments: list[datetime] = []

    async def real_work(real_seconds: float) -> None:
        with clock.hold():
            await asyncio.sleep(real_seconds)
            moments.append(clock.now())

    async def work() -> None:
        await asyncio.gather(clock.sleep(60), real_work(0.01), real_work(0.05))

    timed(work())
    assert moments == [START, START]


def test_one_clock_serves_one_loop() -> None:
    clock = VirtualClock()
    timed(clock.sleep(1))
    with pytest.raises(RuntimeError, match="one event loop"):
        timed(clock.sleep(1))


def test_a_clock_without_sleepers_moves_at_once() -> None:
    clock = VirtualClock()
    clock.advance(90)
    assert clock.now() == START + timedelta(seconds=90)


def test_advancing_wakes_those_due_on_the_way_and_what_they_begin(elsewhere: LoopThread) -> None:
    clock = VirtualClock()
    rounds: list[float] = []

    async def every_minute() -> None:
        while True:
            await clock.sleep(60)
            rounds.append((clock.now() - START).total_seconds())

    clock.pause()
    running = elsewhere.submit(every_minute())
    asyncio.run(wait_until(lambda: clock._sleepers))
    clock.advance(200)
    assert rounds == [60, 120, 180]
    assert clock.now() == START + timedelta(seconds=200)
    running.cancel()


def test_time_passes_again_after_a_pause(elsewhere: LoopThread) -> None:
    clock = VirtualClock()
    clock.pause()
    sleeping = elsewhere.submit(clock.sleep(60))
    asyncio.run(wait_until(lambda: clock._sleepers))
    assert not sleeping.done()
    clock.unpause()
    sleeping.result(5)
    assert clock.now() == START + timedelta(seconds=60)


def test_advancing_waits_for_work(elsewhere: LoopThread) -> None:
    clock = VirtualClock()
    clock.pause()
    begun = threading.Event()
    finished: list[datetime] = []

    async def work_sleep_work() -> None:
        for pause in (0, 60):
            await clock.sleep(pause)
            with clock.hold():
                begun.set()
                await asyncio.sleep(0.05)
                finished.append(clock.now())

    elsewhere.submit(work_sleep_work())
    assert begun.wait(20)
    clock.advance(120)
    assert finished == [START, START + timedelta(seconds=60)]


def test_advancing_can_overtake_work_that_does_not_end(elsewhere: LoopThread) -> None:
    clock = VirtualClock()

    async def endless() -> None:
        with clock.hold():
            clock.attach()
            await asyncio.Event().wait()

    running = elsewhere.submit(endless())
    asyncio.run(wait_until(lambda: clock._loop))
    clock.advance(120, overtake=True)
    assert clock.now() == START + timedelta(seconds=120)
    running.cancel()


def test_advancing_is_refused_where_it_would_wait_for_itself(elsewhere: LoopThread) -> None:
    clock = VirtualClock()

    async def wrong() -> None:
        await clock.sleep(0)
        clock.advance(1)

    with pytest.raises(RuntimeError, match="wait for itself"):
        elsewhere.submit(wrong()).result()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_an_advance_can_be_given_up_on(elsewhere: LoopThread) -> None:
    clock = VirtualClock()
    clock.pause()
    assert clock.abort_advance() is False

    async def sleep_and_never_end() -> None:
        await clock.sleep(1)
        with clock.hold():
            await asyncio.Event().wait()

    running = elsewhere.submit(sleep_and_never_end())
    asyncio.run(wait_until(lambda: clock._sleepers))
    stopper = threading.Timer(0.1, clock.abort_advance)
    stopper.start()
    clock.advance(10)
    assert clock.now() == START + timedelta(seconds=1)
    running.cancel()
    stopper.join()


def test_it_says_when_nothing_will_happen_any_more() -> None:
    stalls: list[datetime] = []
    clock = VirtualClock(on_stall=lambda: stalls.append(clock.now()))

    async def work() -> None:
        await clock.sleep(10)
        with clock.hold():
            await asyncio.sleep(0.01)
        await wait_until(lambda: stalls)

    timed(work())
    assert stalls[0] == START + timedelta(seconds=10)
