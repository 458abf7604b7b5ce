"""The time from the request of a cancel until a watcher sees the end of a cooperative run."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, Watch, runs_a_task
from bench.peers.measuring import percentile
from bench.rows import Row, Size
from bench.serving import one_site

P99_MS_AT_MOST = 50.0
WARM_UP = 5
FLOWS = {"held": "a coroutine", "held-thread": "a thread that looks every 2 ms"}


def rows(size: Size) -> Iterator[Row]:
    """Coroutines and threads, durable."""
    with one_site() as site:
        for flow, kind in FLOWS.items():
            times = asyncio.run(_cancelled(site.port, flow, size.choose(200, 20)))
            subject = "cancel, from the request to CANCELLED seen"
            yield Row(subject, f"{kind}, p50", statistics.median(times), "ms")
            yield Row(subject, f"{kind}, p99", percentile(times, 0.99), "ms", goal=P99_MS_AT_MOST)


async def _cancelled(port: int, flow: str, count: int) -> list[float]:
    asker = Asker(port)
    return [await _one(asker, flow) for _ in range(count + WARM_UP)][WARM_UP:]


async def _one(asker: Asker, flow: str) -> float:
    run_id = await asker.submit(flow)
    watch = await Watch.open(asker.port, run_id)
    await watch.until(runs_a_task)
    ended = asyncio.create_task(watch.until(lambda snapshot: bool(snapshot["status"] == "CANCELLED")))
    await asyncio.sleep(0)
    began = time.perf_counter()
    await asker.http.ask("POST", f"/runs/{run_id}/cancel")
    ended_at = await ended
    watch.close()
    return (ended_at - began) * 1e3
