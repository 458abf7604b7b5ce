"""Watching a run: REQ-0019."""

import asyncio
import contextlib
import json
import socket
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.services import Services
from pyoco_server.gateway.watching import Told, WatchHub
from tests.adapters.nats_server import NatsServer
from tests.gateway.sse import watch, watching
from tests.gateway.stand import Stand, check_error, ended, eventually, settings_for, submit, unique, waiting
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
        told = [first]
        while told[-1].name != "snapshot" or told[-1].status != "COMPLETED":
            told.append(next(events))
    versions = [event.data["snapshot"]["version"] for event in told if event.name == "snapshot"]
    assert versions == sorted(versions)


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
@pytest.mark.parametrize("include", ["records", "full", "all"])
def test_records_are_told_to_those_who_ask(client: httpx.Client, include: str) -> None:
    run_id = submit(client)
    ended(client, run_id)
    with watch(client, run_id, include=include) as events:
        assert set(next(events).data["snapshot"]["task_records"]) == {"greet", "end"}


@pytest.mark.spec("004 REQ-0019", "004 §付録D GET /runs/{run_id}/watch")
def test_whoever_comes_back_is_told_what_is_new(client: httpx.Client) -> None:
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
    run_id = submit(client, tag=unique("nobody"))
    began = time.monotonic()
    with watch(client, run_id, timeout_sec=4) as events:
        told = [*events]
    assert 3.5 < time.monotonic() - began < 8
    assert [event.name for event in told] == ["snapshot", "heartbeat", "heartbeat"]
    assert set(told[1].data) == {"run_id", "ts"}


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
    run_id = submit(client, tag=unique("nobody"))
    check_error(client.get(f"/runs/{run_id}/watch", params=query), 422, "ERR-PYOCO-0002")


def test_whoever_leaves_frees_their_place_at_once(stand: Stand, client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("nobody"))

    async def body() -> None:
        before = stand.services.hub.count
        async with watching(stand.url, run_id) as mine:
            await mine.next()
            assert stand.services.hub.count == before + 1
        await wait_until(lambda: stand.services.hub.count == before, timeout=2)

    asyncio.run(body())


def test_one_client_cannot_take_all_places(nats: NatsServer, tmp_path: Any) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="3", PYOCO_WATCH_MAX_CONNECTIONS="100")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("nobody"))

        async def body() -> None:
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(3):
                    await (await stack.enter_async_context(watching(stand.url, run_id))).next()
                answer = await asyncio.to_thread(client.get, f"/runs/{run_id}/watch")
                check_error(answer, 429, "ERR-PYOCO-0102")
                assert int(answer.headers["Retry-After"]) >= 1
            await wait_until(lambda: stand.services.hub.count == 0)

        asyncio.run(body())
        with watch(client, run_id) as events:
            assert next(events).status == "PENDING"


def test_the_hub_has_a_limit_for_all_and_forgets_whoever_leaves() -> None:
    hub = WatchHub(most=2, most_per_client=2)
    with hub.watch("r1", "a"), hub.watch("r2", "b"):
        with pytest.raises(TooManyError), hub.watch("r3", "c"):
            pass
        assert hub.count == 2
    assert hub.count == 0
    assert not hub._watchers
    assert not hub._clients


def test_of_many_snapshots_a_slow_reader_is_shown_the_newest() -> None:
    async def body() -> None:
        hub = WatchHub(most=10, most_per_client=10)
        with hub.watch("r", "a") as slow, hub.watch("r", "a") as other:
            for n in range(100):
                hub.tell(SnapshotChange("r", msgspec.json.encode({"n": n, "updated_at": n, "task_records": {}}), n + 1))
            hub.tell(SnapshotChange("else", b"{}", 101))
            told = await slow.next(1)
            assert told is not None
            assert bytes(told.snapshot(records=False)) == b'{"n":99,"updated_at":99}'
            assert told.updated_at == 99
            assert await other.next(1) is told  # made once, whoever reads it
            hub.tell(SnapshotChange("r", b"{}", 99))  # an older one, that took longer
            assert await slow.next(0.01) is None

    asyncio.run(body())


def test_a_snapshot_somebody_else_wrote_is_told_as_it_is() -> None:
    assert Told(b'{"status":"RUNNING"}', 1).updated_at == 0.0
    foreign = b'{"updated_at":"x","task_records":{}}'
    assert bytes(Told(foreign, 1).snapshot(records=True)) == foreign


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
            sock.sendall(f"GET /runs/{run_id}/watch?include=records HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        yield
    finally:
        for sock in made:
            sock.close()


def test_whoever_does_not_read_holds_no_memory(stand: Stand, client: httpx.Client) -> None:
    """Ten readers that never read, told of 200 snapshots of 100 kB each: nothing of it is kept for them."""
    run_id = submit(client, tag=unique("nobody"))
    hub, readers = stand.services.hub, 10

    async def tell(_given: Services) -> int:
        newest = 1_000_000
        body = json.dumps({"run_id": run_id, "updated_at": 1.0, "task_records": {"x": "y" * 100_000}}).encode()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for n in range(200):
            hub.tell(SnapshotChange(run_id, body + b" " * n, newest + n))
            await asyncio.sleep(0)
        used = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return used

    before = hub.count
    with deaf(stand.url, run_id, readers):

        async def there() -> bool:
            return hub.count == before + readers

        asyncio.run(eventually(there))
        used = stand.call(tell)
        assert used < readers * 500_000, f"{used / readers / 1e3:.0f} kB a reader"
        assert client.get(f"/runs/{run_id}").status_code == 200

    async def gone() -> bool:
        return hub.count == before

    asyncio.run(eventually(gone))


def test_a_thousand_watch_one_run(nats: NatsServer, tmp_path: Any) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="2000")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("nobody"))

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
        assert took < 10

        async def gone() -> bool:
            return stand.services.hub.count == 0

        asyncio.run(eventually(gone))
