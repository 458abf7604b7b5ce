"""From 1 to 10,000 runs in flight: submitted together, or at work while others come and go."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker, completed, runs_a_task
from bench.ends import ends_of_runs
from bench.growth.curves import Bounded, Plot, Points
from bench.rows import Size
from bench.serving import IN_FLIGHT, WORKER, Meter, Site, one_site
from bench.subjects.holding import AT_A_TIME, idle_percent

SIZES = (1, 10, 100, 1_000, 10_000)
QUICK_SIZES = SIZES[:3]
AT_LEAST = 1_000
"""So many runs are measured at every size, in as many goes as that takes."""
CONNECTIONS = 64
LOOK_SEC, SELDOM_SEC = 0.002, 0.25


def together(size: Size) -> Iterator[Plot]:
    """Submitted together."""
    at_least, bounded = size.choose(AT_LEAST, 100), Bounded()
    cpu, wall, median = Points(), Points(), Points()
    with one_site() as site:
        asyncio.run(_bursts(site, AT_A_TIME, 5))
        for count in size.choose(SIZES, QUICK_SIZES):
            measured = bounded.at(count, _bursts(site, count, max(1, at_least // count)))
            if measured is None:
                break
            for curve, figure in zip((cpu, wall, median), measured, strict=True):
                curve.append((count, figure))
    note = f"one worker with {IN_FLIGHT} slots, durable; the client is not counted{bounded.note}"
    of, curves = "runs submitted together", {"CPU ms a run": cpu, "ms from one end to the next": wall}
    yield Plot("in-flight-cost", "three-step runs submitted together: cost of a run", of, "ms", curves, note)
    title = "three-step runs submitted together: from submission to end"
    note += "; what is not in one of the slots waits in the queue"
    yield Plot("in-flight-latency", title, of, "ms", {"median": median}, note)


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


def at_work(size: Size) -> Iterator[Plot]:
    """At work, while others come and go."""
    percent, latency, bounded = Points(), Points(), Bounded()
    for count in size.choose(SIZES[1:], QUICK_SIZES[1:]):
        env = {"PYOCO_CONSUMER_MAX_ACK_PENDING": str(2 * count + IN_FLIGHT)}
        with one_site(concurrency=count + IN_FLIGHT, env=env) as site:
            measured = bounded.at(count, _held(site, count, size))
            site.stand.kill(WORKER)  # it would hand back its runs one by one
        if measured is None:
            break
        percent.append((count, measured[0]))
        latency.append((count, measured[1]))
    of, title = "runs whose tasks are at work", "runs at work in which nothing happens: CPU of all processes"
    note = f"one worker with a slot for each, durable{bounded.note}"
    yield Plot("at-work-cpu", title, of, "% of one core", {"CPU": percent}, note)
    title = "a three-step run beside them: from submission to its end seen"
    yield Plot("at-work-latency", title, of, "ms", {"median": latency}, note)


async def _held(site: Site, count: int, size: Size) -> tuple[float, float]:
    """The percentage of one core, and the milliseconds of a run beside them."""
    await _hold(site, count)
    return await idle_percent(site, size.choose(10.0, 3.0)), await _latency(site, size.choose(100, 10))


async def _hold(site: Site, count: int) -> None:
    asker = Asker(site.port)
    run_ids = await asker.submit_many("held", count, AT_A_TIME)
    for run_id in reversed(run_ids[-2 * IN_FLIGHT :]):
        try:
            await asker.until(run_id, runs_a_task, pause_sec=SELDOM_SEC)
        except TimeoutError as error:
            raise TimeoutError(f"of those submitted, one is not at work: {error}") from error


async def _latency(site: Site, count: int) -> float:
    asker, times = Asker(site.port), []
    for _ in range(count):
        began = time.perf_counter()
        await asker.until(await asker.submit("three"), completed, pause_sec=LOOK_SEC)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
