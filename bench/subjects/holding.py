"""The cost of runs that wait for input, and of runs whose tasks run, while nothing happens."""

import asyncio
from collections.abc import Iterator

from bench.asking import Asker, runs_a_task, waits
from bench.rows import Row, Size
from bench.serving import GATEWAY, NATS, WORKER, Meter, Site, one_site

AT_A_TIME = 16
LOOK_SEC = 0.05


def rows(size: Size) -> Iterator[Row]:
    """Waiting, then running; durable."""
    yield from _held("waiting", size.choose(10_000, 300), size)
    yield from _held("running", size.choose(1_000, 100), size)


def _held(kind: str, count: int, size: Size) -> Iterator[Row]:
    env = {"PYOCO_CONSUMER_MAX_ACK_PENDING": str(2 * count)}
    concurrency = count + AT_A_TIME if kind == "running" else AT_A_TIME
    with one_site(concurrency=concurrency, env=env) as site:
        warm = size.choose(100, 10)
        asyncio.run(_hold(site, kind, warm))
        before = asyncio.run(idle_percent(site, size.choose(10.0, 2.0)))
        meter = Meter(site.stand)
        asyncio.run(_hold(site, kind, count - warm))
        percent = asyncio.run(idle_percent(site, size.choose(10.0, 2.0)))
        subject = f"{count:,} runs that are {kind}"
        yield Row(subject, "CPU of all processes, of one core", percent, "%", note=f"with {warm}: {before:.1f} %")
        grown = meter.grown_kib()
        site.stand.kill(WORKER)  # it would hand back its runs one by one
        yield Row(subject, "memory a run, all processes", sum(grown.values()) / (count - warm), "KiB")
        for role in (GATEWAY, NATS, WORKER):
            yield Row(subject, f"  of it {role}", grown[role] / (count - warm), "KiB")


async def _hold(site: Site, kind: str, count: int) -> None:
    """So many more, and all of them as they shall be."""
    asker = Asker(site.port)
    run_ids = await asker.submit_many("held" if kind == "running" else "waiting", count, AT_A_TIME)
    for run_id in reversed(run_ids):
        await asker.until(run_id, runs_a_task if kind == "running" else waits, pause_sec=LOOK_SEC)


async def idle_percent(site: Site, seconds: float) -> float:
    """Return the load of all processes in percent of one core without requests, after some time to settle."""
    await asyncio.sleep(seconds / 3)
    meter = Meter(site.stand)
    await asyncio.sleep(seconds)
    return meter.used_percent()
