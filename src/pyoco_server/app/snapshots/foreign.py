"""What a snapshot that another program wrote means for a run whose log is ours. The only such place.

The specification is open to other gateways and workers on the same NATS (appendices E and F). They know nothing of the
log: they record a state by writing the snapshot. The rules:

- A terminal status ends the run. The log is ended the same way before anything derived is written, so the run is never
  executed again. A cancel in the log still wins over a COMPLETED or FAILED that was written after it.
- A cancel (``CANCELLING``, ``cancel_requested_at``) becomes EXECUTION_CANCEL_REQUESTED in the log. A run without a
  log gets one for that.
- A run that another worker executes is left to that worker while ``heartbeat_at`` is fresh, and its snapshot stays
  until the log says something the snapshot does not.
- Anything else says nothing: the snapshot of the log replaces it.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import LOG_STATUS, StoredSnapshot, head_of
from pyoco_server.app.runtime.execution import Decision, Execution
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.snapshots.codec import json_object, number
from pyoco_server.app.snapshots.status import TERMINAL_RUN, RunStatus, cancel_mode, ended_status
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    Commit,
    Event,
    ExecutionState,
    ExecutionStatus,
    adopt_end,
    cancel_after_end,
    fold,
    handle,
)
from pyoco_server.core.commands import CancelExecution
from pyoco_server.core.json_codec import JsonObject

_log = logging.getLogger(__name__)

ADOPTED: Final = "adopted"
"""Under this name the last event of a run that another program ended keeps what its snapshot said."""

SHOWN_SEC: Final = 3.0
"""The worker that ended a run shows its end sooner than that, or it is gone."""

_KEPT: Final = ("worker_id", "start_time", "end_time", "error", "tasks", "task_records")
_MOST_RECORDS_BYTES: Final = 262_144
_LONGEST_NAME: Final = 200
_SOMEONE: Final = "snapshot"


class AdoptedEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the snapshot said of a run that another program ended, as far as it is shown."""

    worker_id: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    error: str | None = None
    tasks: dict[str, str] = {}
    task_records: dict[str, Any] = {}
    task_records_truncated: bool = False


class ForeignSnapshot:
    """A snapshot another program wrote, and what it claims. Fields of a wrong type count as absent."""

    def __init__(self, said: JsonObject, *, is_shaped_by_us: bool) -> None:
        """``is_shaped_by_us``: another program changed fields of a snapshot of ours, and kept the others."""
        self._said = said
        status = said.get("status")
        self.status = RunStatus(status) if isinstance(status, str) and status in RunStatus.__members__ else None
        self._is_shaped_by_us = is_shaped_by_us

    @property
    def is_terminal(self) -> bool:
        """Does it say that the run has ended?"""
        return self.status in TERMINAL_RUN

    @property
    def asks_for_cancel(self) -> bool:
        """Does it say that a cancel was accepted?"""
        return self.status is RunStatus.CANCELLING or number(self._said.get("cancel_requested_at")) is not None

    @property
    def is_of_worker(self) -> bool:
        """Does it say that another worker executes the run, or did?"""
        if self.status is None or self.is_terminal:
            return False
        if self._is_shaped_by_us and self._said.get(LOG_STATUS) != RunStatus.PENDING:
            return False
        if self.status is RunStatus.RUNNING:
            return True
        return any(self._said.get(name) for name in ("worker_id", "start_time", "tasks"))

    def shows_life(self, now: float, fresh_sec: float) -> bool:
        """Does another worker execute the run at this time?"""
        heartbeat_at = number(self._said.get("heartbeat_at")) or 0.0
        return self.is_of_worker and now - heartbeat_at < fresh_sec

    @property
    def is_open_cancel(self) -> bool:
        """Does it say that a cancel was accepted, and nothing of an end?"""
        return self.asks_for_cancel and not self.is_terminal

    def stays(self, state: ExecutionState) -> bool:
        """Must the snapshot not be replaced by that of the log in ``state``?"""
        if state.is_terminal or not self.is_of_worker:
            return False
        return self.asks_for_cancel or not state.is_cancel_requested

    def is_left_to_worker(self, state: ExecutionState, newest: Event, now: float) -> bool:
        """Has a worker of ours just ended the run, and is it to see this cancel before it shows the end?

        ``newest``: the last event of the log.
        """
        ended_at = state.completed_at or state.failed_at
        if not self.is_open_cancel or state.status is ExecutionStatus.CANCELED or ended_at is None:
            return False
        return ADOPTED not in newest.payload.extra and now - ended_at.timestamp() < SHOWN_SEC

    def decision(self, execution: Execution, *, is_alive: bool) -> Decision | None:
        """What puts the claim into the log; None if the snapshot claims nothing that belongs there."""
        if self.status is not None and self.is_terminal:
            return self._ending(execution, self.status)
        if self.asks_for_cancel:
            return lambda state: self._cancelled(execution, state, is_alive=is_alive)
        return None

    def decision_of_worker(self, execution: Execution) -> Decision | None:
        """The same for the worker that shows the end of the run: a cancel that it finds there came before that."""
        if not self.is_open_cancel:
            return self.decision(execution, is_alive=False)

        def cancelled(state: ExecutionState) -> Commit:
            if not state.is_terminal:
                return self._cancelled(execution, state, is_alive=False)
            actor = Actor(ActorKind.EXTERNAL, self._name("cancel_requested_by"))
            now, new_id = execution.clock.now(), execution.new_id
            events = cancel_after_end(state, reason=None, actor=actor, now=now, new_id=new_id)
            return Commit(events, fold(events, state) if events else state)

        return cancelled

    def _ending(self, execution: Execution, status: RunStatus) -> Decision:
        kept, actor = self._kept(), Actor(ActorKind.EXTERNAL, self._name("worker_id"))
        error: JsonObject = {"code": "EXTERNAL_WORKER", "message": kept.error}

        def ending(state: ExecutionState) -> Commit:
            events = adopt_end(
                state,
                ended_status(status),
                reason=f"another program recorded {status.value}",
                error=error,
                extra={ADOPTED: msgspec.to_builtins(kept)},
                actor=actor,
                now=execution.clock.now(),
                new_id=execution.new_id,
            )
            return Commit(events, fold(events, state) if events else state)

        return ending

    def _cancelled(self, execution: Execution, state: ExecutionState, *, is_alive: bool) -> Commit:
        if state.is_terminal or state.is_cancel_requested:
            return Commit([], state)
        actor = Actor(ActorKind.EXTERNAL, self._name("cancel_requested_by"))
        command = CancelExecution(execution_id=execution.execution_id, actor=actor)
        return cancelling(execution, state, command, mode=cancel_mode(state), is_executed_elsewhere=is_alive)

    def _kept(self) -> AdoptedEnd:
        said = {name: _fitting(self._said[name], name) for name in _KEPT if name in self._said}
        kept = AdoptedEnd(**{name: value for name, value in said.items() if value is not None})
        is_truncated = self._said.get("task_records_truncated") is True
        if len(msgspec.json.encode(kept.task_records)) > _MOST_RECORDS_BYTES:
            return msgspec.structs.replace(kept, task_records={}, task_records_truncated=True)
        return msgspec.structs.replace(kept, task_records_truncated=is_truncated)

    def _name(self, field: str) -> str:
        name = self._said.get(field)
        return name[:_LONGEST_NAME] if isinstance(name, str) and name else _SOMEONE


def foreign_snapshot(stored: StoredSnapshot | None) -> ForeignSnapshot | None:
    """The stored snapshot as another program's; None if there is none, or if it is ours."""
    head = None if stored is None else head_of(stored.body)
    if stored is None or head is None or not head.is_foreign:
        return None
    return ForeignSnapshot(json_object(stored.body) or {}, is_shaped_by_us=head.log_position > 0)


async def adopt_claim(
    execution: Execution,
    stored: StoredSnapshot | None,
    *,
    now: float,
    fresh_sec: float,
    only_ends: bool = False,
) -> bool:
    """Append to the log what a foreign snapshot claims; return whether its writer executes the run now.

    ``only_ends``: the caller cancels the run, so only an end that was recorded before matters.
    """
    foreign = foreign_snapshot(stored)
    if foreign is None:
        return False
    is_alive = foreign.shows_life(now, fresh_sec)
    decision = foreign.decision(execution, is_alive=is_alive)
    if decision is not None and not execution.state.is_terminal and (foreign.is_terminal or not only_ends):
        _log_adopted(execution, await execution.decide(decision))
    return is_alive and not execution.state.is_terminal


async def adopt_claim_at_end(execution: Execution, stored: StoredSnapshot) -> Sequence[Event]:
    """Do the same for the process that ends the run, which had no other worker; return the events of the claim."""
    foreign = foreign_snapshot(stored)
    decision = foreign.decision_of_worker(execution) if foreign is not None else None
    events = await execution.decide(decision) if decision is not None else []
    _log_adopted(execution, events)
    return events


def _log_adopted(execution: Execution, events: Sequence[Event]) -> None:
    if events:
        types = [event.type.value for event in events]
        _log.info(
            "appended to the log what another program wrote into the run's snapshot",
            extra={"action": "snapshot_adopted", "run_id": execution.execution_id, "events": types},
        )


def cancelled_outside(written: Sequence[StoredSnapshot]) -> RunInput | None:
    """Return the input of a run without a log whose snapshots say that another program accepted a cancel.

    A worker that does not read the snapshot before it writes it overwrites the cancel. Only a log keeps it.
    """
    for stored in written:
        foreign = foreign_snapshot(stored) if stored.position == 0 else None  # else the run had a log once
        if foreign is not None and foreign.is_open_cancel:
            return RunInput.of_snapshot(json_object(stored.body) or {})
    return None


def cancelling(
    execution: Execution,
    state: ExecutionState,
    command: CancelExecution,
    *,
    mode: CancelMode,
    is_executed_elsewhere: bool,
) -> Commit:
    """What a cancel leads to. Where a worker without a log executes the run, it is waited for within the grace."""
    if not is_executed_elsewhere or state.is_terminal or state.is_cancel_requested:
        return execution.step(state, command, cancel_mode=mode)
    events = handle(state, command, now=execution.clock.now(), new_id=execution.new_id)
    return Commit(events, fold(events, state))


def adopted_end(extra: Mapping[str, Any]) -> AdoptedEnd | None:
    """What the last event of a run keeps of the snapshot that ended it; None for a run that ended here."""
    if ADOPTED not in extra:
        return None
    try:
        return msgspec.convert(extra[ADOPTED], AdoptedEnd)
    except msgspec.ValidationError:
        return None


def _fitting(value: object, field: str) -> Any:  # noqa: ANN401 whatever type the field has
    """The value if it has the type of the field of an AdoptedEnd."""
    try:
        return getattr(msgspec.convert({field: value}, AdoptedEnd), field)
    except msgspec.ValidationError:
        return None
