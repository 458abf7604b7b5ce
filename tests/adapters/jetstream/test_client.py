"""Requests on both paths of the client: each reply reaches its caller, silence times out, nothing is leaked."""

import asyncio
import gc
import time
from urllib.parse import urlsplit

import nats.errors
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.transport.client import (
    RawReply,
    header_block,
    header_value,
    parsed_headers,
    received_block,
)
from pyoco_server.adapters.jetstream.transport.compat import FastClient
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError
from tests.adapters.conftest import JetStream
from tests.adapters.proxy import proxy_to
from tests.adapters.real_nats import NatsServer
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("plain")


def test_each_of_a_thousand_replies_reaches_its_caller(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc

        async def echo(message: object) -> None:
            await message.respond(message.data[::-1])  # type: ignore[attr-defined]

        await nc.subscribe("echo", cb=echo)
        words = [b"%d" % number for number in range(1_000)]
        replies = await asyncio.gather(*(nc.request_raw("echo", word, b"", timeout=5) for word in words))
        assert [reply.data for reply in replies] == [word[::-1] for word in words]
        assert not nc._requested

    jetstream.run(body)


def test_no_responder_and_no_reply_are_different_errors(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.request_raw("unserved", b"", b"", timeout=0.3)
        await nc.subscribe("silent")
        requests = [asyncio.create_task(nc.request_raw("silent", b"", b"", timeout=0.3)) for _ in range(3)]
        cancelled = asyncio.create_task(nc.request_raw("silent", b"", b"", timeout=0.3))
        await asyncio.sleep(0)
        cancelled.cancel()
        for request in requests:
            with pytest.raises(nats.errors.TimeoutError):
                await request
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await wait_until(lambda: not nc._requested and not nc._clock.is_running)

    jetstream.run(body)


def test_request_fails_at_once_when_the_connection_breaks(jetstream: JetStream, plain: bool) -> None:
    async def body() -> None:
        async with (
            proxy_to(jetstream.server.port) as proxy,
            await connect(proxy.url, name="test", request_timeout_sec=30, plain=plain) as connection,
        ):
            nc = connection.nc
            await nc.subscribe("silent")
            request = asyncio.create_task(nc.request_raw("silent", b"", b"", timeout=30))
            await wait_until(lambda: nc._requested)
            proxy.links[0].client.close()
            with pytest.raises(nats.errors.StaleConnectionError):
                async with asyncio.timeout(5):
                    await request
            assert not nc._clock.is_running
            await wait_until(lambda: connection.is_connected)
            with pytest.raises(nats.errors.NoRespondersError):  # the inbox came back with the connection
                await nc.request_raw("unserved", b"", b"", timeout=30)

    asyncio.run(body())


def test_sending_without_a_connection_is_refused(own_nats_server: NatsServer, plain: bool) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test", plain=plain) as connection:
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
            with pytest.raises(nats.errors.OutboundBufferLimitError):
                await connection.nc.publish_raw("x")
            with pytest.raises(nats.errors.OutboundBufferLimitError):
                await connection.nc.request_raw("x", b"", b"", timeout=1)
            with pytest.raises(nats.errors.OutboundBufferLimitError):
                await connection.nc.request("x")
            assert not connection.nc.pending_data_size
        with pytest.raises(nats.errors.ConnectionClosedError):
            await connection.nc.publish_raw("x")

    asyncio.run(body())


def test_too_large_request_is_refused_before_it_is_sent(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        headers = header_block({"A": "b"})
        largest = b"x" * (connection.max_payload - len(headers))
        with pytest.raises(nats.errors.MaxPayloadError):
            await connection.nc.request_raw("unserved", largest + b"x", headers, timeout=1)
        with pytest.raises(nats.errors.NoRespondersError):
            await connection.nc.request_raw("unserved", largest, headers, timeout=1)

    jetstream.run(body)


def test_handler_that_raises_does_not_end_the_connection(
    jetstream: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc, received = connection.nc, list[bytes]()

        def on_message(_subject: bytes, data: bytes, _headers: bytes | None, _reply: bytes) -> None:
            received.append(data)
            raise ValueError("cannot cope")

        await nc.subscribe_inline("odd.*", on_message)
        for number in (b"1", b"2"):
            await nc.publish_raw("odd.one", number)
        await wait_until(lambda: received == [b"1", b"2"])
        await nc.flush()
        assert nc.is_connected

    jetstream.run(body)
    assert caplog.text.count("cannot handle a message on 'odd.one'") == 2


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (None, {}),
        (b"NATS/1.0\r\nA: b: c\r\nUmlaut: \xc3\xa4\r\n\r\n", {"A": "b: c", "Umlaut": "\u00e4"}),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", {"Status": "404", "Description": "Message Not Found"}),
        (b"NATS/1.0\r\nStatus: 404\r\nNats-Sequence: 7\r\n\r\n", {"Nats-Sequence": "7"}),
        (b"NATS/1.0\r\nBad: \xff\r\n\r\n", {"Bad": "\ufffd"}),
    ],
)
def test_headers_are_parsed_as_received(block: bytes | None, found: dict[str, str]) -> None:
    assert parsed_headers(block) == found


@pytest.mark.parametrize(
    ("by_library", "block"),
    [
        (None, None),
        ({"A": "b", "Status": "1"}, b"NATS/1.0\r\nA: b\r\nStatus: 1\r\n\r\n"),
        ({"Status": "503"}, b"NATS/1.0 503\r\n\r\n"),
        ({"Status": "404", "Description": "Message Not Found"}, b"NATS/1.0 404 Message Not Found\r\n\r\n"),
        ({"Status": "100", "Description": "Idle", "A": "b"}, b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n"),
        ({"Status": "404", "Nats-Sequence": "7"}, b"NATS/1.0\r\nStatus: 404\r\nNats-Sequence: 7\r\n\r\n"),
    ],
)
def test_headers_the_library_parsed_are_encoded_as_received(
    by_library: dict[str, str] | None, block: bytes | None
) -> None:
    assert received_block(by_library) == block


def test_replies_that_arrived_during_a_stall_of_the_loop_are_read(jetstream: JetStream) -> None:
    """The event loop stalls for longer than the timeout, as it does when a disk is slow."""

    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        await nc.request_raw("$JS.API.INFO", b"", b"", timeout=0.3)
        requests = [asyncio.create_task(nc.request_raw("$JS.API.INFO", b"", b"", timeout=0.3)) for _ in range(5)]
        for _ in range(3):  # the requests are handed to the socket
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 0.8)
        replies = await asyncio.gather(*requests)
        assert all(b"memory" in reply.data for reply in replies)

    jetstream.run(body)


def test_unanswered_request_times_out_after_a_stall_of_the_loop(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        silent = await nc.subscribe_inline("silent", lambda *_: None)
        request = asyncio.create_task(nc.request_raw("silent", b"", b"", timeout=0.3))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 0.8)
        async with asyncio.timeout(5):
            with pytest.raises(nats.errors.TimeoutError):
                await request
        await nc.unsubscribe_inline(silent)

    jetstream.run(body)


def test_flush_confirms_everything_that_was_sent_before(jetstream: JetStream, plain: bool) -> None:
    async def body(_connection: Connection, _names: Names) -> None:
        async with (
            proxy_to(urlsplit(jetstream.server.url).port or 0) as proxy,
            await connect(proxy.url, name="subscriber", plain=plain) as connection,
        ):
            await connection.nc.flush()
            [link] = proxy.links
            link.hold()

            async def subscribe_and_flush() -> None:
                await connection.nc.subscribe_inline("news", lambda *_: None)
                await connection.nc.flush()

            flushing = asyncio.create_task(subscribe_and_flush())
            await wait_until(lambda: b"PING" in b"".join(link.held or []) and b"SUB news" in b"".join(link.held or []))
            sent = b"".join(link.held or [])
            assert sent.index(b"SUB news") < sent.index(b"PING")
            link.release()
            await flushing

    jetstream.run(body)


def test_inline_subscription_receives_until_it_ends(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc, received = connection.nc, list[tuple[bytes, bytes, bytes | None, bytes]]()
        subscription = await nc.subscribe_inline("news.*", lambda *message: received.append(message))
        await nc.publish_raw("news.a", b"1", reply="answer.here")
        await nc.publish("news.b", b"2", headers={"Kind": "small"})
        await wait_until(lambda: len(received) == 2)
        await nc.unsubscribe_inline(subscription)
        await nc.publish_raw("news.a", b"3")
        await nc.flush()
        assert [(subject, data, reply) for subject, data, _, reply in received] == [
            (b"news.a", b"1", b"answer.here"),
            (b"news.b", b"2", b""),
        ]
        assert header_value(received[0][2], b"Kind") is None
        assert header_value(received[1][2], b"Kind") == b"small"
        assert header_value(received[1][2], b"Kin") is None

    jetstream.run(body)


def test_withdrawn_subscription_gets_no_new_messages(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc, received = connection.nc, list[bytes]()
        subscription = await nc.subscribe_inline("news", lambda _, data, *__: received.append(data))
        await nc.publish_raw("news", b"1")
        await wait_until(lambda: received == [b"1"])
        await nc.withdraw(subscription)
        await nc.flush()
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.request_raw("news", b"2", b"", timeout=5)
        await nc.unsubscribe_inline(subscription)
        assert received == [b"1"]

    jetstream.run(body)


def test_request_returns_what_settle_makes_of_the_reply_or_raises_its_error(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc

        async def echo(message: object) -> None:
            await message.respond(message.data)  # type: ignore[attr-defined]

        def number(answered: asyncio.Future[int], reply: RawReply) -> None:
            answered.set_result(int(reply.data))

        await nc.subscribe("echo", cb=echo)
        assert await nc.request_settled("echo", b"7", b"", number, timeout=5) == 7
        with pytest.raises(ValueError, match="invalid literal"):
            await nc.request_settled("echo", b"seven", b"", number, timeout=5)

    jetstream.run(body)


def errors_kept() -> int:
    return sum(isinstance(kept, ChangedError) for kept in gc.get_objects())


def test_refusal_leaves_nothing_to_the_garbage_collector(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        subject, wrong = names.events_subject("run"), {"Nats-Expected-Last-Subject-Sequence": "99"}
        await connection.publish(subject, b"x")
        gc.collect()
        refused, before = 0, errors_kept()
        gc.disable()
        try:
            for _ in range(20):
                try:  # not by pytest.raises, which keeps what was raised
                    await connection.publish(subject, b"x", wrong)
                except ChangedError:
                    refused += 1
            assert refused == 20
            assert errors_kept() - before <= 1, "a frame may still hold the last one"
        finally:
            gc.enable()

    jetstream.run(body)


def test_path_is_the_one_asked_for(jetstream: JetStream, plain: bool) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        assert isinstance(connection.nc, FastClient) is not plain
        assert connection.nc.server_name
        assert not connection.nc.is_in_cluster
        assert connection.nc.connected_server_version.major >= 2

    jetstream.run(body)
