"""Logs and snapshots that other programs wrote or damaged: reading them never fails."""

import asyncio
import contextlib
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.adapters.sqlite_index.row_mapping import row_of
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports import StoredSnapshot, head_of, position_of
from pyoco_server.app.ports.run_index import SnapshotChange
from pyoco_server.app.recovery.worker_views import shown
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.outputs import Outputs, ValueOwner
from pyoco_server.app.runtime.results import results_of
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.codec import fitted
from pyoco_server.app.snapshots.foreign import foreign_snapshot
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    DecodeError,
    Event,
    decode_event,
    encode_event,
    fold,
    graph_from_log,
    handle,
    initial_state,
    orchestrate,
    reduce,
    state_to_dict,
)
from pyoco_server.core.commands import CreateExecution
from pyoco_server.values.lazy import LostValue
from tests.build import Ids
from tests.fuzz.bounds import check_call, examples
from tests.fuzz.documents import golden_logs, mutated, values, written

RUN = "run-1"


def _decoded(log: Any) -> list[Event]:
    """What can be decoded of a log; it becomes the log of one execution."""
    events: list[Event] = []
    for event in log if isinstance(log, list) else []:
        with contextlib.suppress(DecodeError):
            events.append(decode_event(written({**event, "executionId": RUN} if isinstance(event, dict) else event)))
    return events


def _size(events: list[Event]) -> int:
    return sum(len(encode_event(event)) for event in events)


@given(log=mutated(golden_logs()))
@examples(100)
def test_a_log_with_something_changed_is_read(log: Any) -> None:
    events = _decoded(log)

    def read() -> None:
        state = fold(events, initial_state(RUN))
        one_by_one = initial_state(RUN)
        for event in events:
            one_by_one = reduce(one_by_one, event)
        assert state_to_dict(one_by_one) == state_to_dict(state)
        projection = RunProjection(RUN)
        projection.listen(events, state)
        written(projection.snapshot(position=len(events)))
        RunInput.of(state)

    assert check_call(read, _size(events), ())


@given(log=mutated(golden_logs()))
@examples(60)
def test_every_log_has_a_graph_on_which_a_cancel_can_be_decided(log: Any) -> None:
    events = _decoded(log)

    def read() -> bool:
        graph, state = graph_from_log(events), fold(events, initial_state(RUN))
        if state.graph_id in {None, graph.graph_id} and state.exists:
            orchestrate(graph, state, now="2026-01-01T00:00:00Z", new_id=Ids(), cancel_mode=CancelMode.IMMEDIATE)
        return True

    assert check_call(read, _size(events), ())


@given(log=mutated(golden_logs()))
@examples(60)
def test_the_results_of_a_damaged_log_are_those_it_contains(log: Any) -> None:
    events = _decoded(log)
    if events:
        outputs = Outputs(MemoryOutputStore())
        assert check_call(lambda: asyncio.run(results_of(events, outputs)), _size(events), ())


@given(output=st.dictionaries(st.sampled_from(["stored", "repr", "other"]), values), more=values)
@examples(60)
def test_outputs_of_other_programs_are_read(output: dict[str, Any], more: Any) -> None:
    """A node may be ended over HTTP with any output, also with one that looks like ours."""

    async def read() -> None:
        outputs = Outputs(MemoryOutputStore())
        kinds = {"stored": {"name": "run/x", "sha256": more}, "output_kind": more}
        for said in (
            output,
            {"stored": {"name": more, "sha256": "0"}},
            {"stored": {"name": "x", "sha256": more}},
            kinds,
        ):
            assert isinstance(await outputs.read(ValueOwner("run", "node"), said), LostValue)

    assert check_call(lambda: asyncio.run(read()), 200, ())


SNAPSHOT: dict[str, Any] = {
    "run_id": RUN,
    "flow_name": "f",
    "status": "RUNNING",
    "params": {},
    "tasks": {"a": "RUNNING"},
    "task_records": {"a": {"task": "a", "status": "RUNNING", "error": {"message": "x"}}},
    "waiting": [{"node_id": "w", "task": "w", "deadline": "2030-01-01T00:00:00Z"}],
    "heartbeat_at": 1.5,
    "updated_at": 1.0,
    "submitted_at": 0.5,
    "start_time": None,
    "end_time": None,
    "tag": "default",
    "tags": ["default"],
    "driven_by": None,
    "tenant_id": "acme",
    "log_position": 4,
}


FOREIGN: dict[str, Any] = {name: value for name, value in SNAPSHOT.items() if name != "log_position"} | {
    "status": "COMPLETED",
    "cancel_requested_at": 1.0,
    "cancel_requested_by": "ann",
    "worker_id": "ruby-1",
}
NEW_ID: Final = uuid_maker()
CREATE: Final = CreateExecution(execution_id=RUN, actor=Actor(ActorKind.USER, "ann"), graph_id="f")
CREATED: Final = handle(initial_state(RUN), CREATE, now=SystemClock().now(), new_id=NEW_ID, graph_ids={"f"})


@given(snapshot=mutated([SNAPSHOT]) | values)
@examples(150)
def test_snapshots_of_other_programs_are_indexed_or_left_out(snapshot: Any) -> None:
    body = written(snapshot)
    assert check_call(lambda: row_of(SnapshotChange(RUN, body, 1)), len(body), ())


def _adopt(body: bytes) -> None:
    """Do what a gateway and a worker do with it, on a run that was only created."""
    foreign = foreign_snapshot(StoredSnapshot(RUN, body, position_of(body), 1))
    if foreign is None:
        return
    events = list(CREATED)
    state = fold(events)
    execution = Execution(RUN, graph_from_log(events), log=MemoryEventLog(), clock=SystemClock(), new_id=NEW_ID)
    foreign.stays(state)
    decision = foreign.decision(execution, is_alive=foreign.shows_life(5.0, 3.0))
    if decision is not None:
        made = decision(state)
        events += [decode_event(encode_event(event)) for event in made.events]
        projection = RunProjection(RUN)
        projection.listen(events, fold(events))
        shown_as = projection.snapshot(position=9)
        assert head_of(fitted(shown_as, 1_000_000)).is_foreign is False
        assert shown_as["status"] in {foreign.status, "CANCELLING", "CANCELLED"}


@given(snapshot=mutated([SNAPSHOT, FOREIGN, {**FOREIGN, "status": "FAILED", "error": "e"}]) | values)
@examples(300)
def test_snapshots_of_other_programs_are_put_into_the_log_or_replaced(snapshot: Any) -> None:
    body = written(snapshot)
    assert check_call(lambda: _adopt(body), len(body), ())


RECORD: dict[str, Any] = {
    "worker_id": "w",
    "instance_id": "i",
    "state": "IDLE",
    "hidden": False,
    "last_seen_at": 1.0,
    "tags": ["default"],
}


@given(records=st.lists(mutated([RECORD]) | st.dictionaries(st.sampled_from(sorted(RECORD)), values), max_size=3))
@examples(60)
def test_worker_records_of_other_programs_are_shown(records: list[dict[str, Any]]) -> None:
    assert check_call(lambda: shown(records, now=5.0, timeout_sec=10.0), len(written(records)), ())
