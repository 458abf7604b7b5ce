"""Very many who watch at once, and a gateway with hardly a moment for each."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from pyoco_server.app.ports import Snapshots, StoredSnapshot, UnavailableError
from pyoco_server.gateway.patience import TRIES, patiently
from pyoco_server.gateway.services import Services
from pyoco_server.gateway.shared_reads import SharedReads
from tests.adapters.nats_server import NatsServer
from tests.gateway.sse import watching
from tests.gateway.stand import Stand, settings_for, submit, unique
from tests.waiting import wait_until


class Store:
    """Something to read, slowly; counts who asks."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0
        self.let_go = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        seen = self.value
        await self.let_go.wait()
        return seen


def test_those_who_come_together_share_a_read_that_is_not_older_than_they_are() -> None:
    async def body() -> None:
        store, reads = Store(), SharedReads[int]()
        first = asyncio.create_task(reads.read("run", store.read))
        await wait_until(lambda: store.reads == 1)
        store.value = 1  # what the others must see: it was there before they came
        others = [asyncio.create_task(reads.read("run", store.read)) for _ in range(1_000)]
        elsewhere = asyncio.create_task(reads.read("another", store.read))
        await asyncio.sleep(0)
        store.let_go.set()
        assert await first == 0
        assert set(await asyncio.gather(*others)) == {1}
        assert await elsewhere == 1
        assert store.reads == 3
        assert not reads._next
        assert not reads._under_way

    asyncio.run(body())


def test_one_who_leaves_takes_nothing_away_from_the_others() -> None:
    async def body() -> None:
        store, reads = Store(), SharedReads[int]()
        leaving = asyncio.create_task(reads.read("run", store.read))
        staying = asyncio.create_task(reads.read("run", store.read))
        await wait_until(lambda: store.reads == 1)
        leaving.cancel()
        store.let_go.set()
        assert await staying == 0
        assert leaving.cancelled()

    asyncio.run(body())


def test_a_read_that_fails_fails_for_all_who_share_it_and_for_nobody_else() -> None:
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


def asked(read: Callable[[], Awaitable[str]]) -> tuple[int, bool]:
    """How often it is asked, and whether it succeeds in the end."""
    times = 0

    async def counting() -> str:
        nonlocal times
        times += 1
        return await read()

    async def body() -> bool:
        try:
            return await patiently(counting) == "here"
        except UnavailableError:
            return False

    succeeds = asyncio.run(body())
    return times, succeeds


def test_an_outage_is_told_at_once() -> None:
    async def away() -> str:
        raise UnavailableError("there is no connection")

    assert asked(away) == (1, False)


def test_an_answer_that_does_not_come_in_time_is_an_outage_if_we_had_time_to_look() -> None:
    async def silent() -> str:
        await asyncio.sleep(0.5)
        raise UnavailableError("no answer for half a second")

    assert asked(silent) == (1, False)


def test_no_answer_says_nothing_while_we_are_too_busy_to_look() -> None:
    busy = [True, True, False]

    async def behind_others() -> str:
        if busy.pop(0):
            time.sleep(0.3)  # noqa: ASYNC251 this is what is tried: others have the loop
            raise UnavailableError("no answer in time")
        return "here"

    assert asked(behind_others) == (3, True)


def test_it_is_not_tried_for_ever() -> None:
    async def behind_others() -> str:
        time.sleep(0.3)  # noqa: ASYNC251 this is what is tried: others have the loop
        raise UnavailableError("no answer in time")

    assert asked(behind_others) == (TRIES, False)


class Gathering:
    """Snapshots that are read when so many watch, as if that took long; counts the reads."""

    def __init__(self, given: Services, many: int) -> None:
        self._given = given
        self._many = many
        self.reads = 0

    async def read(self, run_id: str) -> StoredSnapshot | None:
        self.reads += 1
        await wait_until(lambda: self._given.hub.count == self._many)
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
        run_id = submit(client, tag=unique("nobody"))
        services = stand.services
        gathering = Gathering(services, many)
        stand.app.state.services = dataclasses.replace(services, snapshots=cast("Snapshots", gathering))
        assert asyncio.run(come(stand.url, run_id, lambda: stand.call(be_busy))) == {"PENDING"}
        stand.app.state.services = services
        assert gathering.reads == 2, "one for the first, and one for all who came while it was under way"
