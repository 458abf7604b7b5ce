"""The orchestrator: a command's events and all their consequences as one commit. Callers of the core start here.

After a node's end the graph prescribes what follows: the next nodes become ready, forks open, joins pass, the execution
completes, fails, or converges on a cancel. ``propagation`` adds these events to a fixed point, so the events of a
command and all their consequences make one commit.

There are two ways to ask. :func:`advance` (:func:`commit` returns the state, too) handles a command and looks only at
the nodes that its events touch, so a step costs the same in a graph of ten nodes and of ten thousand.
:func:`orchestrate` looks at the whole graph. Both lead to the same state: after ``advance``, ``orchestrate`` returns
nothing.

The other functions make the commits that no command makes: ends from outside (:func:`fail`, :func:`adopt_end`,
:func:`cancel_after_end`), the cancel of one node, and nodes that a block adds while the execution runs.
"""

from datetime import datetime

from pyoco_server.core.command_handler import CommandRejected, RejectionCode, handle_stamped
from pyoco_server.core.commands import CancelExecution, Command, StartExecution, StartNode
from pyoco_server.core.commit import Commit, Draft
from pyoco_server.core.events import ORCHESTRATOR, Actor, Event, NewId, Stamp
from pyoco_server.core.failure_propagation import stop_node
from pyoco_server.core.graph import CONTROL, Graph
from pyoco_server.core.json_codec import JsonObject, as_json, timestamp
from pyoco_server.core.payloads import (
    ExecutionCanceled,
    ExecutionCancelRequested,
    ExecutionCompleted,
    ExecutionFailed,
    NodeCanceled,
    NodeCreated,
    NodeMeta,
    NodeReady,
)
from pyoco_server.core.propagation import (
    CancelMode,
    Propagation,
    assign_graph_positions,
    converge,
    has_graph_position,
)
from pyoco_server.core.reducer import fold
from pyoco_server.core.start_cache import cached_start, is_unstarted, remember
from pyoco_server.core.state import ExecutionState
from pyoco_server.core.transitions import ExecutionStatus
from pyoco_server.errors import PyocoServerError


class NodeNotStoppableError(PyocoServerError, ValueError):
    """There is nothing to stop: the node is unknown, does no work or has ended, or no stop was requested."""


class WrongGraphError(PyocoServerError, ValueError):
    """The execution runs on another graph; the caller passed the wrong one."""


def orchestrate(
    graph: Graph,
    state: ExecutionState,
    *,
    now: datetime | str,
    new_id: NewId,
    cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    cause: Event | None = None,
) -> list[Event]:
    """Return everything that follows from ``state``; an empty list if all consequences are in the log already."""
    correlation_id = cause.correlation_id if cause else None
    draft = _draft(graph, state, now=now, new_id=new_id, correlation_id=correlation_id)
    work = Propagation(graph, draft, cancel_mode=cancel_mode, cause=cause)
    work.consider_everything()
    return work.finish()


def advance(
    graph: Graph,
    state: ExecutionState,
    command: Command,
    *,
    now: datetime | str,
    new_id: NewId,
    cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    observed: bool = False,
) -> list[Event]:
    """Handle ``command`` and add every consequence; return the events of the commit.

    Raises :class:`CommandRejected` if a guard refuses; ``observed`` is explained at :func:`handle`.
    """
    return commit(graph, state, command, now=now, new_id=new_id, cancel_mode=cancel_mode, observed=observed).events


def commit(
    graph: Graph,
    state: ExecutionState,
    command: Command,
    *,
    now: datetime | str,
    new_id: NewId,
    cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
    observed: bool = False,
) -> Commit:
    """Do the same as :func:`advance`; return the events with the state after them."""
    now, state = timestamp(now), assign_graph_positions(graph, state)
    if state.graph_id is not None and state.graph_id != graph.graph_id:
        raise CommandRejected(
            RejectionCode.GRAPH_NOT_FOUND,
            command,
            f"the execution runs on graph '{state.graph_id}', not '{graph.graph_id}'",
            {"graphId": state.graph_id},
        )
    stamp = Stamp(execution_id=state.execution_id, now=now, new_id=new_id, correlation_id=command.correlation_id)
    events = handle_stamped(state, command, stamp, observed=observed, graph_ids=(graph.graph_id,))
    if not events and not isinstance(command, CancelExecution):
        return Commit([], state)
    if isinstance(command, StartNode) and has_graph_position(graph, state):
        return Commit(events, fold(events, state))  # nothing follows from the start of an attempt
    is_start = isinstance(command, StartExecution) and is_unstarted(state)
    known = cached_start(graph) if is_start else None
    if known is not None:
        return known.commit(graph, state, events[0], stamp)
    draft = Draft(state, stamp)
    work = Propagation(graph, draft, cancel_mode=cancel_mode)
    if events:
        work.consider(events)
    else:
        work.consider_everything()  # a repeated cancel has no event, but with IMMEDIATE it ends the wait for workers
    made = Commit(work.finish(), draft.state)
    if is_start:
        remember(graph, made)
    return made


def cancel_node(
    graph: Graph,
    state: ExecutionState,
    node_id: str,
    *,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
    reason: str | None = None,
    correlation_id: str | None = None,
) -> list[Event]:
    """Cancel one node, not the execution, with all consequences.

    No command does this; it is for policies, such as a limit on how long a branch may take.
    """
    _check_stoppable(state, node_id)
    work = Propagation(graph, _draft(graph, state, now=now, new_id=new_id, correlation_id=correlation_id))
    work.cancel([state.nodes[node_id]], reason, None, actor=actor)
    return work.finish()


def confirm_stopped(
    graph: Graph,
    state: ExecutionState,
    node_id: str,
    *,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
    attempt: int | None = None,
    reason: str | None = None,
    correlation_id: str | None = None,
) -> list[Event]:
    """Record that a node, which was asked to stop, stopped without a result; the last such node ends the cancel."""
    _check_stoppable(state, node_id)
    node = state.nodes[node_id]
    if node.interrupted_attempt < max(node.attempt, 1):
        raise NodeNotStoppableError(f"node '{node_id}' was not asked to stop")
    if attempt is not None and attempt != node.attempt:
        raise NodeNotStoppableError(f"node '{node_id}' is at attempt {node.attempt}, not {attempt}")
    draft = _draft(graph, state, now=now, new_id=new_id, correlation_id=correlation_id)
    work = Propagation(graph, draft)
    work.ended(node_id, draft.emit(NodeCanceled(node_id=node_id, attempt=attempt, reason=reason), None, actor=actor))
    return work.finish()


def fail(
    state: ExecutionState,
    *,
    reason: str,
    error: JsonObject,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
    correlation_id: str | None = None,
) -> list[Event]:
    """End an execution as failed for a reason outside of its nodes: no worker can run it, or it makes no progress.

    No command does this; it is for the process that must bring executions to an end. An execution that has ended stays
    as it is, and one that was asked to cancel ends CANCELED: cancel wins.
    """
    if not state.exists or state.is_terminal:
        return []
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=correlation_id)
    draft = Draft(state, stamp)
    if state.is_cancel_requested:
        converge(draft, None, CancelMode.IMMEDIATE)
        return draft.events
    for node in sorted(state.live_nodes(), key=lambda live: live.node_id):
        stop_node(draft, node, reason, None)
    draft.emit(ExecutionFailed(reason=reason, error=error), None, actor=actor)
    return draft.events


def adopt_end(
    state: ExecutionState,
    status: ExecutionStatus,
    *,
    reason: str | None,
    error: JsonObject | None,
    extra: JsonObject,
    actor: Actor,
    now: datetime | str,
    new_id: NewId,
) -> list[Event]:
    """End an execution in the terminal ``status`` that another program recorded for it.

    ``extra`` is kept in the last event; ``error`` is that of a failure. Live nodes are canceled. An execution that has
    ended stays as it is, and one that was asked to cancel ends CANCELED whatever ``status`` says: cancel wins.
    """
    if not state.exists or state.is_terminal:
        return []
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id)
    draft = Draft(state, stamp)
    if status is ExecutionStatus.CANCELED:
        cancel = CancelExecution(execution_id=state.execution_id, actor=actor, reason=reason)
        for event in handle_stamped(state, cancel, stamp):
            draft.take(event)
    is_cancel = draft.state.is_cancel_requested
    left = [node for node in draft.state.nodes.values() if not node.is_terminal] if is_cancel else state.live_nodes()
    for node in sorted(left, key=lambda open_node: open_node.node_id):
        stop_node(draft, node, draft.state.cancel_reason if is_cancel else reason, None)
    if is_cancel:
        draft.emit(ExecutionCanceled(reason=draft.state.cancel_reason, extra=extra), None, actor=actor)
    elif status is ExecutionStatus.COMPLETED:
        draft.emit(ExecutionCompleted(extra=extra), None, actor=actor)
    else:
        draft.emit(ExecutionFailed(reason=reason, error=error, extra=extra), None, actor=actor)
    return draft.events


def cancel_after_end(
    state: ExecutionState, *, reason: str | None, actor: Actor, now: datetime | str, new_id: NewId
) -> list[Event]:
    """Record a cancel that ``actor`` had accepted before it could see the end of the execution: cancel wins by rank.

    This is the only case in which a cancel follows an end. An archived execution stays as it is.
    """
    if not state.is_terminal or state.status is ExecutionStatus.CANCELED or state.archived_at is not None:
        return []
    draft = Draft(state, Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id))
    requested = draft.emit(ExecutionCancelRequested(reason=reason), None, actor=actor)
    draft.emit(ExecutionCanceled(reason=reason), requested)
    return draft.events


def add_node(
    state: ExecutionState,
    node_id: str,
    node_type: str,
    *,
    now: datetime | str,
    new_id: NewId,
    retries: int = 0,
    described: JsonObject | None = None,
    actor: Actor = ORCHESTRATOR,
    correlation_id: str | None = None,
) -> list[Event]:
    """Create a node that the graph does not have, and make it ready: a step that is known only when it is reached.

    The block that made the node decides what follows its end. Nothing is added to an execution that has ended or was
    asked to cancel, and no node is created twice.
    """
    if state.is_terminal or state.is_cancel_requested or node_id in state.nodes:
        return []
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=correlation_id)
    draft = Draft(state, stamp)
    meta = as_json(NodeMeta(node=described or {}, inputs=0, retries=retries))
    created = draft.emit(NodeCreated(node_id=node_id, node_type=node_type, meta=meta), None, actor=actor)
    draft.emit(NodeReady(node_id=node_id), created, actor=actor)
    return draft.events


def _draft(
    graph: Graph, state: ExecutionState, *, now: datetime | str, new_id: NewId, correlation_id: str | None
) -> Draft:
    """Return an empty draft on ``state``, whose nodes all have their places."""
    if state.graph_id is not None and state.graph_id != graph.graph_id:
        raise WrongGraphError(f"the execution runs on graph '{state.graph_id}', not '{graph.graph_id}'")
    stamp = Stamp(execution_id=state.execution_id, now=timestamp(now), new_id=new_id, correlation_id=correlation_id)
    return Draft(assign_graph_positions(graph, state), stamp)


def _check_stoppable(state: ExecutionState, node_id: str) -> None:
    node = state.nodes.get(node_id)
    if node is None:
        raise NodeNotStoppableError(f"there is no node '{node_id}'")
    if node.node_type in CONTROL:
        raise NodeNotStoppableError(f"node '{node_id}' is a {node.node_type}: there is no work to stop")
    if state.is_terminal:
        raise NodeNotStoppableError(f"the execution has ended {state.status}")
    if node.is_terminal:
        raise NodeNotStoppableError(f"node '{node_id}' has ended {node.status}")
