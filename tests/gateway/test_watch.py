"""``GET /runs/{run_id}/watch``: REQ-0019."""

import asyncio
import contextlib
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.services import Services
from tests.adapters.real_nats import NatsServer
from tests.gateway.sse import watch, watching
from tests.gateway.stand import Stand, check_error, ended, eventually, settings_for, submit, unique, until, waiting
from tests.waiting import wait_until


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
def test_a_run_is_watched_to_its_end(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    with watch(client, run_id) as events:
        first = next(events)
        assert (first.name, first.data["run_id"], first.status) == ("snapshot", run_id, "RUNNING")
        assert first.data["ts"] == pytest.approx(time.time(), abs=30)
        assert "task_records" not in first.data["snapshot"]
        client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 1})
        sent = [first]
        while sent[-1].name != "snapshot" or sent[-1].status != "COMPLETED":
            sent.append(next(events))
    versions = [event.data["snapshot"]["version"] for event in sent if event.name == "snapshot"]
    assert versions == sorted(versions)


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
@pytest.mark.parametrize("include", ["records", "full", "all"])
def test_records_are_told_to_those_who_ask(client: httpx.Client, include: str) -> None:
    run_id = submit(client)
    ended(client, run_id)
    with watch(client, run_id, include=include) as events:
        assert set(next(events).data["snapshot"]["task_records"]) == {"greet", "end"}


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
def test_a_client_that_reconnects_is_sent_what_is_new(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    known = waiting(client, run_id)["updated_at"]
    with watch(client, run_id, since=known) as events:
        client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 1})
        first = next(event for event in events if event.name == "snapshot")
        assert first.data["snapshot"]["updated_at"] > known
    final = ended(client, run_id)["updated_at"]
    with watch(client, run_id, since=final, timeout_sec=1) as events:
        assert [event.name for event in events] == ["heartbeat"]


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
def test_a_quiet_stream_has_heartbeats_and_ends_in_time(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    began = time.monotonic()
    with watch(client, run_id, timeout_sec=4) as events:
        sent = [*events]
    assert time.monotonic() - began > 3.5
    first, *others = [event.name for event in sent]
    assert (first, set(others)) == ("snapshot", {"heartbeat"})
    assert len(others) <= 2  # after 3 seconds and at the end; one on a machine that stalls in between
    assert set(sent[1].data) == {"run_id", "ts"}


@pytest.mark.spec("004 REQ-0019")
@pytest.mark.parametrize(
    "query",
    [
        {"timeout_sec": 0.9},
        {"timeout_sec": 601},
        {"timeout_sec": "nan"},
        {"timeout_sec": "x"},
        {"since": "x"},
        {"since": "nan"},
        {"include": "x"},
    ],
    ids=str,
)
def test_a_watch_that_is_not_valid(client: httpx.Client, query: dict[str, Any]) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    check_error(client.get(f"/runs/{run_id}/watch", params=query), 422, "ERR-PYOCO-0002")


def test_a_client_that_disconnects_frees_its_place_at_once(stand: Stand, client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))

    async def body() -> None:
        before = stand.services.hub.streams.count
        async with watching(stand.url, run_id) as mine:
            await mine.next()
            assert stand.services.hub.streams.count == before + 1
        await wait_until(lambda: stand.services.hub.streams.count == before)

    asyncio.run(body())


def test_one_client_cannot_take_all_places(nats: NatsServer, tmp_path: Any) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="3", PYOCO_WATCH_MAX_CONNECTIONS="100")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("no-worker"))

        async def body() -> None:
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(3):
                    await (await stack.enter_async_context(watching(stand.url, run_id))).next()
                answer = await asyncio.to_thread(client.get, f"/runs/{run_id}/watch")
                check_error(answer, 429, "ERR-PYOCO-0102")
                assert int(answer.headers["Retry-After"]) >= 1
            await wait_until(lambda: stand.services.hub.streams.count == 0)

        asyncio.run(body())
        with watch(client, run_id) as events:
            assert next(events).status == "PENDING"


@contextlib.contextmanager
def deaf(url: str, run_id: str, count: int) -> Iterator[None]:
    """Connections that ask to watch and never read."""
    where, made = urlsplit(url), list[socket.socket]()
    try:
        for _ in range(count):
            sock = socket.socket()
            made.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect((where.hostname, where.port))
            sock.sendall(f"GET /runs/{run_id}/watch?include=records HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield
    finally:
        for sock in made:
            sock.close()


def test_a_client_that_does_not_read_holds_no_memory(stand: Stand, client: httpx.Client) -> None:
    """Ten clients that never read, and 200 snapshots of 100 kB for each: none of them is kept."""
    run_id = submit(client, tag=unique("no-worker"))
    hub, readers = stand.services.hub, 10

    async def notify(_given: Services) -> int:
        newest = 1_000_000
        body = json.dumps({"run_id": run_id, "updated_at": 1.0, "task_records": {"x": "y" * 100_000}}).encode()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(200):
            hub.notify(SnapshotChange(run_id, body + b" " * n, newest + n))
            await asyncio.sleep(0)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return used

    before = hub.streams.count
    with deaf(stand.url, run_id, readers):

        async def there() -> bool:
            return hub.streams.count == before + readers

        asyncio.run(eventually(there))
        used = stand.call(notify)
        assert used < readers * 500_000, f"{used / readers / 1e3:.0f} kB a reader"
        assert client.get(f"/runs/{run_id}").status_code == 200

    async def gone() -> bool:
        return hub.streams.count == before

    asyncio.run(eventually(gone))


def test_a_thousand_watch_one_run(nats: NatsServer, tmp_path: Any) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="2000")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("no-worker"))

        async def body() -> float:
            async with contextlib.AsyncExitStack() as stack:
                readers = []
                for _ in range(1_000):
                    reader = await stack.enter_async_context(watching(stand.url, run_id))
                    readers.append(reader)
                firsts = await asyncio.gather(*(reader.next() for reader in readers))
                assert {first["snapshot"]["status"] for first in firsts} == {"PENDING"}
                began = time.monotonic()
                await asyncio.to_thread(client.post, f"/runs/{run_id}/cancel")
                lasts = await asyncio.gather(*(reader.next() for reader in readers))
                took = time.monotonic() - began
                assert {last["snapshot"]["status"] for last in lasts} == {"CANCELLED"}
            return took

        took = asyncio.run(body())
        assert took < 60

        async def gone() -> bool:
            return stand.services.hub.streams.count == 0

        asyncio.run(eventually(gone))


def test_an_announced_change_is_sent_before_the_index_has_it(nats: NatsServer, tmp_path: Path) -> None:
    with Stand(settings_for(nats.url, tmp_path)) as stand, stand.client() as client:
        run_id = submit(client, "long")
        until(client, run_id, lambda snapshot: snapshot["tasks"].get("sleeps") == "RUNNING")
        release, index = threading.Event(), stand.services.index
        assert isinstance(index, SqliteRunIndex)

        async def watched() -> list[str]:
            async with watching(stand.url, run_id) as mine:
                seen = [(await mine.next())["snapshot"]["status"]]
                await asyncio.to_thread(client.post, f"/runs/{run_id}/cancel")
                while seen[-1] != "CANCELLED":
                    seen.append((await mine.next())["snapshot"]["status"])
                return seen

        index._writing.submit(release.wait)  # the index takes no change meanwhile
        try:
            seen = asyncio.run(asyncio.wait_for(watched(), 30))
        finally:
            release.set()
        assert seen[0] == "RUNNING"
        assert set(seen) <= {"RUNNING", "CANCELLING", "CANCELLED"}
