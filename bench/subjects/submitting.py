"""Submissions over HTTP without a worker: the limit of the gateway alone."""

import asyncio
from collections.abc import Iterator

from bench.asking import Asker
from bench.floor import operations_like, submission_figures, submissions
from bench.rows import Row, Size
from bench.serving import GATEWAY, NATS, Meter, Site, one_site


def rows(size: Size) -> Iterator[Row]:
    """Durable, beside an append, a snapshot and a job that are published by nats-py alone."""
    count = size.choose(2_000, 200)
    with one_site(workers=0) as site:
        rate, latency, used = asyncio.run(submitted(site, count))
        below = asyncio.run(operations_like(site.nats_url))
        floor_rate, floor_latency = asyncio.run(submissions(site.durability, below, count))
    subject = "submissions over HTTP, durable"
    yield Row(subject, "latency p50", latency, "ms", floor=floor_latency)
    yield Row(subject, "per second, 16 in flight", rate, "/s", floor=floor_rate)
    for role in (GATEWAY, NATS):
        yield Row(subject, f"CPU of {role}", used[role], "ms")


async def submitted(site: Site, count: int) -> tuple[float, float, dict[str, float]]:
    """Submissions a second, the median milliseconds of one alone, and milliseconds of processor time a submission."""
    asker, done = Asker(site.port), 0

    async def submit() -> None:
        nonlocal done
        await asker.http.ask("POST", "/runs", {"flow_name": "three", "tag": "unserved"})
        done += 1

    meter = Meter(site.stand)
    rate, latency = await submission_figures(submit, count)
    return rate, latency, {role: used / done for role, used in meter.used_ms().items()}
