"""Listing the logs that have a single commit, in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamBeginnings, JetStreamEventLog
from pyoco_server.adapters.memory.event_log import MemoryBeginnings, MemoryEventLog
from pyoco_server.app.ports import EventLog
from pyoco_server.app.ports.event_log import Beginnings
from tests.adapters.conftest import Backend
from tests.adapters.events import note


class Both(NamedTuple):
    """A log, and the list of its runs that have a single commit."""

    log: EventLog
    single_commit_logs: Beginnings


def run(backend: Backend, body: Callable[[Both], Awaitable[None]]) -> None:
    def in_memory() -> Both:
        log = MemoryEventLog()
        return Both(log, MemoryBeginnings(log))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        return Both(JetStreamEventLog(connection, names), JetStreamBeginnings(connection, names))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> None:
        await body(await open_both())

    backend.run(in_memory, on_jetstream, with_both)


async def listed(both: Both) -> list[str]:
    return sorted([run_id async for page in both.single_commit_logs.pages() for run_id in page])


def test_list_without_logs_is_empty(backend: Backend) -> None:
    async def body(both: Both) -> None:
        assert await listed(both) == []

    run(backend, body)


def test_list_has_exactly_the_logs_with_a_single_commit(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for number in range(20):
            position = await both.log.append(f"run-{number}", [note("created")], after=0)
            if number % 4:
                await both.log.append(f"run-{number}", [note("second")], after=position)
        assert await listed(both) == sorted(f"run-{number}" for number in range(0, 20, 4))

    run(backend, body)
