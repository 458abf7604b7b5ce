"""What a step adds to a run, when steps follow each other and when a thousand run side by side."""

import asyncio
import statistics
import time
from collections.abc import Iterator

from bench.asking import Asker
from bench.ends import ends_of_runs
from bench.floor import append_ms
from bench.rows import Row, Size
from bench.serving import Meter, Site, one_site

CHAIN, FAN = 100, 1_000


def rows(size: Size) -> Iterator[Row]:
    """A chain of 100 and a fan of 1,000, durable."""
    with one_site() as site:
        took, cpu = asyncio.run(whole_run(site, f"chain-{CHAIN}", size.choose(30, 5)))
        floor = asyncio.run(append_ms(site.durability, CHAIN * size.choose(10, 2)))
        subject = f"chain of {CHAIN} no-op steps, durable"
        note = "floor: one raw append a step, one after the other"
        yield Row(subject, "time a step", took / CHAIN, "ms", floor=floor, note=note)
        yield Row(subject, "CPU a step, all but the client", cpu / CHAIN, "ms")
        took, cpu = asyncio.run(whole_run(site, f"fan-{FAN}", size.choose(10, 2)))
        subject = f"fan-out of {FAN:,} no-op steps, durable"
        yield Row(subject, "time of the run", took, "ms")
        yield Row(subject, "time a step", took / FAN, "ms")
        yield Row(subject, "CPU a step, all but the client", cpu / FAN, "ms")


async def whole_run(site: Site, flow: str, count: int) -> tuple[float, float]:
    """Milliseconds from submission to end, the median, one after the other; milliseconds of processor time a run."""
    asker = Asker(site.port)
    async with ends_of_runs(site.nats_url) as ends:
        await asker.submit(flow)
        await ends.all_of(1)
        meter, times = Meter(site.stand), []
        for number in range(count):
            began = time.perf_counter()
            run_id = await asker.submit(flow)
            await ends.all_of(number + 2)
            times.append((ends.at[run_id] - began) * 1e3)
        return statistics.median(times), sum(meter.used_ms().values()) / count
