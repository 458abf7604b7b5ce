"""The command handler: check a command against the state, and return the events it becomes.

It changes nothing. It returns a list of events, empty if what the command requests is already so, or raises
:class:`CommandRejected` with the reason as data. The consequences of the events are the orchestrator's part.
"""

from collections.abc import Container
from datetime import datetime
from enum import StrEnum, unique
from typing import Any, Final

from pyoco_server.core.commands import (
    AnyNodeCommand,
    ArchiveExecution,
    CancelExecution,
    Command,
    CreateExecution,
    FailNode,
    MarkNodeReady,
    PutNodeWaiting,
    Report,
    ReportNodeProgress,
    RequestResumeNode,
    ResumeNode,
    StartExecution,
    StartNode,
    SucceedNode,
)
from pyoco_server.core.events import Event, NewId, Stamp
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.json_codec import JsonObject, rfc3339, timestamp
from pyoco_server.core.payloads import (
    ExecutionArchived,
    ExecutionCancelRequested,
    ExecutionCreated,
    ExecutionStarted,
    NodeFailed,
    NodeFailReported,
    NodeProgressReported,
    NodeReady,
    NodeResumed,
    NodeResumeRequested,
    NodeStarted,
    NodeSucceeded,
    NodeWaiting,
    Payload,
)
from pyoco_server.core.state import ExecutionState, NodeState
from pyoco_server.core.transitions import NODE_GUARDS, REFUSED_AFTER_CANCEL, CommandType, NodeStatus
from pyoco_server.errors import PyocoServerError


@unique
class RejectionCode(StrEnum):
    """Why a command was refused."""

    WRONG_EXECUTION = "WRONG_EXECUTION"
    EXECUTION_NOT_FOUND = "EXECUTION_NOT_FOUND"
    EXECUTION_EXISTS = "EXECUTION_EXISTS"
    EXECUTION_TERMINAL = "EXECUTION_TERMINAL"
    EXECUTION_NOT_TERMINAL = "EXECUTION_NOT_TERMINAL"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    GRAPH_NOT_FOUND = "GRAPH_NOT_FOUND"
    NODE_NOT_FOUND = "NODE_NOT_FOUND"
    NODE_IS_CONTROL = "NODE_IS_CONTROL"
    NODE_TERMINAL = "NODE_TERMINAL"
    NODE_STATUS = "NODE_STATUS"
    NODE_HELD = "NODE_HELD"
    STALE_ATTEMPT = "STALE_ATTEMPT"
    UNKNOWN_ATTEMPT = "UNKNOWN_ATTEMPT"
    BETWEEN_ATTEMPTS = "BETWEEN_ATTEMPTS"
    RESUME_KEY_MISMATCH = "RESUME_KEY_MISMATCH"


class CommandRejected(PyocoServerError):  # noqa: N818 the name is part of the public contract
    """A guard refused the command; ``fact`` holds what stood in the way, spelt as in the state's JSON.

    For a node command that is ``nodeId`` and, if the node exists, ``nodeStatus`` and ``attempt``; for an execution
    command ``executionId``, ``graphId``, ``status`` or ``cancelRequestedAt``, whichever the guard looked at.
    """

    def __init__(self, code: RejectionCode, command: Command, message: str, fact: JsonObject) -> None:
        super().__init__(f"{command.type} refused: {message}")
        self.code = code
        self.command = command
        self.message = message
        self.fact = fact

    def __reduce__(self) -> tuple[Any, ...]:  # type: ignore[explicit-override]  # needs Python 3.12
        return CommandRejected, (self.code, self.command, self.message, self.fact)


_ALSO_AFTER_THE_END: Final = (CancelExecution, ArchiveExecution)
_OBSERVABLE: Final = frozenset({CommandType.SUCCEED_NODE, CommandType.FAIL_NODE})


def handle(
    state: ExecutionState,
    command: Command,
    *,
    now: datetime | str,
    new_id: NewId,
    observed: bool = False,
    graph_ids: Container[str] | None = None,
) -> list[Event]:
    """Return the events ``command`` becomes, or raise :class:`CommandRejected`.

    These are only the command's own events: the orchestrator adds what follows from them, such as the end of a cancel.

    ``observed`` is for the engine that ran the node itself: work that really ended is then recorded even if a cancel
    was requested meanwhile, because the log records what happened. ``graph_ids`` are the graphs an execution may be
    created from; None leaves that check to the caller.
    """
    stamp = Stamp(
        execution_id=state.execution_id,
        now=timestamp(now),
        new_id=new_id,
        correlation_id=command.correlation_id,
    )
    return handle_stamped(state, command, stamp, observed=observed, graph_ids=graph_ids)


def handle_stamped(
    state: ExecutionState,
    command: Command,
    stamp: Stamp,
    *,
    observed: bool = False,
    graph_ids: Container[str] | None = None,
) -> list[Event]:
    """Do the same with a stamp that other events of the commit share; it must be for this state's execution."""
    _check_execution(state, command, observed=observed)
    events: list[Event] = []
    cause = command.causation_id
    for payload in _payloads(state, command, graph_ids):
        event = stamp.event(payload, command.actor, causation_id=cause)
        events.append(event)
        cause = event.event_id
    return events


def _payloads(state: ExecutionState, command: Command, graph_ids: Container[str] | None) -> list[Payload]:
    match command:
        case CreateExecution():
            return _create(state, command, graph_ids)
        case StartExecution():
            if state.started_at is not None:
                return []
            return [ExecutionStarted(started_by=command.started_by, extra=command.extra)]
        case CancelExecution():
            if state.is_terminal or state.is_cancel_requested:
                return []
            requested_by = command.requested_by or _party(command)
            return [ExecutionCancelRequested(reason=command.reason, requested_by=requested_by, extra=command.extra)]
        case ArchiveExecution():
            return _archive(state, command)
        case MarkNodeReady():
            if _node(state, command).status in NODE_GUARDS[command.type].already_done:
                return []
            return [NodeReady(node_id=command.node_id, extra=command.extra)]
        case StartNode():
            return _start_node(_node(state, command), command)
        case ReportNodeProgress() | PutNodeWaiting() | RequestResumeNode() | ResumeNode() | SucceedNode() | FailNode():
            return _report(state, _node(state, command), command)


# --- Guards ----------------------------------------------------------------------------------------------------------


def _check_execution(state: ExecutionState, command: Command, *, observed: bool) -> None:
    if command.execution_id != state.execution_id:
        raise CommandRejected(
            RejectionCode.WRONG_EXECUTION,
            command,
            f"it is for execution '{command.execution_id}', this is '{state.execution_id}'",
            {"executionId": state.execution_id},
        )
    if isinstance(command, CreateExecution):
        return
    if not state.exists:
        raise CommandRejected(
            RejectionCode.EXECUTION_NOT_FOUND,
            command,
            f"execution '{command.execution_id}' was never created",
            {"executionId": command.execution_id},
        )
    if isinstance(command, _ALSO_AFTER_THE_END):
        return
    if state.is_terminal:
        raise CommandRejected(
            RejectionCode.EXECUTION_TERMINAL,
            command,
            f"the execution has ended {state.status}",
            {"status": state.status.value},
        )
    excused = observed and command.type in _OBSERVABLE
    if state.cancel_requested_at is not None and command.type in REFUSED_AFTER_CANCEL and not excused:
        raise CommandRejected(
            RejectionCode.CANCEL_REQUESTED,
            command,
            "a cancel was requested, and cancel wins",
            {"cancelRequestedAt": rfc3339(state.cancel_requested_at)},
        )


def _node(state: ExecutionState, command: AnyNodeCommand) -> NodeState:
    """Return the node that a command is for, or raise if its status or attempt does not accept the command."""
    node = state.nodes.get(command.node_id)
    if node is None:
        raise _refusal(RejectionCode.NODE_NOT_FOUND, command, "the execution has no such node", None)
    if node.node_type in CONTROL:
        reason = f"it is a {node.node_type}, which only the orchestrator moves"
        raise _refusal(RejectionCode.NODE_IS_CONTROL, command, reason, node)
    if node.is_terminal:
        raise _refusal(RejectionCode.NODE_TERMINAL, command, f"it has ended {node.status}", node)
    guard = NODE_GUARDS[command.type]
    if node.status not in guard.accepts | guard.already_done:
        needed = " or ".join(status for status in NodeStatus if status in guard.accepts)
        raise _refusal(RejectionCode.NODE_STATUS, command, f"it is {node.status}, not {needed}", node)
    _check_attempt(node, command)
    between_attempts = node.status is NodeStatus.RUNNING and not node.is_at_work
    if between_attempts and not isinstance(command, (StartNode, FailNode)):
        reason = f"attempt {node.attempt} was reported failed; the next one has not started"
        raise _refusal(RejectionCode.BETWEEN_ATTEMPTS, command, reason, node)
    return node


def _check_attempt(node: NodeState, command: AnyNodeCommand) -> None:
    attempt: int | None = getattr(command, "attempt", None)
    if attempt is None:
        return
    if attempt < node.attempt:
        reason = f"attempt {attempt} was replaced by attempt {node.attempt}"
        raise _refusal(RejectionCode.STALE_ATTEMPT, command, reason, node)
    if attempt > node.attempt and not isinstance(command, StartNode):
        reason = f"attempt {attempt} never started, the node is at attempt {node.attempt}"
        raise _refusal(RejectionCode.UNKNOWN_ATTEMPT, command, reason, node)


def _refusal(code: RejectionCode, command: AnyNodeCommand, message: str, node: NodeState | None) -> CommandRejected:
    fact: JsonObject = {"nodeId": command.node_id}
    if node is not None:
        fact |= {"nodeStatus": node.status.value, "attempt": node.attempt}
    return CommandRejected(code, command, f"node '{command.node_id}': {message}", fact)


# --- Command to events -----------------------------------------------------------------------------------------------


def _create(state: ExecutionState, command: CreateExecution, graph_ids: Container[str] | None) -> list[Payload]:
    if state.exists:
        raise CommandRejected(
            RejectionCode.EXECUTION_EXISTS,
            command,
            f"execution '{command.execution_id}' exists already",
            {"executionId": command.execution_id, "graphId": state.graph_id},
        )
    if graph_ids is not None and command.graph_id not in graph_ids:
        raise CommandRejected(
            RejectionCode.GRAPH_NOT_FOUND,
            command,
            f"there is no graph '{command.graph_id}'",
            {"graphId": command.graph_id},
        )
    return [ExecutionCreated(graph_id=command.graph_id, input=command.input, extra=command.extra)]


def _archive(state: ExecutionState, command: ArchiveExecution) -> list[Payload]:
    if not state.is_terminal:
        raise CommandRejected(
            RejectionCode.EXECUTION_NOT_TERMINAL,
            command,
            "only an execution that has ended can be archived",
            {"status": state.status.value},
        )
    if state.archived_at is not None:
        return []
    return [ExecutionArchived(reason=command.reason, extra=command.extra)]


def _start_node(node: NodeState, command: StartNode) -> list[Payload]:
    asked_for = command.attempt
    if node.is_at_work and asked_for in {None, node.attempt}:
        if command.worker_id is not None and command.worker_id != node.worker_id:
            holder = f"worker '{node.worker_id}'" if node.worker_id else "a worker that gave no workerId"
            reason = f"attempt {node.attempt} is held by {holder}"
            raise _refusal(RejectionCode.NODE_HELD, command, reason, node)
        return []
    if node.status is NodeStatus.RUNNING and asked_for == node.attempt:
        reason = f"attempt {node.attempt} was reported failed; start attempt {node.attempt + 1}"
        raise _refusal(RejectionCode.BETWEEN_ATTEMPTS, command, reason, node)
    attempt = asked_for or node.attempt + 1
    return [NodeStarted(node_id=node.node_id, attempt=attempt, worker_id=command.worker_id, extra=command.extra)]


def _report(state: ExecutionState, node: NodeState, command: Report) -> list[Payload]:
    node_id, extra = command.node_id, command.extra
    attempt = node.attempt or None  # recorded even if the command did not name it, so that a reader knows the attempt
    match command:
        case ReportNodeProgress(progress=progress, message=message, metrics=metrics):
            reported = NodeProgressReported(
                node_id=node_id, attempt=attempt, progress=progress, message=message, metrics=metrics, extra=extra
            )
            return [reported]
        case PutNodeWaiting(wait_key=wait_key, prompt=prompt):
            return [NodeWaiting(node_id=node_id, attempt=attempt, wait_key=wait_key, prompt=prompt, extra=extra)]
        case RequestResumeNode(resume_key=resume_key):
            by = command.requested_by or _party(command)
            request = NodeResumeRequested(
                node_id=node_id, attempt=attempt, resume_key=resume_key, requested_by=by, extra=extra
            )
            return [request]
        case ResumeNode(resume_key=resume_key):
            if resume_key is not None and resume_key != node.wait_key:
                reason = "it does not wait for this resumeKey"
                raise _refusal(RejectionCode.RESUME_KEY_MISMATCH, command, reason, node)
            return [NodeResumed(node_id=node_id, attempt=attempt, extra=extra)]
        case SucceedNode(output=output):
            return [NodeSucceeded(node_id=node_id, attempt=attempt, output=output, extra=extra)]
        case FailNode():  # last of a closed set
            return _fail_node(node, command, may_retry=not state.is_cancel_requested)


def _fail_node(node: NodeState, command: FailNode, *, may_retry: bool) -> list[Payload]:
    """Record that an attempt failed; the node fails, too, unless it may be tried again."""
    node_id, attempt, error, extra = node.node_id, node.attempt or None, command.error, command.extra
    payloads: list[Payload] = []
    failures = node.failures
    if node.failed_attempt < node.attempt:  # otherwise this attempt's failure is on record already
        payloads.append(NodeFailReported(node_id=node_id, attempt=attempt, error=error, extra=extra))
        failures += 1
    tried_again = may_retry and command.retryable and failures <= node.retries
    if node.status is NodeStatus.WAITING or not tried_again:
        payloads.append(NodeFailed(node_id=node_id, attempt=attempt, error=error, extra=extra))
    return payloads


def _party(command: Command) -> JsonObject:
    actor = command.actor
    return {"kind": actor.kind.value} | ({} if actor.id is None else {"id": actor.id})
