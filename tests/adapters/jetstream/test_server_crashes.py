"""The server may die at any time; what it has confirmed is there afterwards, once."""

import asyncio
import time
from collections.abc import Sequence

import nats.errors
import pytest

from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.event_log import COMMIT_ID, JetStreamEventLog
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import provision
from pyoco_server.adapters.jetstream.stream_reader import StreamReader
from pyoco_server.app.ports import UnavailableError
from pyoco_server.core import Event
from tests.adapters.events import note, texts
from tests.adapters.nats_server import NatsServer
from tests.waiting import wait_until

NAMES = Names()


async def ready(server: NatsServer, *, request_timeout_sec: float = 2.0) -> Connection:
    connection = await connect(server.url, name="test", request_timeout_sec=request_timeout_sec)
    await provision(connection, NAMES)
    return connection


async def crash(server: NatsServer, connection: Connection) -> None:
    server.kill()
    await wait_until(lambda: not connection.is_connected)


async def comes_back(server: NatsServer, connection: Connection) -> None:
    await asyncio.to_thread(server.start)
    await wait_until(lambda: connection.is_connected)


def test_appends_survive_a_server_that_is_killed_twice(own_nats_server: NatsServer) -> None:
    runs, each = 10, 30
    confirmed: dict[str, list[str]] = {f"r{number}": [] for number in range(runs)}
    restarts: list[asyncio.Task[None]] = []

    async def write(log: JetStreamEventLog, run_id: str) -> None:
        end = 0
        while len(confirmed[run_id]) < each:
            text = f"{run_id} {len(confirmed[run_id])}"
            try:
                end = await log.append(run_id, [note(text)], after=end)
            except UnavailableError:
                events, end = await _read_patiently(log, run_id, after=end)
                if not events:
                    continue
                assert texts(events) == [text]
            confirmed[run_id].append(text)
            if sum(map(len, confirmed.values())) in {runs * each // 3, runs * each // 3 * 2}:
                own_nats_server.kill()  # while the other nine wait for their answers
                restarts.append(asyncio.create_task(asyncio.to_thread(own_nats_server.start)))

    async def body() -> None:
        async with await ready(own_nats_server) as connection:
            log = JetStreamEventLog(connection, NAMES)
            await asyncio.gather(*(write(log, run_id) for run_id in confirmed))
            await asyncio.gather(*restarts)
            assert connection.nc.stats["reconnects"] == 2
            reader = StreamReader(connection, NAMES.events_stream)
            for run_id, written in confirmed.items():
                assert texts((await log.read(run_id))[0]) == written
                page = await reader.page(NAMES.events_subject(run_id), start=1)
                assert len({message.headers[COMMIT_ID] for message in page.messages}) == each == len(page.messages)

    asyncio.run(body())


def test_an_append_outlasts_a_short_outage(own_nats_server: NatsServer) -> None:
    """The server stands still while the commit is sent, dies, and comes back: the append returns as if nothing was."""

    async def body() -> None:
        async with await ready(own_nats_server) as connection:
            log = JetStreamEventLog(connection, NAMES)
            first = await log.append("r", [note("1")], after=0)
            own_nats_server.pause()
            appending = asyncio.create_task(log.append("r", [note("2")], after=first))
            await wait_until(lambda: connection.nc.stats["out_bytes"] and not connection.nc.pending_data_size)
            await crash(own_nats_server, connection)
            await comes_back(own_nats_server, connection)
            second = await appending
            assert await log.read("r") == ([note("1"), note("2")], second)

    asyncio.run(body())


def test_without_a_connection_everything_fails_at_once_and_leaves_no_ghost(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await ready(own_nats_server) as connection:
            log = JetStreamEventLog(connection, NAMES)
            end = await log.append("r", [note("1")], after=0)
            await crash(own_nats_server, connection)
            started = time.monotonic()
            for _ in range(100):
                with pytest.raises(UnavailableError):
                    await log.append("r", [note("ghost")], after=end)
                with pytest.raises(UnavailableError):
                    await log.read("r")
                with pytest.raises(nats.errors.OutboundBufferLimitError):
                    await connection.js.publish(NAMES.events_subject("ghost"), b"[]")
            assert time.monotonic() - started < 2  # as long as a single one would wait for an answer
            assert not connection.nc._resp_map  # nobody waits for answers to what was not sent
            await comes_back(own_nats_server, connection)
            await connection.nc.flush()
            assert await _read_patiently(log, "r") == ([note("1")], end)
            assert await log.read("ghost") == ([], 0)

    asyncio.run(body())


def test_what_was_not_sent_when_the_connection_broke_is_never_sent(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await ready(own_nats_server) as connection:
            log = JetStreamEventLog(connection, NAMES)
            end = await log.append("r", [note("1")], after=0)
            subject = NAMES.events_subject("ghost")
            own_nats_server.pause()
            await connection.nc._send_command(f"PUB {subject} 2\r\n[]\r\n".encode())
            await crash(own_nats_server, connection)
            await comes_back(own_nats_server, connection)
            await connection.nc.flush()
            assert await _read_patiently(log, "r") == ([note("1")], end)
            assert await log.read("ghost") == ([], 0)

    asyncio.run(body())


def test_a_subscription_outlives_the_server(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await ready(own_nats_server) as connection:
            log = JetStreamEventLog(connection, NAMES)
            told: list[int] = []
            await log.subscribe("r", told.append)
            first = await log.append("r", [note("1")], after=0)
            await wait_until(lambda: told == [first])
            await crash(own_nats_server, connection)
            await comes_back(own_nats_server, connection)
            await _read_patiently(log, "r")
            second = await log.append("r", [note("2")], after=first)
            await wait_until(lambda: told == [first, second])

    asyncio.run(body())


def test_a_server_that_stands_still_is_unavailable_and_then_is_not(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await ready(own_nats_server, request_timeout_sec=0.2) as connection:
            log = JetStreamEventLog(connection, NAMES, patience_sec=0.5)
            end = await log.append("r", [note("1")], after=0)
            own_nats_server.pause()
            started = time.monotonic()
            with pytest.raises(UnavailableError):
                await log.read("r")
            with pytest.raises(UnavailableError, match="nobody knows"):
                await log.append("r", [note("2")], after=end)
            assert time.monotonic() - started < 2.0
            own_nats_server.resume()
            events, _ = await _read_patiently(log, "r", after=end)
            assert events in ([], [note("2")])  # the one or the other; it is in the log or it is not

    asyncio.run(body())


async def _read_patiently(log: JetStreamEventLog, run_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
    """Streams are there a moment after their server."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return await log.read(run_id, after=after)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)
