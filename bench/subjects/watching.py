"""Many who watch one run: how long until the last of them has seen a change, and what a watcher costs."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, Watch
from bench.rows import Row, Size
from bench.serving import GATEWAY, Meter, Site, one_site

WATCHERS = (100, 1_000)
AT_REST_SEC = 0.5


def rows(size: Size) -> Iterator[Row]:
    """One change that is sent to all."""
    most = str(2 * max(WATCHERS))
    with one_site(workers=0, env={"PYOCO_WATCH_MAX_PER_CLIENT": most, "PYOCO_WATCH_MAX_CONNECTIONS": most}) as site:
        asyncio.run(_watched(site, 10))
        for watchers in WATCHERS:
            samples = [asyncio.run(_watched(site, watchers)) for _ in range(size.choose(5, 2))]
            last, cpu, kib = (statistics.median(figures) for figures in zip(*samples, strict=True))
            subject = f"{watchers:,} watchers of one run"
            yield Row(subject, "a change, until the last has seen it", last, "ms")
            yield Row(subject, "CPU of the gateway, a watcher and change", cpu, "ms")
            yield Row(subject, "memory of the gateway, a watcher", kib, "KiB")


async def _watched(site: Site, watchers: int) -> tuple[float, float, float]:
    """Milliseconds until the last has seen a cancel; of the gateway, milliseconds and kibibytes a watcher.

    No worker takes the run, so that nothing else changes it.
    """
    asker = Asker(site.port)
    run_id = str((await asker.http.ask("POST", "/runs", {"flow_name": "three", "tag": "unserved"}))["run_id"])
    meter = Meter(site.stand)
    watches = [await Watch.open(site.port, run_id) for _ in range(watchers)]
    await asyncio.gather(*(watch.event() for watch in watches))
    each = meter.grown_kib()[GATEWAY] / watchers
    seen = [asyncio.create_task(watch.event()) for watch in watches]
    await asyncio.sleep(AT_REST_SEC)
    meter, began = Meter(site.stand), time.perf_counter()
    await asker.http.ask("POST", f"/runs/{run_id}/cancel")
    await asyncio.gather(*seen)
    took = (time.perf_counter() - began) * 1e3
    cpu = meter.used_ms()[GATEWAY] / watchers
    for watch in watches:
        watch.close()
    return took, cpu, each
