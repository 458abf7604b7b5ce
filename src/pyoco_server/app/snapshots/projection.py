"""Computes the snapshot of a run from its log, for readers that need the present state alone.

Only ``heartbeat_at`` and ``driven_by`` are not in the log: they say which process owns the run now.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from pyoco_server.app.api_keys.format import is_key_id
from pyoco_server.app.runtime.outputs import TEXT_ONLY, VALUE, bytes_of, is_stored, kind_of
from pyoco_server.app.runtime.plan_cache import named_code
from pyoco_server.app.runtime.rounds import failed_node, is_in_loop, is_isolating, not_started_in, rounds_in, tallies
from pyoco_server.app.runtime.run_input import PLATFORM, RunInput
from pyoco_server.app.runtime.unused_params import UNUSED, Unused, read_unused
from pyoco_server.app.snapshots.foreign import AdoptedEnd, adopted_end
from pyoco_server.app.snapshots.status import TaskStatus, run_status, task_status
from pyoco_server.app.wheels.used import WHEELS, with_more
from pyoco_server.core import Actor, Event, ExecutionState, NodeState, NodeStatus, initial_state
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import (
    ExecutionCanceled,
    ExecutionCancelRequested,
    ExecutionCompleted,
    ExecutionCreated,
    ExecutionFailed,
    ExecutionStarted,
    NodeCanceled,
    NodeCreated,
    NodeFailed,
    NodeStarted,
    NodeSucceeded,
    NodeWaiting,
    Payload,
)
from pyoco_server.values.codec import KIND, OutputKind

WORKER: Final = "workerId"
"""In the detail of a run's error: the worker that gave it up."""

RELEASED_AT: Final = "let_go_at"
"""The field of a snapshot with the position at which a worker released the run; for workers, and not shown."""

DRIVEN_OUTSIDE: Final = "driven_outside"
"""The field of a snapshot of a run that no worker drives, so that it has no heartbeat."""

LONGEST_SHOWN: Final = 200
"""The longest text that a snapshot shows of an output that is not JSON."""
HELD: Final = "held"
"""The field of a snapshot that says which code the run is held for, since when, and which worker found it missing."""

DECLINED_BY: Final = "declined_by"
"""The field of a snapshot that names instances of workers that lack the code a run is held for; it is not shown."""

REDRIVE: Final = "redrive"
"""The field of EXECUTION_CREATED, and of a snapshot, that says which run this one repeats."""

UNUSED_PARAMS: Final = "unused_params"
"""The field of a snapshot with the parameters that nothing takes, each with names that may have been meant."""


TASK_TALLIES: Final = "task_tallies"
"""The field of a snapshot that counts, for each task inside a loop, the rounds it succeeded and failed in.

It is there as soon as a task inside a loop isolates its failures, or a round has failed."""

STORED_BYTES: Final = "stored_bytes"
"""The field of a snapshot with the bytes of all results, if they are many: the snapshot need not contain them."""
_MANY_BYTES: Final = 65_536
_LOOPS: Final = frozenset({"ForEach", "Repeat", "Until"})
_API_KEY: Final = "api_key:"
_LIVE: Final = frozenset({NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING})


def read_hold(snapshot: JsonObject) -> JsonObject | None:
    """Return what a stored snapshot says of its hold, as ``RunProjection.snapshot`` takes it."""
    held = snapshot.get(HELD)
    return {**held, DECLINED_BY: snapshot.get(DECLINED_BY, [])} if isinstance(held, dict) else None


def worker_mark(worker_id: str, instance_id: str) -> str:
    """Return the mark of a worker process: its name in logs. Two processes with one worker id differ in it."""
    return f"{worker_id}#{instance_id}"


def worker_name(mark: str | None) -> str | None:
    """Return the worker id of a mark."""
    return None if mark is None else mark.partition("#")[0]


class _TaskRecord(msgspec.Struct):
    """What the log says of one task node, besides its state."""

    task: str
    started_at: float | None = None
    ended_at: float | None = None
    shown: Any = msgspec.UNSET
    is_kept_elsewhere: bool = False
    """Is its output so large that the log only refers to it?"""
    kind: OutputKind = OutputKind.JSON
    text: str | None = None
    """The text that is shown for an output that is not JSON."""
    wait: JsonObject | None = None
    """The deadline and the default of NODE_WAITING."""

    @property
    def duration_ms(self) -> int | None:
        """From the start of the newest attempt to the end of the node; None until both are known."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(round((self.ended_at - self.started_at) * 1_000), 0)


class RunProjection:
    """Takes the events of one log, and builds the snapshot of the run."""

    def __init__(self, run_id: str) -> None:
        self.state = initial_state(run_id)
        self._input: RunInput | None = None
        self._platform: object = None
        self._redrive: object = None
        self._records: dict[str, _TaskRecord] = {}
        self._loops: set[str] = set()
        self._not_started: Counter[str] = Counter()
        self._isolates_rounds = False
        self._updated_at = 0.0
        self._worker_id: str | None = None
        self._wheels: dict[str, str] = {}
        self._unused: Unused = {}
        self._codes: list[str] = []
        self._canceler: Actor | None = None
        self._adopted: AdoptedEnd | None = None
        self._result_bytes = 0

    @property
    def input(self) -> RunInput:
        """The input of the run's submission."""
        if self._input is None:
            self._input = RunInput.of(self.state, self._platform)
        return self._input

    @property
    def is_driven_outside(self) -> bool:
        """Do clients drive the run by commands? Its tag does not say so: a submission may use any tag."""
        return self._platform is not None

    def listen(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Take new events, and the state after them."""
        self.state = state
        for event in events:
            take = self._TAKE.get(type(event.payload))
            if take is not None:
                take(self, event, event.payload)
        if events:
            self._updated_at = _seconds(events[-1].occurred_at)

    def _created(self, _: Event, payload: ExecutionCreated) -> None:
        self._platform = payload.extra.get(PLATFORM)
        self._redrive = payload.extra.get(REDRIVE)

    def _cancel_requested(self, event: Event, _: ExecutionCancelRequested) -> None:
        self._canceler = self._canceler or event.actor

    def _started(self, _: Event, payload: ExecutionStarted) -> None:
        self._note_code(payload.extra)

    def _note_code(self, extra: JsonObject) -> None:
        sha256 = named_code(extra)
        if sha256 is not None and sha256 not in self._codes[-1:]:
            self._codes = [*self._codes[:1], sha256]

    def _ended(self, _: Event, payload: ExecutionCompleted | ExecutionCanceled | ExecutionFailed) -> None:
        self._adopted = adopted_end(payload.extra)

    def _failed(self, event: Event, payload: ExecutionFailed) -> None:
        self._ended(event, payload)
        self._worker_id = _given_up_by(payload) or self._worker_id
        self._wheels = with_more(self._wheels, _detail_of(payload).get(WHEELS))

    def _node_created(self, _: Event, payload: NodeCreated) -> None:
        described = payload.described
        task = described.get("task")
        if isinstance(task, str):
            self._records[payload.node_id] = _TaskRecord(task)
            self._isolates_rounds |= is_isolating(described) and is_in_loop(payload.node_id)
        elif payload.node_type in _LOOPS:
            self._loops.add(payload.node_id)

    def _node_started(self, event: Event, payload: NodeStarted) -> None:
        self._worker_id = worker_name(payload.worker_id) or self._worker_id
        if payload.extra:
            self._wheels = with_more(self._wheels, payload.extra.get(WHEELS))
            unused = read_unused(payload.extra.get(UNUSED))
            self._unused = self._unused if unused is None else unused
            self._note_code(payload.extra)
        record = self._records.get(payload.node_id)
        if record is not None:
            record.started_at = _seconds(event.occurred_at)
            record.ended_at = None

    def _node_waiting(self, _: Event, payload: NodeWaiting) -> None:
        record = self._records.get(payload.node_id)
        if record is not None:
            record.wait = payload.extra

    def _node_ended(self, event: Event, payload: NodeFailed | NodeCanceled) -> None:
        record = self._records.get(payload.node_id)
        if record is not None:
            record.ended_at = _seconds(event.occurred_at)
        elif payload.node_id in self._loops and isinstance(payload, NodeFailed):
            self._count_not_started(rounds_in(payload.error))

    def _node_succeeded(self, event: Event, payload: NodeSucceeded) -> None:
        self._result_bytes += bytes_of(payload.output)
        record = self._records.get(payload.node_id)
        if record is not None:
            record.ended_at = _seconds(event.occurred_at)
            output = payload.output or {}
            record.shown = output.get(VALUE, msgspec.UNSET)
            record.kind = kind_of(output) if KIND in output else OutputKind.JSON
            record.is_kept_elsewhere = is_stored(output) and record.kind is not OutputKind.PICKLE
            text = output.get(TEXT_ONLY)
            record.text = text[:LONGEST_SHOWN] if isinstance(text, str) else None
        elif payload.node_id in self._loops:
            self._count_not_started((payload.output or {}).get(VALUE))

    def _count_not_started(self, result: object) -> None:
        counts = not_started_in(result)
        self._isolates_rounds |= bool(counts)
        self._not_started.update(counts)

    _TAKE: ClassVar[dict[type[Payload], Callable[["RunProjection", Event, Any], None]]] = {
        ExecutionCreated: _created,
        ExecutionStarted: _started,
        ExecutionCancelRequested: _cancel_requested,
        ExecutionCompleted: _ended,
        ExecutionCanceled: _ended,
        ExecutionFailed: _failed,
        NodeCreated: _node_created,
        NodeStarted: _node_started,
        NodeWaiting: _node_waiting,
        NodeFailed: _node_ended,
        NodeCanceled: _node_ended,
        NodeSucceeded: _node_succeeded,
    }
    """The method for each type of event; the other types change only the state."""

    def snapshot(
        self,
        *,
        position: int,
        heartbeat_at: float | None = None,
        driven_by: str | None = None,
        released_at: int | None = None,
        held: JsonObject | None = None,
    ) -> JsonObject:
        """Return the fields of the stored snapshot; ``position`` is where the log ended.

        ``released_at``: where the log ended when a worker released the run. A snapshot without ``driven_by`` does not
        prove that: another process may have written it for a worker that died. ``held``: the hold that a worker
        without the code reported; it counts while the run has no owner, no requested cancel and no end.
        """
        state, given = self.state, self.input
        snapshot: JsonObject = {
            "run_id": state.execution_id,
            "flow_name": given.flow_name,
            "status": run_status(state).value,
            "params": given.params,
            "tasks": self._tasks(),
            "heartbeat_at": heartbeat_at if heartbeat_at is not None else self._updated_at,
            "updated_at": self._updated_at,
            "tag": given.tag,
            "tags": list(given.tags),
            "submitted_at": given.submitted_at,
            "worker_id": self._worker_id,
            "driven_by": driven_by,
            "task_records": {node_id: self._record(node_id) for node_id in self._records if node_id in state.nodes},
            "task_records_truncated": any(record.is_kept_elsewhere for record in self._records.values()),
            "start_time": _seconds_of(state.started_at),
            "end_time": _seconds_of(state.completed_at or state.failed_at or state.canceled_at),
            "error": self.error,
            "cancel_requested_at": _seconds_of(state.cancel_requested_at),
            "cancel_requested_by": None if self._canceler is None else _api_key_of(self._canceler),
            "cancel_reason": state.cancel_reason,
            "waiting": self._waiting(),
            "archived_at": _seconds_of(state.archived_at),
            "version": state.version,
            "log_position": position,
        }
        if released_at is not None and not state.is_terminal:
            snapshot[RELEASED_AT] = released_at
        if held is not None and driven_by is None and not (state.is_terminal or state.is_cancel_requested):
            snapshot[HELD] = {name: value for name, value in held.items() if name != DECLINED_BY}
            snapshot[DECLINED_BY] = held.get(DECLINED_BY, [])
        self._add_optional(snapshot)
        for name in ("tenant_id", "api_key_id", "workflow_yaml_sha256", "workflow_yaml_bytes"):
            value = getattr(given, name)
            if value is not None:
                snapshot[name] = value
        return snapshot

    def _add_optional(self, snapshot: JsonObject) -> None:
        """Add the fields that most runs do not have."""
        if self.input.params_kind != "json":
            snapshot["params_kind"] = self.input.params_kind
        if code := ((self.state.failure or {}).get("error") or {}).get("code"):
            snapshot["error_code"] = code
        if isinstance(self._redrive, dict):
            snapshot[REDRIVE] = self._redrive
        if self._codes:
            snapshot["code"] = {"sha256": self._codes[-1]}
            if len(self._codes) > 1:
                snapshot["code"]["started_with"] = self._codes[0]
        if self._isolates_rounds:
            snapshot[TASK_TALLIES] = tallies(self._tasks_of_nodes(), self.state.nodes.get, self._not_started)
        if self._wheels:
            snapshot[WHEELS] = dict(self._wheels)
        if self._unused:
            snapshot[UNUSED_PARAMS] = dict(self._unused)
        if self.is_driven_outside:
            snapshot[DRIVEN_OUTSIDE] = True
        if self._result_bytes >= _MANY_BYTES:
            snapshot[STORED_BYTES] = self._result_bytes
        if self._adopted is not None:
            _take_adopted(snapshot, self._adopted)

    def deadline_of(self, node_id: str) -> JsonObject | None:
        """Return the ``deadline`` of the node's last wait, and its ``default`` if it has one."""
        record = self._records.get(node_id)
        return None if record is None else record.wait

    def _tasks(self) -> dict[str, str]:
        """Return the status of each task: that of its newest node, but FAILED if one has failed and none is live."""
        newest: dict[str, str] = {}
        failed: set[str] = set()
        live: set[str] = set()
        for _, record, node in self._with_state():
            newest[record.task] = task_status(node.status).value
            if node.status is NodeStatus.FAILED:
                failed.add(record.task)
            elif node.status in _LIVE:
                live.add(record.task)
        return newest | dict.fromkeys(failed - live, TaskStatus.FAILED.value)

    def _tasks_of_nodes(self) -> Iterator[tuple[str, str]]:
        return ((node_id, record.task) for node_id, record in self._records.items() if node_id in self.state.nodes)

    def _record(self, node_id: str) -> JsonObject:
        node, record = self.state.nodes[node_id], self._records[node_id]
        shown: JsonObject = {
            "task": record.task,
            "status": task_status(node.status).value,
            "state": task_status(node.status).value,
            "attempt": node.attempt,
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "duration_ms": record.duration_ms,
            "worker_id": worker_name(node.worker_id),
        }
        if node.error is not None:
            shown["error"] = node.error
        if record.shown is not msgspec.UNSET:
            shown["output"] = record.shown
        if record.kind is not OutputKind.JSON:
            shown[KIND] = record.kind.value
            if record.text is not None:
                shown["output_repr"] = record.text
        if node.progress is not None or node.progress_message is not None:
            shown["progress"], shown["message"] = node.progress, node.progress_message
        return shown

    def _waiting(self) -> list[JsonObject]:
        return [
            {
                "node_id": node_id,
                "task": record.task,
                "wait_key": node.wait_key,
                "prompt": node.prompt,
                "deadline": (record.wait or {}).get("deadline"),
            }
            for node_id, record, node in self._with_state()
            if node.status is NodeStatus.WAITING
        ]

    def _with_state(self) -> list[tuple[str, _TaskRecord, NodeState]]:
        nodes = self.state.nodes
        return [(node_id, record, nodes[node_id]) for node_id, record in self._records.items() if node_id in nodes]

    @property
    def error(self) -> str | None:
        """Why the run failed, in one line; None if it did not."""
        failure = self.state.failure
        if failure is None:
            return None
        error = failure.get("error") or {}
        if self._adopted is not None and self._adopted.error is not None:
            return self._adopted.error
        inner = failed_node(error) if failure.get("failedNodeId") else None
        reason = f"node '{inner}' failed" if inner else failure.get("reason") or "failed"
        code, message = error.get("code"), error.get("message")
        if not message:  # some exceptions have a name and no words
            return f"{reason}: {code}" if code else reason
        return f"{reason}: {code or 'error'}: {message}"


def _take_adopted(snapshot: JsonObject, adopted: AdoptedEnd) -> None:
    """Add what the snapshot of another program said of the tasks of a run that it ended."""
    snapshot["tasks"] = {**snapshot["tasks"], **adopted.tasks}
    snapshot["task_records"] = {**snapshot["task_records"], **adopted.task_records}
    snapshot["task_records_truncated"] = snapshot["task_records_truncated"] or adopted.task_records_truncated
    for name in ("worker_id", "start_time", "end_time"):
        snapshot[name] = getattr(adopted, name) or snapshot[name]


def _given_up_by(failed: ExecutionFailed) -> str | None:
    """Return the worker that failed the run before any node; the start of a failed node names its worker."""
    worker_id = _detail_of(failed).get(WORKER)
    return worker_id if isinstance(worker_id, str) else None


def _detail_of(failed: ExecutionFailed) -> JsonObject:
    detail = (failed.error or {}).get("detail") if failed.failed_node_id is None else None
    return detail if isinstance(detail, dict) else {}


def _api_key_of(actor: Actor) -> str | None:
    """The API key that an actor used, as ``api_key:<id>``; None for an actor without one.

    Another gateway that recorded the cancel in the snapshot wrote it in this form already.
    """
    key_id = (actor.id or "").removeprefix(_API_KEY)
    return f"{_API_KEY}{key_id}" if is_key_id(key_id) else None


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def _seconds_of(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
