"""Sites with many ended runs in their lists, for those who measure how anything depends on how many there are."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bench.asking import Asker, completed
from bench.floor import SNAPSHOTS, connected
from bench.peers.stand import Stand
from bench.serving import Site

EVERY_SEC = 0.5
AT_A_TIME = 500
LOOK_SEC = 0.2
MOST_SEC = 900.0
_ID, _AGO = "run_id", ("submitted_at", "updated_at", "heartbeat_at")


class Filled(NamedTuple):
    """A site whose list has so many runs."""

    size: int
    site: Site
    middle: float
    """When the run in the middle of the list was submitted."""
    indexed_per_sec: float
    """How many changes a second the gateway took into its index while it had many to take."""


def filled_sites(stand: Stand, sizes: Sequence[int]) -> Iterator[Filled]:
    """One site for each size, on one stand.

    One run was really run. The others are its snapshot once more, stored as a worker stores it, with ids and times of
    their own: a list is made of snapshots, and knows nothing else. What is on the disk when is of no concern to those
    who read, so nothing is synced.
    """
    real: dict[str, Any] | None = None
    for size in sizes:
        site = Site(stand, name=f"-{size}", durability="fast")
        if real is None:
            site.start_worker()
            real = asyncio.run(_one_real_run(site))
        rate = asyncio.run(_fill(site, size, real))
        yield Filled(size, site, real["submitted_at"] - size * EVERY_SEC / 2, rate)


async def _one_real_run(site: Site) -> dict[str, Any]:
    asker = Asker(site.port)
    run_id = await asker.submit("three")
    await asker.until(run_id, completed, pause_sec=LOOK_SEC)
    async with connected(site.nats_url) as connection:
        stored = await connection.jetstream().get_last_msg(SNAPSHOTS, f"$KV.pyoco_runs.{run_id}")
    snapshot: dict[str, Any] = json.loads(stored.data)
    return snapshot


async def _fill(site: Site, size: int, real: dict[str, Any]) -> float:
    asker = Asker(site.port)
    missing = size - await asker.known()
    began = time.perf_counter()
    async with connected(site.nats_url) as connection:
        js = connection.jetstream()
        for number, body in enumerate(_copies(real, missing), 1):
            run_id, content = body
            subject = f"$KV.pyoco_runs.{run_id}"
            if number % AT_A_TIME and number < missing:
                await connection.publish(subject, content)
            else:  # what was sent before is stored before: one answer is enough for all, and the server is not flooded
                await js.publish(subject, content)
    while await asker.known() < size:
        if time.perf_counter() - began > MOST_SEC:
            raise TimeoutError(f"the gateway knows {await asker.known():,} of {size:,} runs after {MOST_SEC:.0f} s")
        await asyncio.sleep(LOOK_SEC)
    return missing / (time.perf_counter() - began)


def _copies(real: dict[str, Any], count: int) -> Iterator[tuple[str, bytes]]:
    rest = json.dumps({name: value for name, value in real.items() if name not in (_ID, *_AGO)})[1:]
    for number in range(1, count + 1):
        run_id, back = uuid.uuid4().hex, number * EVERY_SEC
        times = "".join(f'"{name}": {real[name] - back}, ' for name in _AGO)
        yield run_id, f'{{"{_ID}": "{run_id}", {times}{rest}'.encode()
