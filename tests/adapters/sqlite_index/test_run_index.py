"""The index in its file: what it keeps, what it leaves out, and how it treats existing files."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from pyoco_server.adapters.sqlite_index import SqliteRunIndex, schema
from pyoco_server.adapters.sqlite_index.row_mapping import SUMMARY_BYTES
from pyoco_server.app.ports import DueWait, RunQuery, SnapshotChange, UnavailableError
from pyoco_server.errors import InvalidInputError
from tests.adapters.sqlite_index.snapshots import change, gone, waits


def use(path: Path | str, body: Callable[[SqliteRunIndex], Awaitable[None]]) -> None:
    async def opened() -> None:
        async with SqliteRunIndex(path) as index:
            await body(index)

    asyncio.run(opened())


async def ids(index: SqliteRunIndex, query: RunQuery | None = None) -> list[str]:
    return [run.cursor.run_id for run in await index.page(query or RunQuery())]


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return ":memory:" if request.param == "memory" else tmp_path / "index.db"


def test_a_new_index_is_empty(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        assert (await index.position(), await index.origin()) == (0, "")
        assert await index.page(RunQuery(tenant_id="unknown")) == []
        assert (await index.counts(), await index.due(1e12), await index.silent(1e12)) == ({}, [], [])

    use(path, body)


def test_applied_changes_are_kept_in_the_file(tmp_path: Path) -> None:
    async def first(index: SqliteRunIndex) -> None:
        await index.clear("here")
        await index.apply([change("a", 1, submitted_at=1.0), change("b", 2, submitted_at=2.0)], 7)

    async def second(index: SqliteRunIndex) -> None:
        assert (await index.position(), await index.origin()) == (7, "here")
        assert await ids(index) == ["b", "a"]
        assert await index.counts() == {"RUNNING": 2}

    use(tmp_path / "index.db", first)
    use(tmp_path / "index.db", second)


def test_runs_are_found_by_the_run_that_they_repeat(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        repeats = {"redrive": {"of": "a", "root": "a", "try": 2, "from": "failed"}}
        await index.apply([change("c", 3, submitted_at=3.0, tenant_id="acme", **repeats), change("a", 1)], 3)
        await index.apply([change("b", 4, submitted_at=2.0, tenant_id="acme", **repeats)], 4)
        assert await index.redriven(["a", "b"]) == {"a": ["b", "c"]}
        assert await index.redriven(["a"], "acme") == {"a": ["b", "c"]}
        assert await index.redriven(["a"], "other") == await index.redriven([]) == {}
        await index.apply([gone("b", 5)], 5)
        assert await index.redriven(["a"]) == {"a": ["c"]}

    use(path, body)


def test_clear_removes_everything(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        waiting = [waits("n", "1970-01-01T00:00:01Z")]
        await index.apply([change("a", 5, tenant_id="acme", waiting=waiting)], 5)
        await index.clear("there")
        assert (await index.position(), await index.origin()) == (0, "there")
        assert (await ids(index), await index.counts(), await index.due(1e12), await index.silent(1e12)) == (
            [],
            {},
            [],
            [],
        )
        await index.apply([change("a", 1, tenant_id="acme")], 1)
        assert await ids(index, RunQuery(tenant_id="acme")) == ["a"]
        assert await index.counts("acme") == {"RUNNING": 1}

    use(path, body)


def test_an_older_change_does_not_restore_a_removed_run(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1)], 1)
        await index.apply([gone("a", 3)], 3)
        await index.apply([change("a", 2)], 2)
        assert (await ids(index), await index.counts(), await index.position()) == ([], {}, 3)

    use(path, body)


def test_changes_are_applied_completely_or_not_at_all(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1, tenant_id="acme")], 1)
        too_much = 2**70  # more than the file can hold as a number
        with pytest.raises(OverflowError):
            await index.apply([change("b", 2, tenant_id="new", flow_name="new"), change("c", too_much)], 9)
        assert (await ids(index), await index.counts(), await index.position()) == (["a"], {"RUNNING": 1}, 1)
        await index.apply([change("b", 2, tenant_id="new", flow_name="new")], 2)
        assert await ids(index, RunQuery(tenant_id="new", flow="new")) == ["b"]

    use(path, body)


def test_waits_are_due_in_the_order_of_their_deadlines(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        waiting = [waits("late", "1970-01-01T00:00:30Z"), waits("early", "1970-01-01T00:00:10.5+00:00"), waits("never")]
        await index.apply([change("a", 1, waiting=waiting)], 1)
        await index.apply([change("b", 2, waiting=[waits("x", "1970-01-01T01:00:20+01:00"), waits("y", "soon")])], 2)
        assert await index.due(10.4) == []
        assert await index.due(20.0) == [DueWait("a", "early"), DueWait("b", "x")]
        assert await index.due(1000.0, limit=1) == [DueWait("a", "early")]
        await index.apply([change("a", 3, waiting=waiting[:1])], 3)
        assert await index.due(1000.0) == [DueWait("b", "x"), DueWait("a", "late")]
        await index.apply([change("a", 4, waiting=waiting, status="CANCELLED"), gone("b", 5)], 5)
        assert await index.due(1000.0) == []

    use(path, body)


@pytest.mark.parametrize(
    ("fields", "is_silent"),
    [
        ({}, True),
        ({"status": "PENDING", "driven_by": None}, True),
        ({"status": "COMPLETED"}, False),
        ({"heartbeat_at": 500.0}, False),
        ({"updated_at": 500.0}, False),
        ({"waiting": [waits("t")], "driven_by": None}, False),
        ({"waiting": [waits("t")], "driven_by": "worker"}, True),
        ({"waiting": [waits("t")], "driven_by": None, "status": "CANCELLING"}, True),
        ({"waiting": [waits("u")], "driven_by": None}, True),  # t was resumed, and has no owner yet
        ({"waiting": [waits("t")], "driven_by": None, "task_records": {}}, False),
        ({"waiting": [waits("u")], "driven_by": None, "task_records": {}}, True),
        ({"tag": "external"}, True),
        ({"tag": "external", "driven_outside": True}, False),
    ],
)
def test_a_run_is_silent_if_heartbeats_are_expected(fields: dict[str, object], is_silent: bool) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1, **fields)], 1)
        assert [run.summary["run_id"] for run in await index.silent(400.0)] == ["a"][: int(is_silent)]
        assert await index.silent(100.0) == []

    use(":memory:", body)


def test_runs_silent_for_longest_come_first(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change(f"r{n}", n, heartbeat_at=200.0 - n) for n in range(1, 20)], 20)
        first = await index.silent(1000.0, limit=3)
        assert [run.summary["run_id"] for run in first] == ["r19", "r18", "r17"]
        rest = await index.silent(195.0, after=first[-1].place)
        assert [run.summary["run_id"] for run in rest] == [f"r{n}" for n in range(16, 5, -1)]
        assert await index.silent(195.0, after=rest[-1].place) == []

    use(path, body)


def test_runs_silent_since_the_same_time_are_each_found_once(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change(f"r{n}", n, heartbeat_at=100.0) for n in range(1, 20)], 20)
        found, page = list[str](), await index.silent(1000.0, limit=4)
        while page:
            found += [run.summary["run_id"] for run in page]
            page = await index.silent(1000.0, limit=4, after=page[-1].place)
        assert sorted(found) == sorted(f"r{n}" for n in range(1, 20))

    use(path, body)


def test_a_run_without_a_time_of_submission_keeps_its_first_place(path: Path | str) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("other", 1, submitted_at=50.0)], 1)
        await index.apply([change("a", 2, submitted_at=None, updated_at=20.0)], 2)
        await index.apply([change("a", 3, submitted_at=0.0, updated_at=90.0)], 3)
        assert [run.cursor for run in await index.page(RunQuery())] == [(50.0, "other"), (20.0, "a")]

    use(path, body)


@pytest.mark.parametrize(
    "field",
    ["submitted_at", "updated_at", "heartbeat_at", "tenant_id", "flow_name", "tag", "waiting", "tasks", "task_records"],
)
@pytest.mark.parametrize("value", [None, True, "x", [1], {"a": {}}, -1, 10**400, [None, {"node_id": 1, "deadline": 2}]])
def test_invalid_values_in_a_snapshot_do_no_harm(field: str, value: object) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1, **{field: value})], 1)
        assert await ids(index) == ["a"]

    use(":memory:", body)


def test_a_value_that_is_not_a_snapshot_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1), change("b", 2)], 2)
        await index.apply([SnapshotChange("a", b"no json", 3), SnapshotChange("c", b'{"status": 7}', 4)], 4)
        assert await ids(index) == ["b"]
        assert await index.counts() == {"RUNNING": 1}

    with caplog.at_level(logging.WARNING):
        use(":memory:", body)
    assert [getattr(record, "action", "") for record in caplog.records] == ["snapshot_unreadable"] * 2
    assert [getattr(record, "run_id", "") for record in caplog.records] == ["a", "c"]


def test_a_summary_leaves_out_long_values() -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([change("a", 1, error="e" * 1000, more=[1])], 1)
        [(_, summary)] = await index.page(RunQuery())
        assert "params" not in summary
        assert "task_records" not in summary
        assert (summary["run_id"], summary["tasks"], summary["error"]) == ("a", {"t": "RUNNING"}, "e" * 1000)
        assert summary["more"] == [1]
        assert "summary_truncated" not in summary

    use(":memory:", body)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"tasks": {f"task{n}": "SUCCEEDED" for n in range(5000)}, "error": "why"}, {"tasks": {}, "error": "why"}),
        ({"error": "\x01" * 100_000}, {"error": "\x01" * 100 + "…", "tag": "default", "updated_at": 100.0}),
        ({"waiting": [waits("n" * 5000)] * 50}, {"waiting": [waits("n" * 100 + "…")] * 3}),
        ({f"field{n}": "x" * 1000 for n in range(50)}, {"tags": ["default"], "status": "RUNNING"}),
        (dict.fromkeys(("version", "log_position", "start_time", "end_time", "archived_at"), 10**4000), {"tasks": {}}),
    ],
)
def test_a_summary_has_a_largest_size(fields: dict[str, object], kept: dict[str, object]) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await index.apply([SnapshotChange("a", msgspec.json.encode({"status": "RUNNING"}), 1)], 1)
        await index.apply([change("a", 2, **fields)], 2)
        [(_, summary)] = await index.page(RunQuery())
        assert len(msgspec.json.encode(summary)) <= SUMMARY_BYTES
        assert summary["summary_truncated"] is True
        assert {name: summary[name] for name in kept} == kept

    use(":memory:", body)


# --- Files -----------------------------------------------------------------------------------------------------------


async def fill(index: SqliteRunIndex) -> None:
    await index.apply([change("a", 1)], 1)


async def is_empty(index: SqliteRunIndex) -> None:
    assert (await ids(index), await index.position()) == ([], 0)
    await fill(index)
    assert await ids(index) == ["a"]


def test_an_index_of_another_version_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path / "index.db", fill)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    use(tmp_path / "index.db", is_empty)


def test_an_index_whose_creation_was_interrupted_is_replaced(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "index.db")
    connection.execute(f"PRAGMA application_id = {schema._APPLICATION_ID}")
    connection.close()
    use(tmp_path / "index.db", is_empty)


def test_a_damaged_index_is_replaced(tmp_path: Path) -> None:
    use(tmp_path / "index.db", fill)
    content = bytearray((tmp_path / "index.db").read_bytes())
    content[16:18] = b"\x00\x03"  # no size a page can have
    (tmp_path / "index.db").write_bytes(content)
    use(tmp_path / "index.db", is_empty)


def test_an_empty_file_becomes_an_index(tmp_path: Path) -> None:
    (tmp_path / "index.db").touch()
    use(tmp_path / "index.db", is_empty)


@pytest.mark.parametrize("what", ["text", "database"])
def test_a_file_of_another_kind_is_not_changed(tmp_path: Path, what: str) -> None:
    path = tmp_path / "index.db"
    if what == "text":
        path.write_text("precious " * 100)
    else:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE precious (a)")
        connection.close()
    before = path.read_bytes()
    with pytest.raises(InvalidInputError, match="something else"):
        SqliteRunIndex(path)
    assert path.read_bytes() == before


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="missing"):
        SqliteRunIndex(tmp_path / "missing" / "index.db")


def test_a_disk_that_fails_makes_the_index_unavailable_until_it_recovers(tmp_path: Path) -> None:
    async def body(index: SqliteRunIndex) -> None:
        await fill(index)
        writer = index._connections[0]
        [pages] = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages}")  # the disk is full
        many = [change(f"r{n}", n + 2) for n in range(2000)]
        with pytest.raises(UnavailableError, match="full"):
            await index.apply(many, 3000)
        assert (await ids(index), await index.position()) == (["a"], 1)
        writer.execute("PRAGMA max_page_count = 100000")
        await index.apply(many, 3000)
        assert await index.counts() == {"RUNNING": 2001}

    use(tmp_path / "index.db", body)


# --- Side by side ----------------------------------------------------------------------------------------------------


def test_readers_see_committed_changes_while_the_writer_works(tmp_path: Path) -> None:
    """The writer stands in the middle of a transaction; a page is read nevertheless."""
    entered, go_on = threading.Event(), threading.Event()

    async def body(index: SqliteRunIndex) -> None:
        await fill(index)

        def hold() -> None:
            with index._writer._transaction() as execute:
                execute("DELETE FROM runs")
                entered.set()
                assert go_on.wait(10)

        holding = asyncio.get_running_loop().run_in_executor(index._writing, hold)
        await asyncio.to_thread(entered.wait, 10)
        assert await ids(index) == ["a"]
        go_on.set()
        await holding
        assert await ids(index) == []

    use(tmp_path / "index.db", body)


def test_each_answer_during_writes_is_of_one_state(tmp_path: Path) -> None:
    async def body(index: SqliteRunIndex) -> None:
        async def write() -> None:
            for step in range(1, 60):
                await index.apply([change(f"r{n}", step * 10 + n, version=step) for n in range(10)], step * 10 + 9)

        async def read() -> None:
            while not writing.done():
                assert len({run.summary["version"] for run in await index.page(RunQuery())}) <= 1
                assert sum((await index.counts()).values()) in {0, 10}

        writing = asyncio.create_task(write())
        await asyncio.gather(writing, *(read() for _ in range(5)))
        assert await index.counts() == {"RUNNING": 10}

    use(tmp_path / "index.db", body)
