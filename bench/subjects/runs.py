"""Three-step no-op runs through HTTP: a gateway with its NATS server, workers and a client, each a process of its own.

Latency is measured with one run at a time, by a client that looks again and again; rate, processor time and memory
with many in flight, by one that looks at the last few only, so that looking is not what is measured.
"""

import asyncio
from collections.abc import Iterator

from bench.floor import EVENTS, SNAPSHOTS, Measured, floor, operations_like, stored
from bench.peers.measuring import Figures, Plan, disk_sync_ms, measure_standing
from bench.peers.ours import Ours, OursFast, start_client
from bench.peers.stand import CLIENT
from bench.rows import Row, Size
from bench.serving import GATEWAY, NATS, WORKER, Site, by_part, one_site

CPU_MS_AT_MOST = 2.0
LIMIT_SEC = 120.0
COUNTED = 200
KINDS: dict[str, type[Ours]] = {"durable": Ours, "fast": OursFast}


def rows(size: Size) -> Iterator[Row]:
    """Durable and fast, with one worker and, if there is time, with two."""
    for kind, ours in KINDS.items():
        for workers in size.choose((1, 2), (1,)):
            yield from _measured(kind, ours(), workers, size)


def _measured(kind: str, ours: Ours, workers: int, size: Size) -> Iterator[Row]:
    runs = size.choose(1_000, 150)
    figures = Figures(ours.name, ours.durable, ours.remark)
    with one_site(durability=ours.durability, workers=workers, concurrency=ours.in_flight) as site:
        figures.disk_sync_ms = disk_sync_ms(site.stand.directory)
        start_client(site)
        measure_standing(ours, Plan(runs, 0, LIMIT_SEC, 0.0, counts_syncs=workers == 1), site.stand, figures)
        subject = f"three no-op steps, {kind}, {workers} worker{'s' if workers > 1 else ''}"
        per_run = _stored_per_run(site, ours.in_flight)
        below = _floor(site, per_run, runs) if workers == 1 else None
        yield from _rows(subject, figures, below)
        if workers == 1:
            yield Row(subject, "messages stored on NATS", sum(per_run.values()), "a run", note=_words(per_run))
            if figures.disk_sync_ms is not None:
                yield Row(subject, "one sync of a small write just before", figures.disk_sync_ms, "ms")


def _rows(subject: str, figures: Figures, below: Measured | None) -> Iterator[Row]:
    if figures.p50_ms is None or figures.p95_ms is None or figures.runs_per_sec is None or figures.cpu_ms is None:
        raise RuntimeError(f"{subject}: not measured")
    latency, rate, cpu = (below.latency_ms, below.runs_per_sec, below.cpu_ms) if below else (None, None, None)
    yield Row(subject, "latency p50", figures.p50_ms, "ms", floor=latency)
    yield Row(subject, "latency p95", figures.p95_ms, "ms")
    yield Row(subject, "runs per second", figures.runs_per_sec, "/s", floor=rate)
    yield Row(subject, "CPU, all processes", figures.cpu_ms, "ms/run", floor=cpu, goal=CPU_MS_AT_MOST)
    parts, held = by_part(figures.cpu_ms_by_role), by_part(figures.memory_mib_by_role)
    for part in (GATEWAY, NATS, WORKER, CLIENT):
        yield Row(subject, f"  of it {part}", parts[part], "ms/run")
    if figures.syncs_single is not None and figures.syncs_many is not None:
        yield Row(subject, "sync calls, one run at a time", figures.syncs_single, "a run")
        yield Row(subject, f"sync calls, {figures.in_flight} in flight", figures.syncs_many, "a run")
    for part in (GATEWAY, NATS, WORKER):
        yield Row(subject, f"memory, {part}", held[part], "MiB")


def _stored_per_run(site: Site, in_flight: int) -> dict[str, float]:
    """Messages a run by stream, counted by the server over some more runs."""
    before = asyncio.run(stored(site.nats_url))
    site.stand.ask({"do": "many", "count": COUNTED, "in_flight": in_flight, "limit_sec": LIMIT_SEC}, LIMIT_SEC)
    after = asyncio.run(stored(site.nats_url))
    return {name: (after[name] - before[name]) / COUNTED for name in after}


def _floor(site: Site, per_run: dict[str, float], runs: int) -> Measured:
    """Right after, on a server as durable: as many raw operations as ours turned out to make."""
    appends, snapshots = (max(2, round(per_run[name])) for name in (EVENTS, SNAPSHOTS))
    operations = asyncio.run(operations_like(site.nats_url, appends=appends, snapshots=snapshots))
    return asyncio.run(floor(site.durability, operations, runs=runs))


def _words(per_run: dict[str, float]) -> str:
    return ", ".join(f"{name} {count:.1f}" for name, count in per_run.items())
