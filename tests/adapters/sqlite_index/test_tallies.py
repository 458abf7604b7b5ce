"""Counts of matching runs, and histograms of their durations, without reading all runs."""

import asyncio
import random
import re
from collections import Counter
from typing import Any

import pytest

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.adapters.sqlite_index.paging import FEW
from pyoco_server.app.ports import LATENCY_BOUNDS_SEC, Histogram, RunFilter, RunQuery, RunTally
from tests.adapters.sqlite_index.naive import NaiveIndex
from tests.adapters.sqlite_index.snapshots import change, gone, random_change

FILTERS: list[dict[str, Any]] = [
    {},
    {"flow": "flow1"},
    {"tag": "gpu"},
    {"flow": "flow2", "tag": "default"},
    {"run_id_prefix": "a"},
    {"run_id_prefix": "7", "flow": "flow1", "tag": "gpu"},
    {"flow": "no such flow"},
    {"run_id_prefix": "no such id"},
]
TENANTS = (None, "tenant1", "unknown")


def test_the_counts_match_the_runs_after_any_changes() -> None:
    changes = [random_change(sequence, runs=300) for sequence in range(1, 1_500)]

    async def body() -> None:
        naive = NaiveIndex()
        async with SqliteRunIndex() as index:
            for begin in range(0, len(changes), 200):
                part = changes[begin : begin + 200]
                await index.apply(part, part[-1].sequence)
                naive.apply(part, part[-1].sequence)
            for fields in FILTERS:
                for tenant_id in TENANTS:
                    fitting = naive.page(RunQuery(tenant_id=tenant_id, limit=1_000, **fields))
                    wanted = RunFilter(tenant_id=tenant_id, **fields)
                    expected = dict(Counter(run.snapshot["status"] for run in fitting))
                    assert await index.tally(wanted) == RunTally(expected, is_complete=True), wanted
                    asked = [*naive.runs, "no such run"]
                    found = {run.cursor.run_id: run.summary for run in await index.among(asked, wanted)}
                    assert found == {run.run_id: run.summary for run in fitting}, wanted

    asyncio.run(body())


def test_a_tally_of_very_many_runs_is_partial_and_says_so() -> None:
    changes = [change(f"run-{n:05d}", n, tenant_id=("acme", "zeta")[n == 1]) for n in range(1, FEW + 102)]

    async def body() -> None:
        async with SqliteRunIndex() as index:
            await index.apply(changes, len(changes))
            assert await index.tally(RunFilter(run_id_prefix="run-")) == RunTally(
                {"RUNNING": FEW + 1}, is_complete=False
            )
            assert await index.tally(RunFilter(run_id_prefix="run-0")) == RunTally(
                {"RUNNING": FEW + 1}, is_complete=False
            )
            assert await index.tally(RunFilter(run_id_prefix="run-0510")) == RunTally({"RUNNING": 2}, is_complete=True)
            assert await index.tally(RunFilter()) == RunTally({"RUNNING": FEW + 101}, is_complete=True)
            one = RunFilter(run_id_prefix="run-", tenant_id="zeta")  # who learns nothing of how many the others have
            assert await index.tally(one) == RunTally({"RUNNING": 1}, is_complete=True)

    asyncio.run(body())


@pytest.mark.parametrize("tenant_id", [None, "acme"])
@pytest.mark.parametrize("fields", FILTERS[:6])
def test_no_tally_scans_the_runs(fields: dict[str, Any], tenant_id: str | None) -> None:
    async def body() -> None:
        async with SqliteRunIndex() as index:
            named = {"tenant_id": "acme", "flow_name": "flow1", "tag": "gpu"}
            await index.apply([change("a1", 1, **named), change("a2", 2, **{**named, "flow_name": "flow2"})], 2)
            connection, asked = index._connections[0], list[str]()
            connection.set_trace_callback(asked.append)
            await index.tally(RunFilter(tenant_id=tenant_id, **fields))
            await index.among(["a1", "a2"], RunFilter(tenant_id=tenant_id, **fields))
            await index.latencies(tenant_id)
            connection.set_trace_callback(None)
            plans = [connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in asked if "SELECT" in sql]
            assert plans
            steps = [str(step[3]) for plan in plans for step in plan]
            assert not [step for step in steps if re.match(r"SCAN (runs|cells|latencies)", step)], steps

    asyncio.run(body())


def test_the_tags_of_pending_runs_are_counted() -> None:
    async def body() -> None:
        async with SqliteRunIndex() as index:
            waiting = [("a", "gpu", "acme"), ("b", "gpu", "zeta"), ("c", "cpu", "zeta")]
            changes = [
                change(run, n, status="PENDING", tag=tag, tenant_id=tenant)
                for n, (run, tag, tenant) in enumerate(waiting, 1)
            ]
            await index.apply([*changes, change("d", 9, tag="other")], 9)
            assert [*(await index.tags("PENDING")).items()] == [("gpu", 2), ("cpu", 1)]
            assert await index.tags("PENDING", limit=1) == {"gpu": 2}
            assert await index.tags("PENDING", "acme") == {"gpu": 1}
            assert await index.tags("PENDING", "unknown") == {}
            await index.apply([change("c", 10, tag="cpu", tenant_id="zeta")], 10)
            assert await index.tags("PENDING") == {"gpu": 2}

    asyncio.run(body())


def in_class(seconds: float, runs: int = 1) -> Histogram:
    """So many runs, each of which took so long."""
    counted = [0] * (len(LATENCY_BOUNDS_SEC) + 1)
    counted[next((at for at, bound in enumerate(LATENCY_BOUNDS_SEC) if seconds <= bound), -1)] = runs
    return Histogram(counted, seconds * runs)


def test_a_run_is_measured_once_when_it_ends(tmp_path: Any) -> None:
    times = {"submitted_at": 100.0, "start_time": 102.0, "end_time": 107.0}

    async def body() -> None:
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            await index.apply([change("a", 1, tenant_id="acme", submitted_at=100.0)], 1)
            assert sum((await index.latencies()).whole.runs) == 0
            await index.apply([change("a", 2, tenant_id="acme", status="COMPLETED", **times)], 2)
            await index.apply([change("a", 3, tenant_id="acme", status="COMPLETED", archived_at=200.0, **times)], 3)
            await index.apply([change("b", 4, status="CANCELLED", submitted_at=100.0, end_time=99.0)], 4)
            await index.apply([change("c", 5, status="FAILED", submitted_at=None, end_time=99.0)], 5)  # who knows?
            found = await index.latencies("acme")
            assert (found.queued, found.whole) == (in_class(2.0), in_class(7.0))
            assert await index.latencies("unknown") == ((in_class(0.0, 0)), in_class(0.0, 0))
            assert sum((await index.latencies()).queued.runs) == 1
        async with SqliteRunIndex(tmp_path / "index.db") as index:
            await index.apply([gone("a", 6)], 6)
            assert sum((await index.latencies()).whole.runs) == 2  # what happened has happened
            await index.clear()
            assert sum((await index.latencies()).whole.runs) == 0

    asyncio.run(body())


def test_the_histogram_classes_have_the_counted_durations() -> None:
    source = random.Random(3)
    took = [10 ** source.uniform(-4, 7) for _ in range(300)]

    async def body() -> None:
        async with SqliteRunIndex() as index:
            changes = [
                change(f"r{n}", n, status="COMPLETED", submitted_at=1.0, start_time=1.0, end_time=1.0 + seconds)
                for n, seconds in enumerate(took, start=1)
            ]
            await index.apply(changes, len(changes))
            found = (await index.latencies()).whole
            assert found.seconds == pytest.approx(sum(took))
            for at, bound in enumerate(LATENCY_BOUNDS_SEC):
                assert sum(found.runs[: at + 1]) == sum(seconds <= bound for seconds in took)

    asyncio.run(body())
