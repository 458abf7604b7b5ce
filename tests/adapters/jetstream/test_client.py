"""Asking without the library's detours: answers find who asked, silence has an end, and nothing stays behind."""

import asyncio
import gc
import time
from urllib.parse import urlsplit

import nats.errors
import pytest

from pyoco_server.adapters.jetstream.client import Answer, header_block, header_value, parsed_headers
from pyoco_server.adapters.jetstream.connection import Connection, connect
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.translation import ChangedError
from tests.adapters.conftest import JetStream
from tests.adapters.nats_server import NatsServer
from tests.adapters.proxy import proxy_to
from tests.waiting import wait_until


def test_a_thousand_answers_find_those_who_asked(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc

        async def echo(message: object) -> None:
            await message.respond(message.data[::-1])  # type: ignore[attr-defined]

        await nc.subscribe("echo", cb=echo)
        asked = [b"%d" % number for number in range(1_000)]
        answers = await asyncio.gather(*(nc.ask("echo", word, b"", timeout=5) for word in asked))
        assert [answer.data for answer in answers] == [word[::-1] for word in asked]
        assert not nc._asked

    jetstream.run(body)


def test_nobody_there_and_nobody_answers_are_told_apart(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.ask("nobody", b"", b"", timeout=0.3)
        await nc.subscribe("silent")
        asking = [asyncio.create_task(nc.ask("silent", b"", b"", timeout=0.3)) for _ in range(3)]
        gone = asyncio.create_task(nc.ask("silent", b"", b"", timeout=0.3))
        await asyncio.sleep(0)
        gone.cancel()
        for one in asking:
            with pytest.raises(nats.errors.TimeoutError):
                await one
        with pytest.raises(asyncio.CancelledError):
            await gone
        await wait_until(lambda: not nc._asked and nc._timer is None)

    jetstream.run(body)


def test_who_asked_a_connection_that_breaks_is_told_at_once(jetstream: JetStream) -> None:
    async def body() -> None:
        async with (
            proxy_to(jetstream.server.port) as proxy,
            await connect(proxy.url, name="test", request_timeout_sec=30) as connection,
        ):
            nc = connection.nc
            await nc.subscribe("silent")
            asking = asyncio.create_task(nc.ask("silent", b"", b"", timeout=30))
            await wait_until(lambda: nc._asked)
            proxy.links[0].client.close()
            with pytest.raises(nats.errors.StaleConnectionError):
                async with asyncio.timeout(5):
                    await asking
            assert nc._timer is None
            await wait_until(lambda: connection.is_connected)
            with pytest.raises(nats.errors.NoRespondersError):  # the inbox came back with the connection
                await nc.ask("nobody", b"", b"", timeout=30)

    asyncio.run(body())


def test_nothing_is_sent_while_there_is_no_connection(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        async with await connect(own_nats_server.url, name="test") as connection:
            own_nats_server.kill()
            await wait_until(lambda: not connection.is_connected)
            with pytest.raises(nats.errors.OutboundBufferLimitError):
                await connection.nc.tell("x")
            with pytest.raises(nats.errors.OutboundBufferLimitError):
                await connection.nc.ask("x", b"", b"", timeout=1)
            assert not connection.nc._pending
        with pytest.raises(nats.errors.ConnectionClosedError):
            await connection.nc.tell("x")

    asyncio.run(body())


def test_what_is_too_large_is_refused_before_it_is_sent(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        headers = header_block({"A": "b"})
        largest = b"x" * (connection.max_payload - len(headers))
        with pytest.raises(nats.errors.MaxPayloadError):
            await connection.nc.ask("nobody", largest + b"x", headers, timeout=1)
        with pytest.raises(nats.errors.NoRespondersError):
            await connection.nc.ask("nobody", largest, headers, timeout=1)

    jetstream.run(body)


def test_a_listener_that_raises_costs_nobody_the_connection(
    jetstream: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc, heard = connection.nc, list[bytes]()

        def told(_subject: bytes, data: bytes, _headers: bytes | None, _reply: bytes) -> None:
            heard.append(data)
            raise ValueError("cannot cope")

        await nc.listen("odd.*", told)
        for number in (b"1", b"2"):
            await nc.tell("odd.one", number)
        await wait_until(lambda: heard == [b"1", b"2"])
        await nc.flush()
        assert nc.is_connected

    jetstream.run(body)
    assert caplog.text.count("a message on 'odd.one' could not be taken") == 2


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
def test_headers_as_they_came(block: bytes | None, found: dict[str, str]) -> None:
    assert parsed_headers(block) == found


def test_what_was_answered_while_nobody_could_look_is_heard(jetstream: JetStream) -> None:
    """The event loop stood still for longer than anybody waits, as when a disk does: the answers lie there."""

    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        await nc.ask("$JS.API.INFO", b"", b"", timeout=0.3)
        asking = [asyncio.create_task(nc.ask("$JS.API.INFO", b"", b"", timeout=0.3)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 0.8)
        answers = await asyncio.gather(*asking)
        assert all(b"memory" in answer.data for answer in answers)

    jetstream.run(body)


def test_who_is_not_answered_is_told_so_also_after_that(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc
        silent = await nc.listen("silent", lambda *_: None)
        asking = asyncio.create_task(nc.ask("silent", b"", b"", timeout=0.3))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(time.sleep, 0.8)
        async with asyncio.timeout(5):
            with pytest.raises(nats.errors.TimeoutError):
                await asking
        await nc.leave(silent)

    jetstream.run(body)


def test_who_flushes_has_been_heard(jetstream: JetStream) -> None:
    """What is confirmed is behind what was said before, on the wire."""

    async def body(_connection: Connection, _names: Names) -> None:
        async with (
            proxy_to(urlsplit(jetstream.server.url).port or 0) as proxy,
            await connect(proxy.url, name="listener") as connection,
        ):
            await connection.nc.flush()
            [link] = proxy.links
            link.hold()

            async def listen_and_flush() -> None:
                await connection.nc.listen("heard", lambda *_: None)
                await connection.nc.flush()

            flushing = asyncio.create_task(listen_and_flush())
            await wait_until(lambda: b"PING" in b"".join(link.held or []) and b"SUB heard" in b"".join(link.held or []))
            sent = b"".join(link.held or [])
            assert sent.index(b"SUB heard") < sent.index(b"PING")
            link.release()
            await flushing

    jetstream.run(body)


def test_listeners_hear_until_they_leave(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc, heard = connection.nc, list[tuple[bytes, bytes, bytes | None, bytes]]()
        subscription = await nc.listen("news.*", lambda *told: heard.append(told))
        await nc.tell("news.a", b"1", reply="answer.here")
        await nc.publish("news.b", b"2", headers={"Kind": "small"})
        await wait_until(lambda: len(heard) == 2)
        await nc.leave(subscription)
        await nc.tell("news.a", b"3")
        await nc.flush()
        said = [(subject, data, reply) for subject, data, _, reply in heard]
        assert said == [(b"news.a", b"1", b"answer.here"), (b"news.b", b"2", b"")]
        assert header_value(heard[0][2], b"Kind") is None
        assert header_value(heard[1][2], b"Kind") == b"small"
        assert header_value(heard[1][2], b"Kin") is None

    jetstream.run(body)


def test_who_asks_is_told_what_is_made_of_the_answer_or_why_nothing_is(jetstream: JetStream) -> None:
    async def body(connection: Connection, _names: Names) -> None:
        nc = connection.nc

        async def echo(message: object) -> None:
            await message.respond(message.data)  # type: ignore[attr-defined]

        def number(answered: asyncio.Future[int], answer: Answer) -> None:
            answered.set_result(int(answer.data))

        await nc.subscribe("echo", cb=echo)
        assert await nc.ask_for("echo", b"7", b"", number, timeout=5) == 7
        with pytest.raises(ValueError, match="invalid literal"):
            await nc.ask_for("echo", b"seven", b"", number, timeout=5)

    jetstream.run(body)


def errors_kept() -> int:
    return sum(isinstance(kept, ChangedError) for kept in gc.get_objects())


def test_a_refusal_leaves_nothing_to_the_garbage_collector(jetstream: JetStream) -> None:
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
            assert errors_kept() - before <= 1, "the last one may still be in somebody's hands"
        finally:
            gc.enable()

    jetstream.run(body)
