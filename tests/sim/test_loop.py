"""The loop itself: virtual time, an order the seed decides, processes that stand still or die."""

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


async def note(told: list[str], text: str, seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
    told.append(text)


def test_time_passes_when_there_is_nothing_else_to_do(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.wait_for(asyncio.sleep(3600), 4000))
    assert loop.time() == 3600


def test_a_timeout_is_virtual_too(loop: SimLoop) -> None:
    async def body() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 100)

    loop.run_until_complete(body())
    assert loop.time() == 100


def test_inside_a_process_order_is_kept_and_between_processes_the_seed_decides() -> None:
    def order(seed: int) -> list[str]:
        loop, told = SimLoop(random.Random(seed)), list[str]()
        for name in ("a", "b"):
            process = loop.process(name)
            for number in range(4):
                loop.start(process, note(told, f"{name}{number}"))
        loop.run_until_complete(asyncio.sleep(1))
        loop.tear_down()
        return told

    orders = [order(seed) for seed in range(10)]
    assert orders == [order(seed) for seed in range(10)]
    assert len({tuple(each) for each in orders}) > 1
    for each in orders:
        assert [name for name in each if name.startswith("a")] == ["a0", "a1", "a2", "a3"]


def test_what_dies_does_nothing_any_more_and_cleans_nothing_up(loop: SimLoop) -> None:
    told: list[str] = []

    async def body() -> None:
        try:
            await asyncio.sleep(10)
            told.append("went on")
        finally:
            told.append("cleaned up")

    process = loop.process("dying")
    loop.start(process, body())
    loop.server_later(5, loop.kill, process)
    loop.run_until_complete(asyncio.sleep(60))
    assert told == []


def test_a_process_dies_before_the_step_it_was_told(loop: SimLoop) -> None:
    crashed: list[Process] = []

    def crash(process: Process) -> None:
        crashed.append(process)
        loop.kill(process)

    told: list[str] = []
    process = loop.process("dying")
    loop.on_crash = crash
    for number in range(6):
        loop.start(process, note(told, str(number)))
    process.crash_at = 9  # each takes a step to begin, and one to note
    loop.run_until_complete(asyncio.sleep(1))
    assert crashed == [process]
    assert told == ["0", "1"]


def test_a_process_that_stood_still_finds_all_that_was_due(loop: SimLoop) -> None:
    told: list[str] = []
    process = loop.process("paused")
    loop.start(process, note(told, "early", 1))
    loop.start(process, note(told, "late", 9))
    loop.pause(process)
    loop.server_later(5, loop.go_on, process)
    loop.run_until_complete(asyncio.sleep(4))
    assert told == []
    loop.run_until_complete(asyncio.sleep(2))
    assert told == ["early"]
    loop.run_until_complete(asyncio.sleep(10))
    assert told == ["early", "late"]


def test_what_would_run_in_a_thread_runs_here_and_takes_as_long_as_the_disk(loop: SimLoop) -> None:
    loop.disk_delay = lambda: 7.0
    assert loop.run_until_complete(asyncio.to_thread(lambda: 42)) == 42
    assert loop.time() == 7


def test_a_world_in_which_nothing_will_ever_happen_says_so(loop: SimLoop) -> None:
    with pytest.raises(StuckError, match="nothing will happen"):
        loop.run_until_complete(asyncio.Event().wait())
