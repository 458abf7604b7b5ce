"""The connection: it fails fast, reconnects, and leaks no task."""

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

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect, message_size
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.transport.error_translation import translated
from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import JetStream
from tests.adapters.real_nats import NatsServer
from tests.waiting import wait_until


@contextmanager
def port_without_server(*, listening: bool) -> Iterator[int]:
    """Yield a port that refuses connections; with ``listening``, one that accepts them and stays silent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen()
        yield taken.getsockname()[1]


def others() -> set["asyncio.Task[object]"]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize("listening", [False, True], ids=["refuses", "silent"])
def test_connect_to_a_dead_address_fails_within_its_timeout(listening: bool, plain: bool) -> None:
    async def body() -> None:
        with port_without_server(listening=listening) as port:
            started = time.monotonic()
            with pytest.raises(UnavailableError, match=rf"cannot connect to NATS at nats://127\.0\.0\.1:{port}: \S"):
                await connect(f"nats://127.0.0.1:{port}", name="test", plain=plain, connect_timeout_sec=0.5)
            assert time.monotonic() - started < 30  # without a limit it would try forever
            assert not others()

    asyncio.run(body())


def test_connect_waits_for_a_server_that_starts_a_little_later(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        own_nats_server.kill()
        connecting = asyncio.create_task(connect(own_nats_server.url, name="test", plain=plain, connect_timeout_sec=10))
        await asyncio.to_thread(own_nats_server.start)
        async with await connecting as connection:
            assert connection.is_connected

    asyncio.run(body())


def test_errors_do_not_show_secrets(plain: bool) -> None:
    async def body() -> None:
        with port_without_server(listening=False) as port, pytest.raises(UnavailableError) as caught:
            await connect(f"nats://me:secret@127.0.0.1:{port}", name="test", plain=plain, connect_timeout_sec=0.1)
        assert "secret" not in str(caught.value)
        assert f"nats://127.0.0.1:{port}" in str(caught.value)
        with pytest.raises(InvalidInputError) as refused:
            await connect("ftp://me:secret@host", name="test", plain=plain)
        assert "secret" not in str(refused.value)

    asyncio.run(body())


def test_connect_with_a_wrong_token_reports_an_authorization_violation(
    tmp_path_factory: pytest.TempPathFactory, plain: bool
) -> None:
    async def body() -> None:
        async with await connect(server.url, name="test", plain=plain, token=right) as connection:
            assert connection.is_connected
        for wrong in (None, "wrong"):
            with pytest.raises(UnavailableError, match="Authorization Violation"):
                await connect(server.url, name="test", plain=plain, token=wrong, connect_timeout_sec=0.3)
            assert not others()

    right = "right"
    with NatsServer(tmp_path_factory.mktemp("nats"), token=right) as server:
        asyncio.run(body())


@pytest.mark.parametrize("field", ["user_credentials", "tls_ca", "tls_cert", "tls_key"])
def test_connect_names_a_missing_file(nats_server: NatsServer, field: str, plain: bool) -> None:
    options: dict[str, Any] = {field: "/nowhere/at all"}
    with pytest.raises(InvalidInputError, match=f"{field} cannot be used: there is no file '/nowhere/at all'"):
        asyncio.run(connect(nats_server.url, name="test", plain=plain, **options))


@pytest.mark.parametrize(
    "url", ["", " ,", "http://127.0.0.1", "nats://", "nats://host:port", "ws://host", "nats://host:99999"]
)
def test_connect_refuses_an_invalid_url(url: str, plain: bool) -> None:
    with pytest.raises(InvalidInputError, match=r"the NATS url .*nats://127"):
        asyncio.run(connect(url, name="test", plain=plain))


def test_connect_uses_the_next_of_several_servers(nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        with port_without_server(listening=False) as port:
            async with await connect(
                f"nats://127.0.0.1:{port}, {nats_server.url}", name="test", plain=plain
            ) as connection:
                assert connection.is_connected

    asyncio.run(body())


def test_close_ends_all_tasks_and_requests(jetstream: JetStream, plain: bool) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        async def ignore(_message: object) -> None: ...

        before = others()
        second = await connect(jetstream.server.url, name="test", plain=plain)
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


@pytest.mark.parametrize("dead", [True, False], ids=["dead", "paused"])
def test_close_does_not_wait_for_a_dead_or_paused_server(own_nats_server: NatsServer, dead: bool, plain: bool) -> None:
    async def body() -> None:
        connection = await connect(own_nats_server.url, name="test", plain=plain)
        await connection.js.account_info()
        if dead:
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
        else:
            own_nats_server.pause()
        asking = asyncio.create_task(connection.nc.request("x", timeout=0.3))
        started = time.monotonic()
        await connection.close()
        assert time.monotonic() - started < 30  # without a time limit, close() would wait forever
        with pytest.raises(nats.errors.Error):
            await asking
        assert not others()

    asyncio.run(body())


def test_close_does_not_wait_for_unsent_data(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        connection = await connect(own_nats_server.url, name="test", plain=plain)
        own_nats_server.pause()
        for _ in range(50):
            await connection.nc.publish("x", b"x" * 1_000_000)
        started = time.monotonic()
        await connection.close()
        assert time.monotonic() - started < 30  # without a time limit, close() would wait forever
        assert not others()

    asyncio.run(body())


def test_request_to_a_frozen_server_fails_when_pings_stay_unanswered(
    own_nats_server: NatsServer, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the server reads none of the data that is still to be sent."""

    async def body() -> None:
        async with await connect(own_nats_server.url, name="test", plain=plain) as connection:
            await connection.js.account_info()
            own_nats_server.pause()
            for _ in range(50):
                await connection.nc.publish("x", b"x" * 1_000_000)
            asking = asyncio.create_task(connection.nc.request("$JS.API.INFO", timeout=60))
            await wait_until(lambda: connection.nc._requested and connection.nc.pending_data_size)
            with pytest.raises(nats.errors.StaleConnectionError):
                async with asyncio.timeout(30):
                    await asking
            own_nats_server.resume()
            await wait_until(lambda: connection.nc.stats["reconnects"] == 1)
            await connection.js.account_info()

    monkeypatch.setattr("pyoco_server.adapters.jetstream.durability.connection.PING_INTERVAL_SEC", 0.2)
    asyncio.run(body())


def test_outage_is_logged_once(own_nats_server: NatsServer, caplog: pytest.LogCaptureFixture, plain: bool) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test", plain=plain) as connection:
            own_nats_server.kill()
            await wait_until(lambda: connection.nc.stats["reconnects"] == 0 and not connection.is_connected)
            await asyncio.to_thread(own_nats_server.start)
            await wait_until(lambda: connection.nc.stats["reconnects"] == 1)
            await connection.nc.flush()

    with caplog.at_level(logging.INFO, logger="pyoco_server"):
        asyncio.run(body())
    assert [getattr(record, "action", None) for record in caplog.records] == ["nats_disconnected", "nats_reconnected"]


def test_request_in_flight_fails_when_the_connection_breaks(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test", plain=plain) as connection:
            await connection.js.account_info()
            own_nats_server.pause()
            asking = asyncio.create_task(connection.nc.request("$JS.API.INFO", timeout=60))
            await wait_until(lambda: connection.nc._requested)
            started = time.monotonic()
            own_nats_server.kill()
            with pytest.raises(UnavailableError), translated():
                await asking
            assert time.monotonic() - started < 30

    asyncio.run(body())


def test_message_size_is_what_the_server_counts(jetstream: JetStream) -> None:
    """The server ends a connection that sends one byte more than it accepts."""

    async def body(connection: Connection, names: Names) -> None:
        headers = {"A": "b", "Longer-One": "実行"}
        room = connection.max_payload - message_size(b"", headers)
        ack = await connection.js.publish(names.work_subject("t"), b"x" * room, headers={**headers})
        assert ack.seq == 1
        assert message_size(b"x" * room, headers) == connection.max_payload
        assert message_size(b"abc") == 3

    jetstream.run(body)
