"""After random changes in any order, the index answers like a plain list."""

import asyncio
import itertools
import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import Cursor, RunQuery, SnapshotChange
from tests.adapters.sqlite_index.naive import NaiveIndex
from tests.adapters.sqlite_index.snapshots import STATUSES, change, gone, snapshot, waits

RUN_IDS = ("a", "ab", "abc", "b", "b-1", "b-2", "zz")
TIMES = st.sampled_from([0.5, 100.0, 100.25, 101.0, 107.0, 150.0, 4000.0])
DEADLINES = st.sampled_from([None, "1970-01-01T00:01:40Z", "1970-01-01T00:02:10+00:00", "1970-01-01T01:02:00+01:00"])
TEXTS = {
    "tenant_id": (None, "acme", "zeta"),
    "flow_name": ("etl", "train"),
    "tag": ("cpu", "gpu"),
    "workflow_yaml_sha256": (None, "f" * 64, "0" * 64),
}

bodies = st.fixed_dictionaries(
    {
        "status": st.sampled_from(STATUSES),
        "submitted_at": st.one_of(st.none(), TIMES),
        "updated_at": TIMES,
        "heartbeat_at": TIMES,
        "driven_by": st.sampled_from([None, "worker"]),
        "held": st.sampled_from([None, {"needs": ["x"], "since": 1.0, "seen_by": "w"}]),
        "task_records": st.dictionaries(
            st.sampled_from("xy"),
            st.fixed_dictionaries({"status": st.sampled_from(["RUNNING", "SUCCEEDED"])}),
            min_size=1,
        ),
        "waiting": st.lists(st.builds(waits, st.sampled_from("xy"), DEADLINES), unique_by=lambda node: node["node_id"]),
        **{name: st.sampled_from(values) for name, values in TEXTS.items()},
    }
).map(lambda fields: json.dumps(snapshot(**fields)).encode())
anything = st.one_of(bodies, bodies, bodies, st.none(), st.sampled_from([b"", b"[]", b"{", b'{"status": 1}', b"\xff"]))
steps = st.lists(st.tuples(st.sampled_from(RUN_IDS), anything, st.integers(-4, 3)), max_size=8)

queries = st.builds(
    RunQuery,
    tenant_id=st.sampled_from((*TEXTS["tenant_id"], "unknown")),
    status=st.sampled_from((None, None, *STATUSES)),
    flow=st.sampled_from((None, *TEXTS["flow_name"])),
    tag=st.sampled_from((None, None, *TEXTS["tag"])),
    updated_after=st.one_of(st.none(), TIMES),
    submitted_after=st.one_of(st.none(), TIMES),
    workflow_yaml_sha256=st.sampled_from(TEXTS["workflow_yaml_sha256"]),
    held=st.sampled_from([False, False, True]),
    run_id_prefix=st.sampled_from([None, "", "a", "ab", "b-", "zzz"]),
    before=st.one_of(st.none(), st.builds(Cursor, TIMES, st.sampled_from(RUN_IDS))),
    oldest_first=st.booleans(),
    limit=st.integers(0, 8),
)


def batch_of(steps: list[tuple[str, bytes | None, int]], newest: int) -> list[SnapshotChange]:
    """Changes that come late, twice, in the right order or not."""
    changes: list[SnapshotChange] = []
    for run_id, body, ahead in steps:
        sequence = max(newest + ahead, 1)
        if any(sequence == known.sequence for known in changes):
            continue  # a sequence belongs to one change
        newest = max(newest, sequence)
        changes.append(SnapshotChange(run_id, body, sequence))
    return changes


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=6), st.lists(queries, min_size=5, max_size=25), st.integers(0, 30), TIMES)
def test_the_index_answers_like_the_naive_list(
    batches: list[list[tuple[str, bytes | None, int]]], asked: list[RunQuery], before: int, moment: float
) -> None:
    async def body() -> None:
        naive = NaiveIndex()
        async with SqliteRunIndex() as index:
            for changes in batches:
                batch = batch_of(changes, naive.position)
                position = max([naive.position, *(known.sequence for known in batch)])
                for _ in range(2):  # the second time, nothing happens
                    await index.apply(batch, position)
                    naive.apply(batch, position)
                await agree(index, naive, asked, moment)
            await index.forget(before)
            naive.forget(before)
            await agree(index, naive, asked, moment)

    asyncio.run(body())


async def agree(index: SqliteRunIndex, naive: NaiveIndex, asked: list[RunQuery], moment: float) -> None:
    assert await index.position() == naive.position
    for query in [RunQuery(), *asked]:
        expected = [(Cursor(run.submitted_at, run.run_id), run.summary) for run in naive.page(query)]
        assert [tuple(found) for found in await index.page(query)] == expected, query
    for tenant_id in (*TEXTS["tenant_id"], "unknown"):
        assert await index.counts(tenant_id) == naive.counts(tenant_id)
    for tenant in (None, *TEXTS["tenant_id"], "unknown"):
        held = RunQuery(tenant_id=tenant, held=True, limit=1_000)
        assert await index.held_count(tenant) == len(naive.page(held))
    assert set(await index.due(moment)) == naive.due(moment)
    for day, tenant_id in itertools.product(range(3), [None, *TEXTS["tenant_id"], "unknown"]):
        of = day * 86_400.0, tenant_id
        assert await index.submitted_on_day_of(*of) == naive.submitted_on_day_of(*of)
        if tenant_id is not None:
            assert await index.usage(tenant_id, moment) == naive.usage(tenant_id, moment)
    assert {run.summary["run_id"] for run in await index.silent(moment)} == naive.silent(moment)


def test_the_pages_of_each_combination_of_filters_have_all_matching_runs() -> None:
    source = random.Random(5)
    naive = NaiveIndex()
    changes = [
        change(
            f"{source.choice('ab')}{number}",
            number,
            submitted_at=float(source.randrange(1, 60)),
            updated_at=float(source.randrange(1, 90)),
            status=source.choice(STATUSES[:3]),
            **{name: source.choice(values) for name, values in TEXTS.items()},
        )
        for number in range(1, 400)
    ]
    choices: dict[str, Any] = {
        "tenant_id": "acme",
        "status": "RUNNING",
        "flow": "etl",
        "tag": "gpu",
        "updated_after": 40.0,
        "submitted_after": 30.0,
        "workflow_yaml_sha256": "f" * 64,
        "run_id_prefix": "a",
    }

    async def body() -> None:
        async with SqliteRunIndex() as index:
            await index.apply(changes, 400)
            naive.apply(changes, 400)
            for chosen in itertools.product([True, False], repeat=len(choices)):
                filters = {name: value for (name, value), use in zip(choices.items(), chosen, strict=True) if use}
                expected = [run.run_id for run in naive.page(RunQuery(**filters, limit=1000))]
                assert await walk(index, filters, limit=3 + len(expected) // 4) == expected, filters

    asyncio.run(body())


async def walk(index: SqliteRunIndex, filters: dict[str, Any], *, limit: int) -> list[str]:
    seen: list[str] = []
    cursor: Cursor | None = None
    while page := await index.page(RunQuery(**filters, before=cursor, limit=limit)):
        seen += [run.cursor.run_id for run in page]
        cursor = page[-1].cursor
    return seen


def test_paging_during_changes_shows_every_run_once() -> None:
    source = random.Random(7)

    async def body() -> None:
        async with SqliteRunIndex() as index:
            first = {f"run{number:03}": float(source.randrange(1, 100)) for number in range(300)}
            await index.apply([change(run, n + 1, submitted_at=at) for n, (run, at) in enumerate(first.items())], 300)
            sequence, seen = 300, list[str]()
            cursor: Cursor | None = None
            while page := await index.page(RunQuery(before=cursor, limit=7)):
                seen += [run.cursor.run_id for run in page]
                cursor = page[-1].cursor
                changes = [change(f"new{sequence}", sequence + 1, submitted_at=200.0 + sequence)]
                for run_id in source.sample(sorted(first), 10):
                    status, updated_at = source.choice(STATUSES), source.random() * 1000
                    fields = {"submitted_at": first[run_id], "status": status, "updated_at": updated_at}
                    changes.append(change(run_id, sequence + 1 + len(changes), **fields))
                changes.append(gone(source.choice(seen), sequence + 1 + len(changes)))
                sequence += len(changes)
                await index.apply(changes, sequence)
            assert sorted(seen) == sorted(first)

    asyncio.run(body())
