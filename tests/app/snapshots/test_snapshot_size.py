"""Snapshots keep within their limit; the status of the run and its tasks is never left out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import LOG_STATUS
from pyoco_server.app.snapshots.codec import LONGEST_TEXT, fitted
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import initial_state
from pyoco_server.texts import shortened
from pyoco_server.worker.settlement import Ack
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import World, attempt

NEVER_LEFT_OUT = ("run_id", "flow_name", "status", "tasks", "heartbeat_at", "updated_at", "tag", "worker_id", "version")


def snapshot(*, records: int = 0, output: str = "", **changes: Any) -> dict[str, Any]:
    projection = RunProjection("run-1")
    projection.state = initial_state("run-1")
    names = [f"task_{number}" for number in range(records)]
    record = {"task": "", "status": "SUCCEEDED", "attempt": 1, "output": output, "error": None, "message": "m"}
    return {
        **projection.snapshot(position=1),
        "tasks": dict.fromkeys(names, "SUCCEEDED"),
        "task_records": {name: {**record, "task": name} for name in names},
        **changes,
    }


def test_what_fits_is_left_alone() -> None:
    whole = snapshot(records=3, output="x")
    stored = {**whole, LOG_STATUS: whole["status"]}
    assert msgspec.json.decode(fitted(whole, len(msgspec.json.encode(stored)))) == stored


@pytest.mark.spec("004 REQ-0011")
def test_the_largest_outputs_go_first() -> None:
    whole = snapshot(records=4, output="x" * 100)
    for name, size in (("task_1", 5_000), ("task_3", 3_000)):
        whole["task_records"][name]["output"] = "x" * size
    small = msgspec.json.decode(fitted(whole, 5_500))
    assert small["task_records_truncated"] is True
    assert [name for name, record in small["task_records"].items() if "output" not in record] == ["task_1"]
    smaller = msgspec.json.decode(fitted(whole, 3_000))
    assert [name for name, record in smaller["task_records"].items() if "output" in record] == ["task_0", "task_2"]
    assert all(record["message"] == "m" for record in smaller["task_records"].values())


@pytest.mark.spec("004 REQ-0011")
def test_then_all_details_of_records_go() -> None:
    whole = snapshot(records=30)
    for record in whole["task_records"].values():
        record["message"] = "m" * 500
    small = msgspec.json.decode(fitted(whole, 8_192))
    assert small["task_records_truncated"] is True
    assert small["task_records"]["task_1"] == {"task": "task_1", "status": "SUCCEEDED", "attempt": 1}
    kept = {"task_records": 0, "task_records_truncated": 0}
    assert {**small, **kept} == {**whole, **kept, LOG_STATUS: whole["status"]}


@pytest.mark.spec("004 REQ-0011")
def test_then_records_go_altogether_and_tasks_stay() -> None:
    whole = snapshot(records=200, output="x")
    body = fitted(whole, 8_192)
    small = msgspec.json.decode(body)
    assert len(body) <= 8_192
    assert (small["task_records"], small["task_records_truncated"]) == ({}, True)
    assert small["tasks"] == whole["tasks"]


@pytest.mark.spec("004 REQ-0011", "004 ERR-PYOCO-0010")
@pytest.mark.parametrize(
    "large",
    [
        {"params": {"blob": "x" * 10_000}},
        {"error": "failed: " + "x" * 10_000},
        {"cancel_reason": "x" * 10_000},
        {"waiting": [{"node_id": "a", "task": "a", "wait_key": "a", "prompt": {"q": "x" * 10_000}, "deadline": None}]},
    ],
    ids=lambda large: next(iter(large)),
)
def test_a_snapshot_that_is_still_too_large_is_logged_and_cut(
    large: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    whole = snapshot(records=2, output="x", **large)
    body = fitted(whole, 4_096)
    small = msgspec.json.decode(body)
    assert len(body) <= 4_096
    assert {name: small[name] for name in NEVER_LEFT_OUT} == {name: whole[name] for name in NEVER_LEFT_OUT}
    assert [entry["node_id"] for entry in small["waiting"]] == [entry["node_id"] for entry in whole["waiting"]]
    assert small["error"] is None or (small["error"] == shortened(whole["error"], LONGEST_TEXT))
    [record] = caplog.records
    assert (record.__dict__["err_id"], record.__dict__["run_id"]) == ("ERR-PYOCO-0010", "run-1")


def test_too_many_tasks_are_written_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    whole = snapshot(records=500)
    small = msgspec.json.decode(fitted(whole, 1_000))
    assert small["tasks"] == whole["tasks"]
    assert [record.__dict__["err_id"] for record in caplog.records] == ["ERR-PYOCO-0010"]


@given(st.integers(0, 40), st.integers(0, 300), st.integers(1_000, 20_000))
def test_the_limit_holds_wherever_it_can(records: int, output: int, limit: int) -> None:
    whole = snapshot(records=records, output="x" * output)
    small = msgspec.json.decode(fitted(whole, limit))
    assert {name: small[name] for name in NEVER_LEFT_OUT} == {name: whole[name] for name in NEVER_LEFT_OUT}
    bare = {**whole, "task_records": {}, "task_records_truncated": True, LOG_STATUS: whole["status"]}
    if len(msgspec.json.encode(bare)) <= limit:
        assert len(fitted(whole, limit)) <= limit
        assert small["params"] == whole["params"]


def wide_flow() -> Flow:
    flow, calls = Flow("wide"), Calls()
    for number in range(30):
        flow.add_task(calls.task(f"task_{number}", "x" * 1_000).task)
    return flow


def test_a_worker_keeps_to_the_limit() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("wide")
        assert await world.hand({"wide": wide_flow()}, max_snapshot_bytes=4_000).work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["task_records_truncated"], len(stored["tasks"])) == ("COMPLETED", True, 30)
        assert all(len(written) <= 4_000 for written in world.snapshots.written)

    attempt(body)


def test_a_snapshot_the_store_refuses_fails_neither_the_run_nor_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("wide")
        world.trouble.always("snapshots.write", Fault.TOO_LARGE)
        hand = world.hand({"wide": wide_flow()})
        assert await hand.work() == Ack()
        assert (await world.state(run_id)).status == "COMPLETED"

    attempt(body)
    assert "ERR-PYOCO-0010" in [record.__dict__.get("err_id") for record in caplog.records]
