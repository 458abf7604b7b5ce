"""The contract of the event log, in memory and on JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.ports import EventLog, LogConflictError
from pyoco_server.core import Event
from tests.adapters.conftest import Backend
from tests.adapters.events import note, texts
from tests.core.samples import CREATED, PAYLOADS, any_event, nodes_in_every_status
from tests.waiting import wait_until

R = TypeVar("R")
Open = Callable[[], Awaitable[EventLog]]


def run(backend: Backend, body: Callable[[Open], Awaitable[R]]) -> R:
    in_memory: Callable[[], EventLog] = MemoryEventLog
    on_jetstream: Callable[[Connection, Names], EventLog] = JetStreamEventLog
    return backend.run(in_memory, on_jetstream, body)


def test_log_without_commits_is_empty(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        assert await (await open_log()).read("absent") == ([], 0)

    run(backend, body)


def test_read_returns_events_in_the_order_of_their_commits(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        first = await log.append("r", [CREATED, note("1")], after=0)
        second = await log.append("r", [note("2")], after=first)
        assert 0 < first < second
        assert await log.read("r") == ([CREATED, note("1"), note("2")], second)

    run(backend, body)


def test_read_after_a_position_returns_only_later_events(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        first = await log.append("r", [CREATED], after=0)
        second = await log.append("r", [note("2"), note("3")], after=first)
        assert await log.read("r", after=first) == ([note("2"), note("3")], second)
        assert await log.read("r", after=second) == ([], second)

    run(backend, body)


def test_append_at_a_stale_position_conflicts_and_writes_nothing(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        first = await log.append("r", [CREATED], after=0)
        second = await log.append("r", [note("2")], after=first)
        for stale in (0, first):
            with pytest.raises(LogConflictError, match="'r' has moved on") as caught:
                await log.append("r", [note("late")], after=stale)
            assert (caught.value.execution_id, caught.value.after) == ("r", stale)
        assert await log.read("r") == ([CREATED, note("2")], second)

    run(backend, body)


def test_append_at_a_position_ahead_of_the_log_conflicts(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        end = await log.append("r", [CREATED], after=0)
        with pytest.raises(LogConflictError):
            await log.append("r", [note("early")], after=end + 1)
        with pytest.raises(LogConflictError):
            await log.append("absent", [note("early")], after=1)
        assert await log.read("absent") == ([], 0)

    run(backend, body)


def test_empty_commit_writes_nothing_and_still_compares_positions(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        assert await log.append("r", [], after=0) == 0
        end = await log.append("r", [CREATED], after=0)
        assert await log.append("r", [], after=end) == end
        with pytest.raises(LogConflictError):
            await log.append("r", [], after=0)
        assert await log.read("r") == ([CREATED], end)

    run(backend, body)


def test_concurrent_appends_at_one_position_have_exactly_one_winner(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        logs = [await open_log() for _ in range(4)]
        end = await logs[0].append("r", [CREATED], after=0)
        for round_ in range(10):
            tries = [logs[n % 4].append("r", [note(f"{round_} {n}")], after=end) for n in range(20)]
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)]
            assert len(winners) == 1
            assert all(isinstance(o, LogConflictError) for n, o in enumerate(outcomes) if n != winners[0])
            events, end = await logs[0].read("r", after=end)
            assert events == [note(f"{round_} {winners[0]}")]
            assert end == outcomes[winners[0]]

    run(backend, body)


def test_appenders_that_read_and_retry_after_a_conflict_lose_no_event(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        async def write(log: EventLog, writer: int) -> None:
            end = 0
            for number in range(10):
                while True:
                    try:
                        end = await log.append("r", [note(f"{writer} {number}")], after=end)
                        break
                    except LogConflictError:
                        _, end = await log.read("r", after=end)
                await asyncio.sleep(0)

        await asyncio.gather(*[write(await open_log(), writer) for writer in range(4)])
        events, _ = await (await open_log()).read("r")
        assert len(events) == 40
        for writer in range(4):
            mine = [text for text in texts(events) if text.startswith(f"{writer} ")]
            assert mine == [f"{writer} {number}" for number in range(10)]

    run(backend, body)


def test_append_is_visible_to_other_readers_at_once(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        one, other = await open_log(), await open_log()
        end = 0
        for number in range(50):
            end = await one.append("r", [note(str(number))], after=end)
            events, seen = await other.read("r")
            assert (len(events), seen) == (number + 1, end)

    run(backend, body)


def test_logs_of_runs_with_similar_ids_are_separate(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        ends = dict.fromkeys(("r", "r1", "R", "r-1", "r_1"), 0)
        for number in range(3):
            for run_id in ends:
                ends[run_id] = await log.append(run_id, [note(f"{run_id} {number}")], after=ends[run_id])
        for run_id, end in ends.items():
            assert await log.read(run_id) == ([note(f"{run_id} {number}") for number in range(3)], end)

    run(backend, body)


def test_every_type_of_event_is_read_as_it_was_appended(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        commit = [*nodes_in_every_status(), *(any_event(name) for name in PAYLOADS)]
        await log.append("r", commit, after=0)
        assert (await log.read("r"))[0] == commit

    run(backend, body)


@pytest.mark.parametrize("text", ["実行 ✓", "🏃‍♀️" * 100, "\r\n\r\nPUB x 1\r\n", '"\\', "\x00\x7f", "", "a" * 100_000])
def test_any_text_is_read_as_it_was_appended(backend: Backend, text: str) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        await log.append("r", [note(text)], after=0)
        assert (await log.read("r"))[0] == [note(text)]

    run(backend, body)


def test_event_that_cannot_be_encoded_writes_nothing(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        with pytest.raises((TypeError, ValueError)):
            await log.append("r", [CREATED, note("\ud800")], after=0)
        assert await log.read("r") == ([], 0)

    run(backend, body)


@pytest.mark.parametrize(("commits", "events_each"), [(10_000, 1), (100, 100), (1, 2_000)])
def test_long_log_is_read_completely(backend: Backend, commits: int, events_each: int) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        written: list[Event] = []
        middle = end = 0
        for number in range(commits):
            commit = [note(f"{number} {n}") for n in range(events_each)]
            end = await log.append("r", commit, after=end)
            written += commit
            if number == commits // 2:
                middle = end
        assert await log.read("r") == (written, end)
        assert await log.read("r", after=middle) == (written[(commits // 2 + 1) * events_each :], end)

    run(backend, body)


def test_subscriber_receives_the_end_of_the_log_after_each_commit(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        writer, watcher = await open_log(), await open_log()
        received: list[int] = []
        others: list[int] = []
        await watcher.subscribe("r", received.append)
        await watcher.subscribe("other", others.append)
        assert await watcher.read("r") == ([], 0)
        ends = [0]
        for number in range(5):
            ends.append(await writer.append("r", [note(str(number)), note("+")], after=ends[-1]))
        with pytest.raises(LogConflictError):
            await writer.append("r", [note("late")], after=0)
        await writer.append("other", [CREATED], after=0)
        await wait_until(lambda: others and len(received) >= 5)
        assert received == ends[1:]

    run(backend, body)


def test_quiet_append_notifies_only_subscribers_of_all_runs(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        writer, watcher = await open_log(), await open_log()
        received: list[int] = []
        everything: list[tuple[str, int]] = []
        await watcher.subscribe("r", received.append)
        await watcher.subscribe_all(lambda run_id, position: everything.append((run_id, position)))
        assert await watcher.read("r") == ([], 0)
        first = await writer.append("r", [CREATED], after=0, quiet=True)
        second = await writer.append("r", [note("2")], after=first)
        await wait_until(lambda: received and len(everything) == 2)
        assert received == [second]
        assert everything == [("r", first), ("r", second)]

    run(backend, body)


def test_unsubscribed_callback_is_not_called_again(backend: Backend) -> None:
    async def body(open_log: Open) -> None:
        log = await open_log()
        received: list[int] = []
        still_subscribed: list[int] = []
        unsubscribe = await log.subscribe("r", received.append)
        await log.subscribe("r", still_subscribed.append)
        first = await log.append("r", [CREATED], after=0)
        await wait_until(lambda: received)
        unsubscribe()
        unsubscribe()
        await log.append("r", [note("2")], after=first)
        await wait_until(lambda: len(still_subscribed) == 2)
        assert received == [first]

    run(backend, body)
