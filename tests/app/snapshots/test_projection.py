"""The snapshot of a run: the fields of the specification, true at every moment, and the same however it came about."""

import asyncio
import functools
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import options, wait
from pyoco_server.app.ports import LOG_STATUS
from pyoco_server.app.runtime.outputs import INLINE_MAX_BYTES
from pyoco_server.app.snapshots.projection import RunProjection, worker_mark, worker_name
from pyoco_server.core import Actor, ActorKind, Event, fold
from pyoco_server.core.payloads import ExecutionCancelRequested, ExecutionFailed, NodeStarted
from pyoco_server.testing.virtual_clock import START
from tests.app.runtime.flows import Calls, approval_flow, fan_flow, opaque_flow, program_flow
from tests.worker.world import USER, Held, World, attempt

REQUIRED = {
    "run_id": str,
    "flow_name": str,
    "status": str,
    "params": dict,
    "tasks": dict,
    "heartbeat_at": float,
    "updated_at": float,
}
RECOMMENDED = {
    "tag": str,
    "tags": list,
    "worker_id": str | None,
    "task_records": dict,
    "task_records_truncated": bool,
    "start_time": float | None,
    "end_time": float | None,
    "error": str | None,
    "cancel_requested_at": float | None,
    "cancel_requested_by": str | None,
}


def flaky_flow(calls: Calls) -> Flow:
    """Fails twice, then for good; what was beside it has succeeded."""

    def fail(ctx: Any) -> None:
        ctx.progress(50, "half way")
        raise ValueError(f"not again: {calls.count('flaky')}")

    return Flow("flaky") >> calls.task("before", 1) >> options(calls.task("flaky", fail), retries=2, backoff=1.0)


def rounds_flow(calls: Calls) -> Flow:
    flow = Flow("rounds")
    flow >> wait("nod", prompt="next?", deadline_sec=60)["$ctx.params.items as item"] >> calls.task("after", 1)
    return flow


async def resume_all(world: World, run_id: str, flow: Flow) -> None:
    while waiting := (await world.stored(run_id))["waiting"]:
        await world.resume(run_id, waiting[0]["node_id"], {"ok": True}, USER)
        await world.hand({flow.name: flow}, "w2").work()


async def cancel(world: World, run_id: str, _: Flow) -> None:
    await world.cancel(run_id, USER, "enough")


async def nothing(_: World, __: str, ___: Flow) -> None:
    """The run has ended by itself."""


RUNS: dict[str, tuple[Callable[[Calls], Flow], Callable[[World, str, Flow], Any]]] = {
    "fan": (fan_flow, nothing),
    "program": (program_flow, nothing),
    "opaque": (opaque_flow, nothing),
    "flaky": (flaky_flow, nothing),
    "approved": (approval_flow, resume_all),
    "cancelled": (approval_flow, cancel),
    "rounds": (rounds_flow, resume_all),
    "rounds cancelled": (rounds_flow, cancel),
}


@functools.cache
def log_of(run: str) -> Sequence[Event]:
    """The log of a real run."""

    async def body(world: World) -> Sequence[Event]:
        make, then = RUNS[run]
        flow = make(Calls())
        run_id = await world.submit(flow.name, {"n": 1, "items": [1, 2]}, tags=("a", "b"))
        await world.hand({flow.name: flow}).work()
        await then(world, run_id, flow)
        return await world.events(run_id)

    return attempt(body)


def projected(events: Sequence[Event], chunks: Sequence[int] = ()) -> RunProjection:
    """A projection that took the events in chunks that end there."""
    projection = RunProjection(events[0].execution_id)
    bounds = [0, *sorted({cut for cut in chunks if 0 < cut < len(events)}), len(events)]
    for begin, end in itertools.pairwise(bounds):
        projection.listen(events[begin:end], fold(events[:end]))
    return projection


# --- The fields of the specification ---------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_every_field_is_there_at_every_stage(run: str) -> None:
    events = log_of(run)
    for end in range(1, len(events) + 1):
        snapshot = msgspec.json.decode(msgspec.json.encode(projected(events[:end]).snapshot(position=end)))
        for name, kind in {**REQUIRED, **RECOMMENDED}.items():
            assert isinstance(snapshot[name], kind), f"{name} is {snapshot[name]!r}"
        assert snapshot["log_position"] == snapshot["version"] == end
        assert snapshot["tags"] == ["a", "b"]


def test_times_are_unix_seconds() -> None:
    snapshot = projected(log_of("flaky")).snapshot(position=9)
    begin = START.timestamp()
    assert (snapshot["submitted_at"], snapshot["start_time"]) == (begin, begin)
    assert (snapshot["end_time"], snapshot["updated_at"]) == (begin + 2, begin + 2)
    record = snapshot["task_records"]["flaky"]
    assert (record["started_at"], record["ended_at"], record["attempt"]) == (begin + 2, begin + 2, 3)


def test_a_heartbeat_is_the_writers_and_else_the_last_change() -> None:
    projection = projected(log_of("fan"))
    assert projection.snapshot(position=1, heartbeat_at=5.0)["heartbeat_at"] == 5.0
    plain = projection.snapshot(position=1)
    assert plain["heartbeat_at"] == plain["updated_at"]
    beaten = projection.snapshot(position=1, heartbeat_at=5.0, driven_by="w9")
    assert {**beaten, "heartbeat_at": 0, "driven_by": 0} == {**plain, "heartbeat_at": 0, "driven_by": 0}


@pytest.mark.parametrize(
    ("run", "stages"),
    [
        ("fan", ["PENDING", "RUNNING", "COMPLETED"]),
        ("flaky", ["PENDING", "RUNNING", "FAILED"]),
        ("cancelled", ["PENDING", "RUNNING", "CANCELLING", "CANCELLED"]),
        ("approved", ["PENDING", "RUNNING", "COMPLETED"]),
    ],
)
def test_a_run_goes_through_the_stages_of_the_specification(run: str, stages: list[str]) -> None:
    events = log_of(run)
    seen = [projected(events[:end]).snapshot(position=end)["status"] for end in range(1, len(events) + 1)]
    assert list(dict.fromkeys(seen)) == stages


def test_a_failure_is_described_in_one_line() -> None:
    snapshot = projected(log_of("flaky")).snapshot(position=1)
    assert "ValueError: not again: 3" in snapshot["error"]
    assert snapshot["tasks"] == {"before": "SUCCEEDED", "flaky": "FAILED"}
    record = snapshot["task_records"]["flaky"]
    assert record["error"]["code"] == "ValueError"
    assert (record["progress"], record["message"]) == (50, "half way")


@pytest.mark.parametrize("first", ["k0123456789abcdef", "ann", None])
def test_the_key_of_the_first_cancel_request_is_named(first: str | None) -> None:
    asked = [
        Event(
            event_id=f"e{number}",
            execution_id="r",
            occurred_at=START,
            actor=Actor(ActorKind.USER, name),
            payload=ExecutionCancelRequested(),
        )
        for number, name in enumerate([first, "kfedcba9876543210"])
    ]
    projection = RunProjection("r")
    projection.listen(asked, fold(asked))
    named = None if first in {"ann", None} else f"api_key:{first}"
    assert projection.snapshot(position=1)["cancel_requested_by"] == named


def test_a_record_says_the_state_and_how_long_it_took() -> None:
    events = log_of("flaky")
    started = next(
        at
        for at, event in enumerate(events)
        if isinstance(event.payload, NodeStarted) and event.payload.node_id == "before"
    )
    later = [
        *events[: started + 1],
        *(  # as if everything that follows had happened 2.5 seconds later
            msgspec.structs.replace(event, occurred_at=event.occurred_at + timedelta(seconds=2.5))
            for event in events[started + 1 :]
        ),
    ]
    before = projected(later).snapshot(position=1)["task_records"]["before"]
    assert (before["state"], before["status"], before["duration_ms"]) == ("SUCCEEDED", "SUCCEEDED", 2_500)
    running = projected(later[: started + 1]).snapshot(position=1)["task_records"]["before"]
    assert (running["state"], running["duration_ms"]) == ("RUNNING", None)


def test_who_cancelled_and_why() -> None:
    snapshot = projected(log_of("cancelled")).snapshot(position=1)
    assert (snapshot["cancel_requested_by"], snapshot["cancel_reason"]) == (None, "enough")  # ann showed no key
    assert snapshot["cancel_requested_at"] == START.timestamp()
    assert projected(log_of("fan")).snapshot(position=1)["cancel_requested_by"] is None


# --- Tasks -----------------------------------------------------------------------------------------------------------


def test_waits_are_listed_while_they_last() -> None:
    events = log_of("rounds")
    seen = [projected(events[:end]).snapshot(position=end)["waiting"] for end in range(1, len(events) + 1)]
    listed = [waiting[0] for waiting in seen if waiting]
    assert all(len(waiting) <= 1 for waiting in seen)
    assert len({entry["node_id"] for entry in listed}) == 2
    for entry in listed:
        assert (entry["task"], entry["wait_key"], entry["prompt"]) == ("nod", "nod", {"text": "next?"})
        assert msgspec.convert(entry["deadline"], datetime).timestamp() == START.timestamp() + 60
    assert seen[-1] == []


def test_tasks_are_listed_by_name_and_records_by_node() -> None:
    snapshot = projected(log_of("program")).snapshot(position=1)
    assert snapshot["tasks"] == dict.fromkeys(["first", "grow", "small", "tick"], "SUCCEEDED")
    by_task: dict[str, int] = {}
    for record in snapshot["task_records"].values():
        by_task[record["task"]] = by_task.get(record["task"], 0) + 1
    assert (by_task["first"], by_task["grow"], by_task["tick"]) == (1, 2, 2)


def test_of_a_task_that_runs_many_times_the_newest_counts() -> None:
    events = log_of("rounds")
    seen = [projected(events[:end]).snapshot(position=end)["tasks"].get("nod") for end in range(1, len(events) + 1)]
    changes = [status for before, status in zip([None, *seen], seen, strict=False) if status != before]
    assert changes == ["PENDING", "RUNNING", "SUCCEEDED", "PENDING", "RUNNING", "SUCCEEDED"]


@pytest.mark.spec("004 REQ-0011", "004 REQ-0005")
@pytest.mark.parametrize(
    ("size", "is_shown"), [(10, True), (INLINE_MAX_BYTES - 2, True), (INLINE_MAX_BYTES - 1, False)]
)
def test_an_output_is_shown_whole_or_marked_as_left_out(size: int, *, is_shown: bool) -> None:
    async def body(world: World) -> None:
        flow = Flow("sizes") >> Calls().task("sized", "x" * size)
        run_id = await world.submit("sizes")
        await world.hand({"sizes": flow}).work()
        stored = await world.stored(run_id)
        assert stored["task_records_truncated"] is not is_shown
        assert stored["task_records"]["sized"].get("output") == ("x" * size if is_shown else None)

    attempt(body)


def test_records_say_how_an_output_is_kept() -> None:
    lock, pickled = threading.Lock(), re.compile("x")

    async def body(world: World) -> None:
        calls = Calls()
        flow = Flow("odd") >> calls.task("tagged", lambda _: {1}) >> calls.task("nothing", None)
        flow >>= calls.task("pickled", lambda _: pickled)
        flow >>= calls.task("lost", lambda _: lock)
        run_id = await world.submit("odd")
        await world.hand({"odd": flow}).work()
        stored = await world.stored(run_id)
        shown = {
            task: {name: value for name, value in record.items() if name.startswith("output")}
            for task, record in stored["task_records"].items()
        }
        assert shown == {
            "tagged": {"output": {"$set": [1]}, "output_kind": "tagged"},
            "nothing": {"output": None},
            "pickled": {"output_kind": "pickle", "output_repr": repr(pickled)},
            "lost": {"output_kind": "lost", "output_repr": repr(lock)},
        }
        assert stored["task_records_truncated"] is False

    attempt(body)


def test_a_worker_signs_with_more_than_its_name() -> None:
    assert worker_name(worker_mark("w1", "abc")) == "w1"
    assert worker_mark("w1", "abc") != worker_mark("w1", "abd")
    assert worker_name(None) is None


def test_the_record_of_a_task_names_its_worker() -> None:
    snapshot = projected(log_of("approved")).snapshot(position=1)
    assert snapshot["worker_id"] == "w2"
    workers = {name: record["worker_id"] for name, record in snapshot["task_records"].items()}
    assert (workers["draft"], workers["publish"]) == ("w1", "w2")


@pytest.mark.spec("004 §付録F")
def test_the_worker_that_could_not_run_it_is_named() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("unknown")
        await world.hand({}, "w7").work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("FAILED", "w7")
        assert projected(await world.events(run_id)).snapshot(position=1)["worker_id"] == "w7"

    attempt(body)


def test_a_failed_node_of_another_program_names_no_worker() -> None:
    error = {"code": "X", "detail": {"workerId": "me"}}
    for payload, worker in (
        (ExecutionFailed(failed_node_id="a", error=error), None),
        (ExecutionFailed(error={"code": "X", "detail": {"workerId": 5}}), None),
        (ExecutionFailed(error={"code": "X"}), None),
        (ExecutionFailed(), None),
        (ExecutionFailed(error=error), "me"),
    ):
        events = [*log_of("fan")[:1], msgspec.structs.replace(log_of("fan")[1], payload=payload)]
        assert projected(events).snapshot(position=1)["worker_id"] == worker


# --- However it is built up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_a_snapshot_kept_up_to_date_equals_one_made_from_the_whole_log_at_every_event(run: str) -> None:
    events = log_of(run)
    kept = RunProjection(events[0].execution_id)
    for end in range(1, len(events) + 1):
        kept.listen(events[end - 1 : end], fold(events[:end]))
        assert kept.snapshot(position=end) == projected(events[:end]).snapshot(position=end)


@given(st.sampled_from([*RUNS]), st.lists(st.integers(1, 80), max_size=8), st.integers(1, 80))
def test_a_snapshot_does_not_depend_on_how_the_log_was_read(run: str, chunks: list[int], end: int) -> None:
    events = log_of(run)[:end]
    assert projected(events, chunks).snapshot(position=end) == projected(events).snapshot(position=end)


@pytest.mark.parametrize("run", RUNS)
def test_looking_changes_nothing(run: str) -> None:
    projection = projected(log_of(run))
    assert projection.snapshot(position=1) == projection.snapshot(position=1)


def test_what_a_worker_writes_while_it_drives_is_what_the_log_says() -> None:
    """Every snapshot written on the way equals the fold of the log at its position."""

    async def body(world: World) -> None:
        held = Held()
        flow = Flow("live") >> Calls().task("first", 1) >> held.task() >> Calls().task("last", 1)
        run_id = await world.submit("live")
        hand = world.hand({"live": flow})
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await hand.handler.running[run_id].beat()
        held.release()
        await working
        events = await world.events(run_id)
        assert len(world.snapshots.written) >= 3
        for body in world.snapshots.written:
            written = msgspec.json.decode(body)
            assert written.pop(LOG_STATUS) == written["status"]
            position = written["log_position"]
            fresh = projected(events[:position]).snapshot(
                position=position, heartbeat_at=written["heartbeat_at"], driven_by=written["driven_by"]
            )
            assert written == msgspec.json.decode(msgspec.json.encode(fresh))

    attempt(body)
