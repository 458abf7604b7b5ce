"""From 1 to 10,000 runs in flight: submitted together, or at work while others come and go."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, completed, runs_a_task
from bench.choosing import PROBLEMS
from bench.ends import ends_of_runs
from bench.growth.curves import Plot, Points
from bench.rows import Size
from bench.serving import IN_FLIGHT, WORKER, Meter, Site, one_site
from bench.subjects.holding import AT_A_TIME, idle_percent

SIZES = (1, 10, 100, 1_000, 10_000)
QUICK_SIZES = SIZES[:3]
AT_LEAST = 1_000
"""So many runs are measured at every size, in as many goes as that takes."""
CONNECTIONS = 64
LOOK_SEC, SELDOM_SEC = 0.002, 0.25


def plots(size: Size) -> Iterator[Plot]:
    """Both kinds."""
    yield from _together(size.choose(SIZES, QUICK_SIZES), size.choose(AT_LEAST, 100))
    yield from _beside(size.choose(SIZES[1:], QUICK_SIZES[1:]), size)


def _together(sizes: tuple[int, ...], at_least: int) -> Iterator[Plot]:
    cpu, wall, median = Points(), Points(), Points()
    with one_site() as site:
        asyncio.run(_bursts(site, AT_A_TIME, 5))
        for count in sizes:
            cpu_ms, wall_ms, median_ms = asyncio.run(_bursts(site, count, max(1, at_least // count)))
            cpu.append((count, cpu_ms))
            wall.append((count, wall_ms))
            median.append((count, median_ms))
    of, told = "runs submitted together", f"one worker with {IN_FLIGHT} slots, durable; the client is not counted"
    yield Plot(
        "in-flight-cost",
        "three-step runs submitted together: cost of a run",
        of,
        "ms",
        {"CPU ms a run": cpu, "ms from one end to the next": wall},
        told,
    )
    yield Plot(
        "in-flight-latency",
        "three-step runs submitted together: from submission to end",
        of,
        "ms",
        {"median": median},
        f"{told}; what is not in one of the slots waits in the queue",
    )


async def _bursts(site: Site, count: int, times: int) -> tuple[float, float, float]:
    """A run's milliseconds of processor time, of time by rate, and from submission to end (the median)."""
    asker, latencies, took = Asker(site.port), list[float](), 0.0
    async with ends_of_runs(site.nats_url) as ends:
        meter = Meter(site.stand)
        for number in range(1, times + 1):
            began = time.perf_counter()
            submitted = await _submit(asker, count)
            await ends.all_of(count * number)
            latencies += [(ends.at[run_id] - at) * 1e3 for run_id, at in submitted.items()]
            took += max(ends.at[run_id] for run_id in submitted) - began
        used = sum(meter.used_ms().values())
    runs = count * times
    return used / runs, took / runs * 1e3, statistics.median(latencies)


async def _submit(asker: Asker, count: int) -> dict[str, float]:
    """So many at once, and when each was sent."""
    sent: dict[str, float] = {}
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            at = time.perf_counter()
            sent[await asker.submit("three")] = at

    async with asyncio.TaskGroup() as group:
        for _ in range(min(CONNECTIONS, count)):
            group.create_task(work())
    return sent


def _beside(sizes: tuple[int, ...], size: Size) -> Iterator[Plot]:
    percent, latency, told = Points(), Points(), "one worker with a slot for each, durable"
    for count in sizes:
        env = {"PYOCO_CONSUMER_MAX_ACK_PENDING": str(2 * count + IN_FLIGHT)}
        with one_site(concurrency=count + IN_FLIGHT, env=env) as site:
            try:
                asyncio.run(_hold(site, count))
                percent.append((count, asyncio.run(idle_percent(site, size.choose(10.0, 3.0)))))
                latency.append((count, asyncio.run(_latency(site, size.choose(100, 10)))))
            except PROBLEMS as error:  # that it cannot be done is a figure, too
                told += f"; with {count:,} it could not be measured: {error}"
                break
            finally:
                site.stand.kill(WORKER)  # it would hand back its runs one by one
    of, title = "runs whose tasks are at work", "runs at work in which nothing happens: CPU of all processes"
    if percent:
        yield Plot("at-work-cpu", title, of, "% of one core", {"CPU": percent}, told)
    if latency:
        title = "a three-step run beside them: from submission to its end seen"
        yield Plot("at-work-latency", title, of, "ms", {"median": latency}, told)


async def _hold(site: Site, count: int) -> None:
    asker = Asker(site.port)
    run_ids = await asker.submit_many("held", count, AT_A_TIME)
    for run_id in reversed(run_ids[-2 * IN_FLIGHT :]):
        await asker.until(run_id, runs_a_task, pause_sec=SELDOM_SEC)


async def _latency(site: Site, count: int) -> float:
    asker, times = Asker(site.port), []
    for _ in range(count):
        began = time.perf_counter()
        await asker.until(await asker.submit("three"), completed, pause_sec=LOOK_SEC)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
