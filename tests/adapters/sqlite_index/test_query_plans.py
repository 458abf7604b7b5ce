"""No query reads all runs."""

import asyncio
import itertools
import re
import sqlite3
from typing import Any

import pytest

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import Cursor, RunQuery, SnapshotChange
from tests.adapters.sqlite_index.snapshots import change

FILTERS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "runs_listed"),
    "status": ({"status": "FAILED"}, "runs_listed"),
    "flow": ({"flow": "flow1"}, "runs_listed_flow"),
    "tag": ({"tag": "gpu"}, "runs_listed"),
    "yaml": ({"workflow_yaml_sha256": "yaml1"}, "runs_listed_yaml"),
    "held": ({"held": True}, "runs_listed_held"),
    "prefix": ({"run_id_prefix": "1f"}, "runs_by_id"),
    "updated": ({"updated_after": 1100.0}, "runs_listed"),
    "submitted": ({"submitted_after": 1100.0}, "runs_listed"),
    "submitted, oldest first": ({"submitted_after": 1100.0, "oldest_first": True}, "runs_listed"),
    "before": ({"before": Cursor(1100.0, "5")}, "runs_listed"),
}


def runs(number: int) -> list[SnapshotChange]:
    """So many runs, one a second; each tenant has its own flows, and only one of them failures."""
    return [
        change(
            f"{(n * 2654435761) % 2**32:08x}",
            n,
            submitted_at=1000.0 + n,
            updated_at=1005.0 + n,
            tenant_id=f"tenant{n % 3}",
            flow_name=f"flow{n % 6}",
            tag=("cpu", "gpu")[n % 2],
            status="FAILED" if n % 3 == 1 else ("COMPLETED", "RUNNING")[n % 4 == 0],
            workflow_yaml_sha256=f"yaml{n % 6}",
            driven_by=None,
            held={"needs": ["x"], "since": 1.0, "seen_by": "w"} if n % 5 == 0 else None,
        )
        for n in range(1, number + 1)
    ]


async def filled(number: int) -> SqliteRunIndex:
    index = SqliteRunIndex()
    await index.apply(runs(number), number)
    await index.counts()  # the first query makes the indexes that the load left out
    return index


async def plans_of(index: SqliteRunIndex, query: RunQuery) -> list[list[str]]:
    """How the runs are looked for, for each statement the page takes."""
    connection, asked = index._connections[0], list[str]()
    connection.set_trace_callback(asked.append)
    await index.page(query)
    connection.set_trace_callback(None)
    statements = [sql for sql in dict.fromkeys(asked) if "ORDER BY" in sql]
    return [[str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")] for sql in statements]


@pytest.mark.parametrize("tenant", [{}, {"tenant_id": "tenant1"}], ids=["all", "tenant"])
@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_is_answered_by_an_index_in_its_order(name: str, tenant: dict[str, Any]) -> None:
    filters, index_name = FILTERS[name]
    if tenant and index_name != "runs_by_id":
        index_name = index_name.replace("runs_listed", "runs_listed_tenant")

    async def body() -> None:
        async with await filled(300) as index:
            plans = await plans_of(index, RunQuery(**filters, **tenant, limit=5))
            assert plans, "nothing was asked"
            for plan in plans:
                assert re.match(rf"SEARCH r USING (COVERING )?INDEX {index_name} \(", plan[0]), plan
                assert len(plan) == 1 or (index_name == "runs_by_id" and "ORDER BY" in plan[1]), plan

    asyncio.run(body())


def test_runs_in_progress_at_a_time_are_found_by_how_long_they_took() -> None:
    async def body() -> None:
        async with await filled(300) as index:
            *_, plan = await plans_of(index, RunQuery(updated_after=1296.0, limit=50))
            assert plan[:2] == [
                "SCAN s",  # the classes, not the runs
                "SEARCH r USING INDEX runs_by_span (span=? AND submitted_at>? AND submitted_at<?)",
            ]

    asyncio.run(body())


@pytest.mark.parametrize("question", ["due", "silent", "counts", "forget", "submitted_on_day_of", "usage"])
def test_no_other_query_scans_the_runs(question: str) -> None:
    async def body() -> None:
        async with await filled(300) as index:
            connection, asked = index._connections[0], list[str]()
            connection.set_trace_callback(asked.append)
            await getattr(index, question)(*{"counts": ("tenant1",), "usage": ("tenant1", 5.0)}.get(question, (5,)))
            connection.set_trace_callback(None)
            plans = [connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() for sql in asked if "SELECT" in sql]
            assert plans
            assert not [step for plan in plans for step in plan if re.match(r"SCAN (runs|waits|cells)", str(step[3]))]

    asyncio.run(body())


class Meter:
    """Counts the steps SQLite takes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.steps = 0
        connection.set_progress_handler(self._count, 1)

    def _count(self) -> None:
        self.steps += 1


def combinations() -> list[dict[str, Any]]:
    """All combinations of filters; most fit no run, though each part of them fits many."""
    parts: list[dict[str, Any]] = [
        {"tenant_id": "tenant2"},
        {"status": "FAILED"},
        {"flow": "flow1"},
        {"tag": "cpu"},
        {"workflow_yaml_sha256": "yaml1"},
        {"held": True},
    ]
    combined = [
        {name: value for part in chosen for name, value in part.items()}
        for size in range(len(parts) + 1)
        for chosen in itertools.combinations(parts, size)
    ]
    # Those of one workflow are looked for among all that are held, which are few, here or not.
    return [each for each in combined if not {"held", "workflow_yaml_sha256"} <= each.keys()]


def test_the_work_for_a_page_does_not_grow_with_the_number_of_runs() -> None:
    tenants: list[dict[str, Any]] = [{}, {"tenant_id": "tenant1"}]
    queries = [
        RunQuery(**filters, **tenant, limit=10)
        for name, (filters, _) in FILTERS.items()
        if name != "prefix"
        for tenant in tenants
    ]
    queries += [RunQuery(run_id_prefix=run_id) for run_id in ("9e3779b1", "3c6ef362", "ffffffff")]
    queries += [RunQuery(**filters, limit=10) for filters in combinations()]
    queries += [RunQuery(**filters, limit=10, updated_after=1500.0) for filters in combinations()]

    async def work(number: int) -> dict[RunQuery, int]:
        async with await filled(number) as index:
            meter = Meter(index._connections[0])
            steps: dict[RunQuery, int] = {}
            for query in queries:
                meter.steps = 0
                await index.page(query)
                steps[query] = meter.steps
            return steps

    few, many = asyncio.run(work(600)), asyncio.run(work(6000))
    grown = {query: (few[query], many[query]) for query in queries if many[query] > 1.5 * few[query] + 200}
    assert not grown


def test_the_work_does_not_grow_with_the_runs_submitted_before_or_between() -> None:
    def queries(number: int) -> list[RunQuery]:
        """Each has a few runs on its page, and most runs on one side of it."""
        late = 1000.0 + number - 5
        return [
            RunQuery(submitted_after=late),
            RunQuery(submitted_after=late, oldest_first=True),
            RunQuery(submitted_after=1000.0, before=Cursor(late, ""), oldest_first=True),
            RunQuery(submitted_after=1000.0, before=Cursor(1005.0, "")),
            RunQuery(submitted_after=late, updated_after=1000.0),
            RunQuery(submitted_after=1000.0, updated_after=late + 5),
            RunQuery(submitted_after=late, updated_after=late + 5),
        ]

    async def work(number: int) -> list[int]:
        async with await filled(number) as index:
            meter = Meter(index._connections[0])
            steps: list[int] = []
            for query in queries(number):
                meter.steps = 0
                assert 0 < len(await index.page(query)) < 20, query
                steps.append(meter.steps)
            return steps

    few, many = asyncio.run(work(600)), asyncio.run(work(6000))
    assert [steps for steps in zip(few, many, strict=True) if steps[1] > 1.5 * steps[0] + 200] == []
