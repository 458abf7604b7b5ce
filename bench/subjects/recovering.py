"""How long after a worker's SIGKILL its runs are seen to have ended, brought to their ends by another worker."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, Watch, completed, runs_a_task
from bench.flows import HANGS_VARIABLE
from bench.rows import Row, Size
from bench.serving import WORKER, Site, stand_here

RUNS = 8
WORKERS_SEC = 0.05
LONGER_SEC = 1.0
DEFAULT_ACK_WAIT_SEC = 30.0
SOON_SEC = 6.0


def rows(size: Size) -> Iterator[Row]:
    """Some runs in the hands of one worker, which is killed; durable. By the ack wait alone, then as it is."""
    ack_wait_sec, subject = size.choose(5.0, 2.0), "recovery, from a worker's SIGKILL to its runs' ends"
    times = _times(size, PYOCO_CONSUMER_ACK_WAIT_SEC=str(ack_wait_sec), PYOCO_WORKER_GONE_SEC="0")
    by_ack_wait = f"{subject} (AckWait {ack_wait_sec:.0f} s)"
    yield Row(by_ack_wait, "the median run", statistics.median(times), "s")
    yield Row(by_ack_wait, "the last run", max(times), "s", floor=ack_wait_sec, goal=ack_wait_sec + LONGER_SEC)
    times = _times(size)
    as_it_is = f"{subject} (AckWait {DEFAULT_ACK_WAIT_SEC:.0f} s, the worker is missed by the gateway)"
    yield Row(as_it_is, "the median run", statistics.median(times), "s")
    yield Row(as_it_is, "the last run", max(times), "s", goal=SOON_SEC)


def _times(size: Size, **env: str) -> list[float]:
    times = list[float]()
    for _ in range(size.choose(3, 1)):  # it depends on when the worker last said that it is still at it
        with stand_here() as stand:
            site = Site(stand, env=env)
            site.start_worker(env={HANGS_VARIABLE: "1"})
            times += asyncio.run(_recovered(site))
    return times


async def _recovered(site: Site) -> list[float]:
    asker = Asker(site.port)
    run_ids = await asker.submit_many("hanging", RUNS, RUNS)
    watches = [await Watch.open(site.port, run_id) for run_id in run_ids]
    await asyncio.gather(*(watch.until(runs_a_task) for watch in watches))
    site.start_worker(f"{WORKER}-2")
    while len(await asker.workers()) < 2:  # noqa: ASYNC110 the gateway has no event for it
        await asyncio.sleep(WORKERS_SEC)
    ends = [asyncio.create_task(watch.until(completed)) for watch in watches]
    began = time.perf_counter()
    site.stand.kill(WORKER)
    times = [ended_at - began for ended_at in await asyncio.gather(*ends)]
    for watch in watches:
        watch.close()
    return times
