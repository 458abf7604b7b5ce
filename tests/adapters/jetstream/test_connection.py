"""The connection: quick to say no, quick to come back, and nothing left behind."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats.errors
import nats.js.errors
import pytest

from pyoco_server.adapters.jetstream.connection import Connection, connect, message_size
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.translation import translated
from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import JetStream
from tests.adapters.nats_server import NatsServer
from tests.waiting import wait_until


@contextmanager
def port_without_server(*, listening: bool) -> Iterator[int]:
    """Where nobody answers; with ``listening``, where somebody takes the call and says nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen()
        yield taken.getsockname()[1]


def others() -> set["asyncio.Task[object]"]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize("listening", [False, True], ids=["nobody there", "nobody speaks"])
def test_a_dead_address_is_said_to_be_dead_in_time(listening: bool) -> None:
    async def body() -> None:
        with port_without_server(listening=listening) as port:
            started = time.monotonic()
            with pytest.raises(UnavailableError, match=rf"cannot connect to NATS at nats://127\.0\.0\.1:{port}: \S"):
                await connect(f"nats://127.0.0.1:{port}", name="test", connect_timeout_sec=0.5)
            assert time.monotonic() - started < 1.5
            assert not others()

    asyncio.run(body())


def test_a_server_that_comes_a_little_later_is_waited_for(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        own_nats_server.kill()
        connecting = asyncio.create_task(connect(own_nats_server.url, name="test", connect_timeout_sec=10))
        await asyncio.to_thread(own_nats_server.start)
        async with await connecting as connection:
            assert connection.is_connected

    asyncio.run(body())


def test_secrets_do_not_show() -> None:
    async def body() -> None:
        with port_without_server(listening=False) as port, pytest.raises(UnavailableError) as caught:
            await connect(f"nats://me:secret@127.0.0.1:{port}", name="test", connect_timeout_sec=0.1)
        assert "secret" not in str(caught.value)
        assert f"nats://127.0.0.1:{port}" in str(caught.value)
        with pytest.raises(InvalidInputError) as refused:
            await connect("ftp://me:secret@host", name="test")
        assert "secret" not in str(refused.value)

    asyncio.run(body())


def test_who_may_not_enter_is_told_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def body() -> None:
        async with await connect(server.url, name="test", token=right) as connection:
            assert connection.is_connected
        for wrong in (None, "wrong"):
            with pytest.raises(UnavailableError, match="Authorization Violation"):
                await connect(server.url, name="test", token=wrong, connect_timeout_sec=0.3)
            assert not others()

    right = "right"
    server = NatsServer(tmp_path_factory.mktemp("nats"), token=right)
    server.start()
    try:
        asyncio.run(body())
    finally:
        server.kill()


@pytest.mark.parametrize("field", ["user_credentials", "tls_ca", "tls_cert", "tls_key"])
def test_a_file_that_is_not_there_is_named(nats_server: NatsServer, field: str) -> None:
    options: dict[str, Any] = {field: "/nowhere/at all"}
    with pytest.raises(InvalidInputError, match=f"{field} cannot be used: there is no file '/nowhere/at all'"):
        asyncio.run(connect(nats_server.url, name="test", **options))


@pytest.mark.parametrize(
    "url", ["", " ,", "http://127.0.0.1", "nats://", "nats://host:port", "ws://host", "nats://host:99999"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"the NATS url .*nats://127"):
        asyncio.run(connect(url, name="test"))


def test_the_next_of_several_servers_serves(nats_server: NatsServer) -> None:
    async def body() -> None:
        with port_without_server(listening=False) as port:
            async with await connect(f"nats://127.0.0.1:{port}, {nats_server.url}", name="test") as connection:
                assert connection.is_connected

    asyncio.run(body())


def test_nothing_stays_behind(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async def ignore(_message: object) -> None: ...

        before = others()
        second = await connect(jetstream.server.url, name="test")
        await second.nc.subscribe("x", cb=ignore)
        await second.js.account_info()
        await second.close()
        await second.close()
        assert others() == before
        assert not second.is_connected
        assert second.is_closed
        with pytest.raises(UnavailableError), translated():
            await second.js.account_info()
        assert connection.is_connected

    jetstream.run(body)


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "standing still"])
def test_closing_does_not_wait_for_a_server_that_is_gone(own_nats_server: NatsServer, dead: bool) -> None:
    async def body() -> None:
        connection = await connect(own_nats_server.url, name="test")
        await connection.js.account_info()
        if dead:
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
        else:
            own_nats_server.pause()
        asking = asyncio.create_task(connection.nc.request("x", timeout=0.3))
        started = time.monotonic()
        await connection.close()
        assert time.monotonic() - started < 3
        with pytest.raises(nats.errors.Error):
            await asking
        assert not others()

    asyncio.run(body())


def test_closing_does_not_wait_for_what_a_server_does_not_take(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        connection = await connect(own_nats_server.url, name="test")
        own_nats_server.pause()
        for _ in range(50):
            await connection.nc.publish("x", b"x" * 1_000_000)
        started = time.monotonic()
        await connection.close()
        assert time.monotonic() - started < 3
        assert not others()

    asyncio.run(body())


def test_a_peer_that_takes_nothing_does_not_delay_the_news(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test") as connection:
            await connection.js.account_info()
            own_nats_server.pause()
            for _ in range(50):
                await connection.nc.publish("x", b"x" * 1_000_000)
            asking = asyncio.create_task(connection.nc.request("$JS.API.INFO", timeout=60))
            await wait_until(lambda: connection.nc._resp_map and connection.nc.pending_data_size)
            started = time.monotonic()
            await connection.nc._process_op_err(nats.errors.StaleConnectionError())  # as when pings stay unanswered
            with pytest.raises(nats.errors.StaleConnectionError):
                await asking
            assert time.monotonic() - started < 1
            own_nats_server.resume()
            await wait_until(lambda: connection.nc.stats["reconnects"] == 1)
            await connection.js.account_info()

    asyncio.run(body())


def test_an_outage_is_reported_once(own_nats_server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test") as connection:
            own_nats_server.kill()
            await wait_until(lambda: connection.nc.stats["reconnects"] == 0 and not connection.is_connected)
            await asyncio.to_thread(own_nats_server.start)
            await wait_until(lambda: connection.nc.stats["reconnects"] == 1)
            await connection.nc.flush()

    with caplog.at_level(logging.INFO, logger="pyoco_server"):
        asyncio.run(body())
    assert [getattr(record, "action", None) for record in caplog.records] == ["nats_disconnected", "nats_reconnected"]


def test_a_request_in_flight_is_told_when_the_connection_breaks(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test") as connection:
            await connection.js.account_info()
            own_nats_server.pause()
            asking = asyncio.create_task(connection.nc.request("$JS.API.INFO", timeout=60))
            await wait_until(lambda: connection.nc._resp_map)
            started = time.monotonic()
            own_nats_server.kill()
            with pytest.raises(UnavailableError), translated():
                await asking
            assert time.monotonic() - started < 5

    asyncio.run(body())


def test_the_size_of_a_message_is_what_the_server_counts(jetstream: JetStream) -> None:
    """One byte too many and the server would end the connection."""

    async def body(connection: Connection, names: Names) -> None:
        headers = {"A": "b", "Longer-One": "実行"}
        room = connection.max_payload - message_size(b"", headers)
        ack = await connection.js.publish(names.work_subject("t"), b"x" * room, headers={**headers})
        assert ack.seq == 1
        assert message_size(b"x" * room, headers) == connection.max_payload
        assert message_size(b"abc") == 3

    jetstream.run(body)
