"""Which logs have only just begun, in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pyoco_server.adapters.jetstream.beginnings import JetStreamBeginnings
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.memory.beginnings import MemoryBeginnings
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.ports import EventLog
from pyoco_server.app.ports.beginnings import Beginnings
from tests.adapters.conftest import Backend
from tests.adapters.events import note


class Both(NamedTuple):
    """Logs, and the look over them."""

    log: EventLog
    beginnings: Beginnings


def run(backend: Backend, body: Callable[[Both], Awaitable[None]]) -> None:
    def in_memory() -> Both:
        log = MemoryEventLog()
        return Both(log, MemoryBeginnings(log))

    def on_jetstream(connection: Connection, names: Names) -> Both:
        return Both(JetStreamEventLog(connection, names), JetStreamBeginnings(connection, names))

    async def with_both(open_both: Callable[[], Awaitable[Both]]) -> None:
        await body(await open_both())

    backend.run(in_memory, on_jetstream, with_both)


async def begun(both: Both) -> list[str]:
    return sorted([run_id async for page in both.beginnings.pages() for run_id in page])


def test_without_logs_there_is_none(backend: Backend) -> None:
    async def body(both: Both) -> None:
        assert await begun(both) == []

    run(backend, body)


def test_those_with_a_single_commit_are_told(backend: Backend) -> None:
    async def body(both: Both) -> None:
        for number in range(20):
            position = await both.log.append(f"run-{number}", [note("created")], after=0)
            if number % 4:
                await both.log.append(f"run-{number}", [note("went on")], after=position)
        assert await begun(both) == sorted(f"run-{number}" for number in range(0, 20, 4))

    run(backend, body)
