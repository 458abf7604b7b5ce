"""The time from the resume of a waiting run until a watcher sees its end."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, Watch, completed, waits
from bench.peers.measuring import percentile
from bench.rows import Row, Size
from bench.serving import one_site

WARM_UP = 5


def rows(size: Size) -> Iterator[Row]:
    """A wait and one no-op step behind it, durable."""
    with one_site() as site:
        times = asyncio.run(_resumed(site.port, size.choose(200, 20)))
        subject = "resume, from the request to COMPLETED seen (a no-op step in between)"
        yield Row(subject, "p50", statistics.median(times), "ms")
        yield Row(subject, "p99", percentile(times, 0.99), "ms")


async def _resumed(port: int, count: int) -> list[float]:
    asker = Asker(port)
    return [await _one(asker) for _ in range(count + WARM_UP)][WARM_UP:]


async def _one(asker: Asker) -> float:
    run_id = await asker.submit("waiting")
    watch = await Watch.open(asker.port, run_id)
    await watch.until(waits)
    ended = asyncio.create_task(watch.until(completed))
    await asyncio.sleep(0)
    began = time.perf_counter()
    await asker.http.ask("POST", f"/runs/{run_id}/nodes/approval/resume", {"input": {"by": "bench"}})
    ended_at = await ended
    watch.close()
    return (ended_at - began) * 1e3
