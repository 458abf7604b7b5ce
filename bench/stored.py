"""Sites with many ended runs in their lists, for those who measure how anything depends on how many there are."""

import asyncio
import json
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.asking import Asker, completed
from bench.command import PROBLEMS
from bench.floor import SNAPSHOTS, connected
from bench.peers.stand import Stand
from bench.serving import GATEWAY, WORKER, Site
from pyoco_server.adapters.nats_server import NatsServer

EVERY_SEC = 0.5
AT_A_TIME = 500
ON_THE_WAY = 8
"""So many times as many may be sent before the server has said that the oldest of them are stored."""
LOOK_SEC = 0.2
MOST_SEC = 300.0
"""No site is filled for longer, and no gateway waited for."""
_ID, _AGO = "run_id", ("submitted_at", "updated_at", "heartbeat_at")
_SUBJECT = "$KV.pyoco_runs."


class Filled(NamedTuple):
    """A site whose list has so many runs."""

    size: int
    site: Site
    middle: float
    """When the run in the middle of the list was submitted."""
    filled_sec: float
    """How long it took to write them."""
    indexed_sec: float
    """From the start of a gateway that has no index to its first answer: it takes in all that is there before."""
    started_sec: float
    """The same with the index it made then."""


def filled_sites(stand: Stand, sizes: Sequence[int]) -> tuple[list[Filled], str]:
    """One site for each size, on one stand; and why there is none for the last sizes, if so.

    One run was really run. The others are its snapshot once more, stored as a worker stores it, with ids and times of
    their own: a list is made of snapshots, and knows nothing else. They are written while the gateway is away, into the
    store of its NATS server. What is on the disk when is of no concern to those who read, so nothing is synced.
    """
    real, filled = _real_snapshot(stand), list[Filled]()
    for size in sizes:
        try:
            filled.append(_filled(stand, size, real))
        except PROBLEMS as error:
            stand.kill(f"{GATEWAY}-{size}")  # it must not run during a measurement
            if not filled:
                raise
            return filled, f"; {size:,} could not be measured: {str(error) or f'it took more than {MOST_SEC:.0f} s'}"
    return filled, ""


def _filled(stand: Stand, size: int, real: dict[str, Any]) -> Filled:
    site = Site(stand, name=f"-{size}", durability="fast")
    site.stop()
    filled_sec = asyncio.run(_fill(site, size, real))
    site.forget_index()
    indexed_sec = _started(site, size)
    site.stop()
    return Filled(
        size, site, real["submitted_at"] - size * EVERY_SEC / 2, filled_sec, indexed_sec, _started(site, size)
    )


def _real_snapshot(stand: Stand) -> dict[str, Any]:
    site = Site(stand, name="-real", durability="fast")
    site.start_worker()
    real = asyncio.run(_one_real_run(site))
    stand.end(f"{WORKER}-real")
    site.stop()
    return real


async def _one_real_run(site: Site) -> dict[str, Any]:
    asker = Asker(site.port)
    run_id = await asker.submit("three")
    await asker.until(run_id, completed, pause_sec=LOOK_SEC)
    async with connected(site.nats_url) as connection:
        stored = await connection.jetstream().get_last_msg(SNAPSHOTS, f"{_SUBJECT}{run_id}")
    snapshot: dict[str, Any] = json.loads(stored.data)
    return snapshot


def _started(site: Site, size: int) -> float:
    """The seconds a gateway needs to answer, knowing all runs."""
    began = time.perf_counter()
    site.start(MOST_SEC)
    took = time.perf_counter() - began
    if (known := asyncio.run(Asker(site.port).known())) != size:
        raise RuntimeError(f"the gateway knows {known:,} of {size:,} runs when it answers")
    return took


async def _fill(site: Site, size: int, real: dict[str, Any]) -> float:
    """Write what is missing; the seconds that took."""
    began = time.perf_counter()
    async with (
        NatsServer(site.data / "nats", durability="fast") as server,
        connected(server.url) as connection,
        asyncio.timeout(MOST_SEC),
    ):
        js, on_the_way = connection.jetstream(), deque[asyncio.Task[Any]]()
        missing = size - await _stored(js)
        for number, (run_id, content) in enumerate(_copies(real, missing), 1):
            if number % AT_A_TIME and number < missing:
                await connection.publish(_SUBJECT + run_id, content)
                continue
            # What was sent before is stored before: one answer is enough for all of them.
            on_the_way.append(asyncio.create_task(js.publish(_SUBJECT + run_id, content, timeout=MOST_SEC)))
            await asyncio.sleep(0)  # it is sent now, not after those behind it
            if len(on_the_way) >= ON_THE_WAY:
                await on_the_way.popleft()
        await asyncio.gather(*on_the_way)
        if (stored := await _stored(js)) != size:
            raise RuntimeError(f"{stored:,} of {size:,} snapshots were stored")
    return time.perf_counter() - began


async def _stored(js: Any) -> int:  # noqa: ANN401 nats-py has no types to speak of
    return int((await js.stream_info(SNAPSHOTS)).state.messages)


def _copies(real: dict[str, Any], count: int) -> Iterator[tuple[str, bytes]]:
    """The oldest first, as they would have been written."""
    rest = json.dumps({name: value for name, value in real.items() if name not in (_ID, *_AGO)})[1:]
    for number in range(count, 0, -1):
        run_id, back = uuid.uuid4().hex, number * EVERY_SEC
        times = "".join(f'"{name}": {real[name] - back}, ' for name in _AGO)
        yield run_id, f'{{"{_ID}": "{run_id}", {times}{rest}'.encode()
