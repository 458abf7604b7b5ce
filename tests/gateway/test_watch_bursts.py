"""Very many clients that watch at once, and reads that they share."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from pyoco_server.app.ports import Snapshots, StoredSnapshot, UnavailableError
from pyoco_server.gateway.live.shared_reads import SharedReads
from pyoco_server.gateway.services import Services
from tests.adapters.real_nats import NatsServer
from tests.gateway.sse import watching
from tests.gateway.stand import Stand, settings_for, submit, unique
from tests.waiting import wait_until


class Store:
    """A value that takes a while to read; counts the reads."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.may_answer = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        seen = self.value
        await self.may_answer.wait()
        return seen


def test_callers_at_the_same_time_share_a_read_that_began_after_they_asked() -> None:
    async def body() -> None:
        store, reads = Store(), SharedReads[int]()
        first = asyncio.create_task(reads.read("run", store.read))
        await wait_until(lambda: store.reads == 1)
        store.value = 1  # the other callers must see this value
        others = [asyncio.create_task(reads.read("run", store.read)) for _ in range(1_000)]
        elsewhere = asyncio.create_task(reads.read("another", store.read))
        await asyncio.sleep(0)
        store.may_answer.set()
        assert await first == 0
        assert set(await asyncio.gather(*others)) == {1}
        assert await elsewhere == 1
        assert store.reads == 3
        assert not reads._next
        assert not reads._under_way

    asyncio.run(body())


def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    async def body() -> None:
        store, reads = Store(), SharedReads[int]()
        leaving = asyncio.create_task(reads.read("run", store.read))
        staying = asyncio.create_task(reads.read("run", store.read))
        await wait_until(lambda: store.reads == 1)
        leaving.cancel()
        store.may_answer.set()
        assert await staying == 0
        assert leaving.cancelled()

    asyncio.run(body())


def test_a_failed_read_fails_for_all_that_share_it_and_no_other() -> None:
    async def failing() -> int:
        raise UnavailableError("no answer")

    async def working() -> int:
        return 7

    async def body() -> None:
        reads = SharedReads[int]()
        ends = await asyncio.gather(*(reads.read("run", failing) for _ in range(3)), return_exceptions=True)
        assert [type(end) for end in ends] == [UnavailableError] * 3
        assert await reads.read("run", working) == 7

    asyncio.run(body())


class Gathering:
    """Snapshots that are read when so many watch, as if that took long; counts the reads."""

    def __init__(self, given: Services, many: int) -> None:
        self._given = given
        self._many = many
        self.reads = 0

    async def read(self, run_id: str) -> StoredSnapshot | None:
        self.reads += 1
        await wait_until(lambda: self._given.hub.streams.count == self._many)
        return await self._given.snapshots.read(run_id)


@pytest.mark.spec("004 REQ-0019")
def test_many_who_come_at_once_are_all_shown_the_run_and_ask_nats_a_few_times(nats: NatsServer, tmp_path: Path) -> None:
    """The gateway has no moment for anything while they come: most of their requests are there when it looks up."""
    many, long_sec = 200, 2.5

    async def come(url: str, run_id: str, hold_up: Callable[[], None]) -> set[str]:
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.to_thread(hold_up)
            readers = [await stack.enter_async_context(watching(url, run_id)) for _ in range(many)]
            firsts = await asyncio.gather(*(reader.next() for reader in readers))
            return {first["snapshot"]["status"] for first in firsts}

    async def be_busy(_given: Services) -> None:
        asyncio.get_running_loop().call_soon(time.sleep, long_sec)

    settings = settings_for(nats.url, tmp_path, PYOCO_WATCH_MAX_PER_CLIENT="2000")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag=unique("no-worker"))
        services = stand.services
        gathering = Gathering(services, many)
        stand.app.state.services = dataclasses.replace(services, snapshots=cast("Snapshots", gathering))
        assert asyncio.run(come(stand.url, run_id, lambda: stand.call(be_busy))) == {"PENDING"}
        stand.app.state.services = services
        # One if all requests were there before the first read began, else another one for those that came during it.
        assert gathering.reads in {1, 2}
