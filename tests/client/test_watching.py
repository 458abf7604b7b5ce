"""``watch`` and ``wait`` reach the end of the run, also when connections break."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any

import pytest

from pyoco_server.client import (
    ApiError,
    AsyncClient,
    Client,
    GatewayUnreachableError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from tests.client.scripted_gateway import (
    HEARTBEAT,
    Answer,
    ScriptedGateway,
    event,
    refuses,
    says,
    silence,
    snapshot,
    streams,
)

WATCH = "/runs/r1/watch"
PENDING, RUNNING, DONE = snapshot("PENDING", 1), snapshot("RUNNING", 2), snapshot("COMPLETED", 3)
AWAY = refuses("ERR-PYOCO-0003")


def statuses(found: Iterator[dict[str, Any]]) -> list[str]:
    return [one["status"] for one in found]


def test_from_the_first_snapshot_to_the_last(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, streams(event(PENDING), HEARTBEAT, event(RUNNING), event(DONE), then=silence))
    assert list(client.watch("r1")) == [PENDING, RUNNING, DONE]
    (request,) = gateway.requests
    assert request.query == [("timeout_sec", "600.000")]
    assert request.headers["accept"] == "text/event-stream"


def test_records_are_asked_for(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, streams(event(DONE)))
    assert list(client.watch("r1", records=True, timeout=50)) == [DONE]
    query = dict(gateway.requests[0].query)
    assert query["include"] == "records"
    assert 45 < float(query["timeout_sec"]) <= 50


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_stream_that_breaks_is_opened_again(gateway: ScriptedGateway, client: Client, cut_off: bool) -> None:
    gateway.on(
        "GET",
        WATCH,
        streams(event(PENDING), event(RUNNING)[:30], cut_off=cut_off),
        streams(event(PENDING), event(RUNNING), cut_off=cut_off),  # known snapshots are not shown again
        AWAY,
        Answer(502, b"<html>restarting</html>"),
        streams(event(PENDING), event(DONE), then=silence),  # a gateway that lags does not turn back time
    )
    assert list(client.watch("r1")) == [PENDING, RUNNING, DONE]
    assert gateway.paths() == [f"GET {WATCH}"] * 5


def test_garbage_between_events_is_passed_over(gateway: ScriptedGateway, client: Client) -> None:
    garbage = [b"event: snapshot\ndata: {not json\n\n", b"event: snapshot\ndata: [1]\n\n", b"\xff\xfe\x00\n\n"]
    gateway.on("GET", WATCH, streams(*garbage, event(RUNNING), *garbage, event(DONE), then=silence))
    assert list(client.watch("r1")) == [RUNNING, DONE]


@pytest.mark.parametrize(
    "useless",
    [
        refuses("ERR-PYOCO-0102"),  # too many watch
        Answer(200, b"<html>hello</html>", {"content-type": "text/html"}),
        streams(b"garbage " * 100),
        streams(),
        streams(cut_off=True),
        refuses("ERR-PYOCO-0106"),
    ],
)
def test_a_client_polls_where_watching_does_not_work(gateway: ScriptedGateway, client: Client, useless: Any) -> None:
    gateway.on("GET", WATCH, useless)
    gateway.on("GET", "/runs/r1", says(PENDING), says(RUNNING), AWAY, says(RUNNING), says(DONE))
    assert list(client.watch("r1")) == [PENDING, RUNNING, DONE]
    assert gateway.paths().count(f"GET {WATCH}") <= 2
    assert gateway.paths()[-5:] == ["GET /runs/r1"] * 5


@pytest.mark.parametrize("err_id", ["ERR-PYOCO-0005", "ERR-PYOCO-0014", "ERR-PYOCO-0015"])
def test_a_refusal_ends_a_watch(gateway: ScriptedGateway, client: Client, err_id: str) -> None:
    gateway.on("GET", WATCH, refuses(err_id))
    gateway.on("GET", "/runs/r1", refuses(err_id))
    with pytest.raises(ApiError) as refused:
        list(client.watch("r1"))
    assert refused.value.err_id == err_id


def test_a_server_that_knows_nothing_of_runs(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, Answer(200, b"hello"))
    gateway.on("GET", "/runs/r1", Answer(200, b"hello"))
    with pytest.raises(UnexpectedAnswerError):
        client.wait("r1")


def test_a_gateway_that_was_never_there_is_not_waited_for(gateway: ScriptedGateway) -> None:
    gateway.stop()
    with Client(gateway.url, retries=2) as client, pytest.raises(GatewayUnreachableError):
        client.wait("r1", timeout=60)


def test_a_gateway_that_never_had_nats_is_an_error(gateway: ScriptedGateway) -> None:
    gateway.on("GET", WATCH, AWAY)
    with Client(gateway.url, retries=1) as client, pytest.raises(ApiError) as refused:
        client.wait("r1", timeout=60)
    assert refused.value.err_id == "ERR-PYOCO-0003"
    assert len(gateway.requests) == 2


def test_only_what_is_newer_than_asked_for(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, streams(event(PENDING), event(RUNNING), event(DONE), then=silence))
    assert list(client.watch("r1", since=RUNNING["updated_at"])) == [DONE]
    assert list(client.watch("r1", since=DONE["updated_at"])) == []  # it has ended, there is nothing to wait for


def test_watching_on_after_the_end(gateway: ScriptedGateway, client: Client) -> None:
    archived = snapshot("COMPLETED", 4, archived_at=1.0)
    gateway.on("GET", WATCH, streams(event(DONE), event(archived), then=silence))
    with closing(client.watch("r1", until_terminal=False)) as found:
        assert [next(found), next(found)] == [DONE, archived]


@pytest.mark.parametrize("timeout", [0.3, 1.2])
def test_watching_ends_in_time(gateway: ScriptedGateway, client: Client, timeout: float) -> None:
    gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    begin = time.monotonic()
    assert statuses(client.watch("r1", timeout=timeout)) == ["RUNNING"]
    assert timeout <= time.monotonic() - begin < timeout + 10  # the gateway would continue for minutes


def test_waiting_ends_in_time(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    with pytest.raises(WaitTimeoutError, match=r"r1 has not ended within 0.3 s, it is RUNNING") as late:
        client.wait("r1", timeout=0.3)
    assert late.value.snapshot == RUNNING
    assert isinstance(late.value, TimeoutError)


def test_waiting_for_an_answer_that_never_begins_ends_in_time(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, Answer(headers={"content-type": "text/event-stream"}, chunks=silence))
    with pytest.raises(WaitTimeoutError, match=r"has not ended within 0.3 s$") as late:
        client.wait("r1", timeout=0.3)
    assert late.value.snapshot is None


def test_the_end_has_everything(gateway: ScriptedGateway, client: Client) -> None:
    done = snapshot("COMPLETED", 3, task_records={"greet": {"output": "hello"}})
    gateway.on("GET", WATCH, streams(event(PENDING), event(done), then=silence))
    assert client.wait("r1") == done
    assert ("include", "records") in gateway.requests[0].query


def test_waiting_survives_a_restart_of_the_gateway(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(client.wait("r1", timeout=60)))
    seen = client.watch("r1")
    waiting.start()
    assert next(seen) == RUNNING
    gateway.stop()
    with socket.create_server(("127.0.0.1", gateway.port)) as listening:
        listening.settimeout(30)
        listening.accept()[0].close()  # one attempt fails
    gateway.on("GET", WATCH, streams(event(DONE), then=silence))
    gateway.start()
    waiting.join(30)
    assert found == [DONE]
    assert list(seen) == [DONE]


def test_a_gateway_that_does_not_come_back_is_given_up(gateway: ScriptedGateway) -> None:
    gateway.on("GET", WATCH, streams(event(RUNNING), then=silence))
    with Client(gateway.url, retries=0, reconnect=0.5) as client:
        seen = client.watch("r1")
        assert next(seen) == RUNNING
        gateway.stop()
        begin = time.monotonic()
        with pytest.raises(GatewayUnreachableError):
            next(seen)
        assert 0.4 < time.monotonic() - begin < 10


def test_leaving_early_closes_the_connection(gateway: ScriptedGateway, client: Client) -> None:
    closed = threading.Event()

    async def until_closed() -> AsyncIterator[bytes]:
        try:
            while True:
                yield HEARTBEAT
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    gateway.on("GET", WATCH, streams(event(RUNNING), then=until_closed))
    for found in client.watch("r1"):
        assert found == RUNNING
        break
    client.close()
    gateway.stop()
    assert closed.wait(5)


def test_events_are_followed_to_the_end_of_the_run(gateway: ScriptedGateway, client: Client) -> None:
    def page(*versions: int) -> Answer:
        return says({"events": [{"version": one} for one in versions], "version": versions[-1], "next_after": None})

    nothing = says({"events": [], "version": 4, "next_after": None})
    gateway.on("GET", "/runs/r1/events", page(1, 2), page(3), page(4), nothing)
    gateway.on("GET", WATCH, streams(event(PENDING), cut_off=True), streams(event(RUNNING), event(DONE), then=silence))
    assert [one["version"] for one in client.events("r1", follow=True)] == [1, 2, 3, 4]
    after = [dict(one.query)["after"] for one in gateway.requests if one.path == "/runs/r1/events"]
    assert after == ["0", "2", "3", "4"]


def test_the_same_with_asyncio(gateway: ScriptedGateway) -> None:
    gateway.on(
        "GET", WATCH, streams(event(PENDING), cut_off=True), AWAY, streams(event(RUNNING), event(DONE), then=silence)
    )
    gateway.on("GET", "/runs/r2/watch", refuses("ERR-PYOCO-0102"))
    gateway.on("GET", "/runs/r2", says(RUNNING), says(DONE))
    gateway.on("GET", "/runs/r3/watch", streams(event(RUNNING), then=silence))

    async def go() -> None:
        async with AsyncClient(gateway.url, poll=0.05) as client:
            watched = [found async for found in client.watch("r1")]
            assert watched == [PENDING, RUNNING, DONE]
            assert await client.wait("r2") == DONE
            with pytest.raises(WaitTimeoutError):
                await client.wait("r3", timeout=0.3)
            async with aclosing(client.watch("r3")) as found:
                assert await anext(found) == RUNNING
            waiting = asyncio.create_task(client.wait("r3"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(go())


def test_many_wait_at_once(gateway: ScriptedGateway) -> None:
    for number in range(20):
        gateway.on("GET", f"/runs/{number}/watch", streams(event(RUNNING), event(DONE), then=silence))

    async def go() -> list[dict[str, Any]]:
        async with AsyncClient(gateway.url) as client:
            return await asyncio.gather(*(client.wait(str(number)) for number in range(20)))

    assert asyncio.run(go()) == [DONE] * 20
