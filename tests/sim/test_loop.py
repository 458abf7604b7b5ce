"""The simulated event loop: virtual time, an order that the seed decides, processes that pause or die."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from tests.sim.loop import Process, SimLoop, StuckError


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(random.Random(0))
    yield made
    made.tear_down()


async def note(noted: list[str], text: str, seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
    noted.append(text)


def test_time_jumps_to_the_next_timer_when_no_callback_is_ready(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(3600), 4000))
    assert loop.time() == 3600


def test_a_timeout_takes_virtual_time(loop: SimLoop) -> None:
    async def body() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 100)

    loop.run_until_complete(body())
    assert loop.time() == 100


def test_a_process_keeps_its_order_and_the_seed_decides_between_processes() -> None:
    def order(seed: int) -> list[str]:
        loop, noted = SimLoop(random.Random(seed)), list[str]()
        for name in ("a", "b"):
            process = loop.process(name)
            for number in range(4):
                loop.start(process, note(noted, f"{name}{number}"))
        loop.run_until_complete(asyncio.sleep(1))
        loop.tear_down()
        return noted

    orders = [order(seed) for seed in range(10)]
    assert orders == [order(seed) for seed in range(10)]
    assert len({tuple(each) for each in orders}) > 1
    for each in orders:
        assert [name for name in each if name.startswith("a")] == ["a0", "a1", "a2", "a3"]


def test_a_killed_process_runs_no_further_callback_and_no_finally(loop: SimLoop) -> None:
    noted: list[str] = []

    async def body() -> None:
        try:
            await asyncio.sleep(10)
            noted.append("went on")
        finally:
            noted.append("cleaned up")

    process = loop.process("dying")
    loop.start(process, body())
    loop.server_later(5, loop.kill, process)
    loop.run_until_complete(asyncio.sleep(60))
    assert noted == []


def test_a_process_dies_before_its_crash_step(loop: SimLoop) -> None:
    crashed: list[Process] = []

    def crash(process: Process) -> None:
        crashed.append(process)
        loop.kill(process)

    noted: list[str] = []
    process = loop.process("dying")
    loop.on_crash = crash
    for number in range(6):
        loop.start(process, note(noted, str(number)))
    process.crash_at = 9  # each takes one step to start, and one to note
    loop.run_until_complete(asyncio.sleep(1))
    assert crashed == [process]
    assert noted == ["0", "1"]


def test_a_paused_process_runs_its_due_timers_when_it_is_unpaused(loop: SimLoop) -> None:
    noted: list[str] = []
    process = loop.process("paused")
    loop.start(process, note(noted, "early", 1))
    loop.start(process, note(noted, "late", 9))
    loop.pause(process)
    loop.server_later(5, loop.unpause, process)
    loop.run_until_complete(asyncio.sleep(4))
    assert noted == []
    loop.run_until_complete(asyncio.sleep(2))
    assert noted == ["early"]
    loop.run_until_complete(asyncio.sleep(10))
    assert noted == ["early", "late"]


def test_a_call_in_a_thread_runs_in_the_loop_after_the_disk_delay(loop: SimLoop) -> None:
    loop.disk_delay = lambda: 7.0
    assert loop.run_until_complete(asyncio.to_thread(lambda: 42)) == 42
    assert loop.time() == 7


def test_a_loop_without_timers_raises_stuck_error(loop: SimLoop) -> None:
    with pytest.raises(StuckError, match="nothing will happen"):
        loop.run_until_complete(asyncio.Event().wait())
