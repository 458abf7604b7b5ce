"""Watchers hear of a change when it is announced, and not only when the index has taken it in."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pyoco_server.adapters.memory.snapshots import MemorySnapshotFeed, MemorySnapshots
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.ports import SnapshotChange, StoredSnapshot, UnavailableError
from pyoco_server.gateway.watching import MOST_LOOKS, Watcher, WatchHub
from tests.adapters.nats_server import NatsServer
from tests.gateway.sse import watching
from tests.gateway.stand import Stand, settings_for, submit, until
from tests.waiting import wait_until


class Store:
    """A run's snapshot, which takes a while to look at; counts the looks."""

    def __init__(self) -> None:
        self.revision = 1
        self.looks = 0
        self.error: Exception | None = None
        self.let_go = asyncio.Event()

    async def look(self) -> StoredSnapshot | None:
        self.looks += 1
        seen = self.revision
        await self.let_go.wait()
        if self.error is not None:
            raise self.error
        return StoredSnapshot("r", json.dumps({"n": seen}).encode(), 0, seen) if seen else None


async def shown(watcher: Watcher) -> int | None:
    told = await watcher.next(0.01)
    return None if told is None else int(json.loads(bytes(told.snapshot(records=False)))["n"])


def test_one_look_serves_all_who_watch_and_all_that_was_announced_before_it() -> None:
    async def body() -> None:
        hub, store = WatchHub(most=10, most_per_client=10), Store()
        with hub.watch("r", "a") as one, hub.watch("r", "b") as other:
            store.let_go.set()
            hub.announced("r", store.look)
            store.revision = 2
            hub.announced("r", store.look)
            await wait_until(lambda: not hub._looking)
            assert [await shown(one), await shown(other), store.looks] == [2, 2, 1]
            assert not hub._announced

    asyncio.run(body())


def test_what_is_announced_during_a_look_is_looked_at_once_more() -> None:
    async def body() -> None:
        hub, store = WatchHub(most=10, most_per_client=10), Store()
        with hub.watch("r", "a") as watcher:
            hub.announced("r", store.look)
            await wait_until(lambda: store.looks == 1)
            store.revision = 3
            for _ in range(5):
                hub.announced("r", store.look)
            store.let_go.set()
            await wait_until(lambda: not hub._looking)
            assert [await shown(watcher), store.looks] == [3, 2]

    asyncio.run(body())


def test_what_cannot_be_looked_at_is_left_to_the_index() -> None:
    async def body() -> None:
        hub, store = WatchHub(most=10, most_per_client=10), Store()
        store.let_go.set()
        with hub.watch("r", "a") as watcher:
            store.error = UnavailableError("no answer")
            hub.announced("r", store.look)
            await wait_until(lambda: not hub._looking)
            store.error, store.revision = None, 0  # it was removed
            hub.announced("r", store.look)
            await wait_until(lambda: not hub._looking)
            assert [await shown(watcher), store.looks] == [None, 2]

    asyncio.run(body())


def test_a_look_that_crashes_is_told_with_its_id_and_those_who_watch_hear_of_what_comes_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        hub, store = WatchHub(most=10, most_per_client=10), Store()
        store.let_go.set()
        with hub.watch("r", "a") as watcher:
            store.error = RuntimeError("nobody thought of this")
            hub.announced("r", store.look)
            await wait_until(lambda: not hub._looking)
            [told] = [record for record in caplog.records if record.levelno == logging.ERROR]
            assert told.__dict__["err_id"] == "ERR-PYOCO-0106"
            assert told.__dict__["run_id"] == "r"
            assert told.exc_info is not None
            assert told.exc_info[1] is store.error
            hub.tell(SnapshotChange("r", b'{"n": 1}', 1))  # by the index
            assert await shown(watcher) == 1
            store.error, store.revision = None, 2
            hub.announced("r", store.look)
            await wait_until(lambda: not hub._looking)
            assert [await shown(watcher), store.looks] == [2, 2]

    asyncio.run(body())


def test_when_very_many_runs_change_at_once_the_rest_is_left_to_the_index() -> None:
    async def body() -> None:
        hub, store = WatchHub(most=10, most_per_client=10), Store()
        for number in range(3 * MOST_LOOKS):
            hub.announced(f"r{number}", store.look)
        await wait_until(lambda: store.looks == MOST_LOOKS)
        store.let_go.set()
        await wait_until(lambda: not hub._looking)
        assert store.looks == MOST_LOOKS

    asyncio.run(body())


def test_those_who_left_are_announced_nothing() -> None:
    async def body() -> None:
        snapshots, told = MemorySnapshots(), list[str]()

        def note(name: str) -> Callable[[], None]:
            return lambda: told.append(name)

        async def write(run_id: str) -> None:
            await snapshots.write(run_id, b'{"log_position":1}', position=1)

        async with SqliteRunIndex() as index:
            keeper = IndexKeeper(MemorySnapshotFeed(snapshots), index, lambda _: None)
            with keeper.announcing("r", note("one")):
                with keeper.announcing("r", note("other")):
                    await write("r")
                    await write("else")
                assert sorted(told) == ["one", "other"]
                await write("r")
            assert told[2:] == ["one"]
            await write("r")
            assert told[3:] == []
            assert not keeper._hearing

    asyncio.run(body())


def test_a_cancel_is_seen_to_its_end_while_the_index_stands_still(nats: NatsServer, tmp_path: Path) -> None:
    with Stand(settings_for(nats.url, tmp_path)) as stand, stand.client() as client:
        run_id = submit(client, "long")
        until(client, run_id, lambda snapshot: snapshot["tasks"].get("sleeps") == "RUNNING")
        let_go, index = threading.Event(), stand.services.index
        assert isinstance(index, SqliteRunIndex)

        async def watched() -> list[str]:
            async with watching(stand.url, run_id) as mine:
                seen = [(await mine.next())["snapshot"]["status"]]
                await asyncio.to_thread(client.post, f"/runs/{run_id}/cancel")
                while seen[-1] != "CANCELLED":
                    seen.append((await mine.next())["snapshot"]["status"])
                return seen

        index._writing.submit(let_go.wait)  # nothing is taken into the index meanwhile
        try:
            seen = asyncio.run(asyncio.wait_for(watched(), 30))
        finally:
            let_go.set()
        assert seen[0] == "RUNNING"
        assert set(seen) <= {"RUNNING", "CANCELLING", "CANCELLED"}
