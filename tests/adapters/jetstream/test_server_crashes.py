"""The server may die at any time; every confirmed commit is stored exactly once."""

import asyncio
import time
from collections.abc import Sequence

import nats.errors
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import provision
from pyoco_server.adapters.jetstream.primitives.stream_reader import StreamReader
from pyoco_server.adapters.jetstream.stores.event_log import COMMIT_ID, JetStreamEventLog
from pyoco_server.app.ports import UnavailableError
from pyoco_server.core import Event
from tests.adapters.events import note, texts
from tests.adapters.real_nats import NatsServer
from tests.waiting import PATIENCE_SEC, wait_until

NAMES = Names()


async def ready(server: NatsServer, *, plain: bool, request_timeout_sec: float = 2.0) -> Connection:
    connection = await connect(server.url, name="test", request_timeout_sec=request_timeout_sec, plain=plain)
    await provision(connection, NAMES)
    return connection


async def crash(server: NatsServer, connection: Connection) -> None:
    server.kill()
    await wait_until(lambda: not connection.is_connected)


async def comes_back(server: NatsServer, connection: Connection) -> None:
    await asyncio.to_thread(server.start)
    await wait_until(lambda: connection.is_connected)


def test_appends_survive_two_kills_of_the_server(own_nats_server: NatsServer, plain: bool) -> None:
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
        async with await ready(own_nats_server, plain=plain) as connection:
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


def test_append_survives_a_short_outage(own_nats_server: NatsServer, plain: bool) -> None:
    """The server is paused while the commit is sent, killed, and started again: the append succeeds."""

    async def body() -> None:
        async with await ready(own_nats_server, plain=plain) as connection:
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


def test_operations_without_a_connection_fail_at_once_and_are_never_sent(
    own_nats_server: NatsServer, plain: bool
) -> None:
    async def body() -> None:
        async with await ready(own_nats_server, plain=plain) as connection:
            log = JetStreamEventLog(connection, NAMES)
            end = await log.append("r", [note("1")], after=0)
            await crash(own_nats_server, connection)
            requests = connection.nc._requests
            for _ in range(100):
                with pytest.raises(UnavailableError):
                    await log.append("r", [note("unsent")], after=end)
                with pytest.raises(UnavailableError):
                    await log.read("r")
                with pytest.raises(nats.errors.OutboundBufferLimitError):
                    await connection.js.publish(NAMES.events_subject("unsent"), b"[]")
            assert connection.nc._requests == requests  # no caller waited for an answer
            assert not connection.nc._requested
            await comes_back(own_nats_server, connection)
            await connection.nc.flush()
            assert await _read_patiently(log, "r") == ([note("1")], end)
            assert await log.read("unsent") == ([], 0)

    asyncio.run(body())


def test_unsent_data_of_a_broken_connection_is_never_sent(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        async with await ready(own_nats_server, plain=plain) as connection:
            log = JetStreamEventLog(connection, NAMES)
            end = await log.append("r", [note("1")], after=0)
            subject = NAMES.events_subject("unsent")
            own_nats_server.pause()
            for _ in range(50):  # more than the buffers of both sockets
                await connection.nc.publish("x", b"x" * 1_000_000)
            await connection.nc.publish(subject, b"[]")
            await crash(own_nats_server, connection)
            await comes_back(own_nats_server, connection)
            await connection.nc.flush()
            assert await _read_patiently(log, "r") == ([note("1")], end)
            assert await log.read("unsent") == ([], 0)

    asyncio.run(body())


def test_subscription_survives_a_restart_of_the_server(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        async with await ready(own_nats_server, plain=plain) as connection:
            log = JetStreamEventLog(connection, NAMES)
            received: list[int] = []
            await log.subscribe("r", received.append)
            first = await log.append("r", [note("1")], after=0)
            await wait_until(lambda: received == [first])
            await crash(own_nats_server, connection)
            await comes_back(own_nats_server, connection)
            await _read_patiently(log, "r")
            second = await log.append("r", [note("2")], after=first)
            await wait_until(lambda: received == [first, second])

    asyncio.run(body())


def test_paused_server_is_unavailable_until_it_resumes(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        async with await ready(own_nats_server, plain=plain, request_timeout_sec=0.2) as connection:
            log = JetStreamEventLog(connection, NAMES, patience_sec=0.5)
            end = await log.append("r", [note("1")], after=0)
            own_nats_server.pause()
            started = time.monotonic()
            with pytest.raises(UnavailableError):
                await log.read("r")
            with pytest.raises(UnavailableError, match="it is unknown"):
                await log.append("r", [note("2")], after=end)
            assert time.monotonic() - started < 30
            own_nats_server.resume()
            events, _ = await _read_patiently(log, "r", after=end)
            assert events in ([], [note("2")])  # the outcome was unknown: both are correct

    asyncio.run(body())


async def _read_patiently(log: JetStreamEventLog, run_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
    """Read, and retry for a while: streams become available a moment after their server."""
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        try:
            return await log.read(run_id, after=after)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)
