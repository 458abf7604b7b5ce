"""Checks of what happened to a run, with messages that state where it stands.

Each takes a :class:`FlowResult` or the events of a run. Nodes are named by their ids: a task's name, or, inside a loop
or a group, a path such as ``:foreach[0]/double`` (see :func:`nodes_of`).
"""

import itertools
from collections.abc import Sequence
from typing import NoReturn

from pyoco_server.core import Event, EventType, ExecutionState, ExecutionStatus, NodeState, NodeStatus, fold
from pyoco_server.core.payloads import (
    NodeCreated,
    NodeFailReported,
    NodePayload,
    NodeProgressReported,
    NodeStarted,
    NodeSucceeded,
)
from pyoco_server.testing.standing import standing
from pyoco_server.testing.tester import FlowResult

History = FlowResult | Sequence[Event]

# --- How the run ended -----------------------------------------------------------------------------------------------


def assert_completed(history: History) -> None:
    """The run came to its end and succeeded."""
    _assert_status(history, ExecutionStatus.COMPLETED)


def assert_canceled(history: History, *, reason: str | None = None) -> None:
    """The run ended cancelled, for this reason if one is given."""
    _assert_status(history, ExecutionStatus.CANCELED)
    state = _state(history)
    if reason is not None and state.cancel_reason != reason:
        _fail(state, f"the run was cancelled with the reason {state.cancel_reason!r}, not {reason!r}")


def assert_failed(history: History, *, node: str | None = None, code: str | None = None) -> None:
    """The run failed, because of this node and with this error code if they are given.

    The code of an exception is the name of its class; others are TIMEOUT and WAIT_DEADLINE.
    """
    _assert_status(history, ExecutionStatus.FAILED)
    state = _state(history)
    failure = state.failure or {}
    if node is not None and failure.get("failedNodeId") != node:
        _fail(state, f"the run failed because of '{failure.get('failedNodeId')}', not '{node}'")
    found = (failure.get("error") or {}).get("code")
    if code is not None and found != code:
        _fail(state, f"the run failed with the code {found!r}, not {code!r}")


# --- What became of a node -------------------------------------------------------------------------------------------


def assert_succeeded(history: History, *nodes: str) -> None:
    """Every one of these nodes succeeded."""
    for node in nodes:
        _assert_node(history, node, NodeStatus.SUCCEEDED)


def assert_node_failed(history: History, node: str, *, code: str | None = None) -> None:
    """The node failed for good, whatever that meant for the run; with this error code if one is given."""
    found = (_assert_node(history, node, NodeStatus.FAILED).error or {}).get("code")
    if code is not None and found != code:
        _fail(_state(history), f"node '{node}' failed with the code {found!r}, not {code!r}")


def assert_waiting(history: History, node: str) -> None:
    """The node waits for an answer."""
    _assert_node(history, node, NodeStatus.WAITING)


def assert_never_started(history: History, *nodes: str) -> None:
    """None of these nodes was ever begun; they need not exist."""
    state = _state(history)
    for node in nodes:
        if node in state.nodes and state.nodes[node].attempt:
            _fail(state, f"node '{node}' was begun")


def assert_attempts(history: History, node: str, count: int) -> None:
    """The node was begun so many times."""
    state = _state(history)
    _node(state, node)
    begun = sum(event.payload.node_id == node for event in _events(history) if isinstance(event.payload, NodeStarted))
    if begun != count:
        _fail(state, f"node '{node}' was begun {_times(begun)}, not {_times(count)}")


def assert_order(history: History, *nodes: str) -> None:
    """These nodes succeeded, in this order; others may have come in between."""
    assert_succeeded(history, *nodes)
    succeeded = [event.payload.node_id for event in _events(history) if isinstance(event.payload, NodeSucceeded)]
    for earlier, later in itertools.pairwise(nodes):
        if succeeded.index(earlier) > succeeded.index(later):
            wanted = " → ".join(node for node in succeeded if node in nodes)
            _fail(_state(history), f"node '{later}' succeeded before '{earlier}'; the order was {wanted}")


def assert_progress(history: History, node: str, *percents: float) -> None:
    """The node reported at least these percentages, in this order."""
    reported = [
        event.payload.progress
        for event in _events(history)
        if isinstance(event.payload, NodeProgressReported) and event.payload.node_id == node
    ]
    left = iter(reported)
    if not all(any(found == percent for found in left) for percent in percents):
        _fail(_state(history), f"node '{node}' reported the progress {reported}, not {list(percents)}")


# --- Looking for oneself ---------------------------------------------------------------------------------------------


def events_of(history: History, event_type: EventType | str, *, node: str | None = None) -> list[Event]:
    """The events of a type (``"NODE_STARTED"``), of one node only if it is given; ValueError for an unknown type."""
    wanted = EventType(event_type)
    found = [event for event in _events(history) if event.type is wanted]
    if node is None:
        return found
    return [event for event in found if isinstance(event.payload, NodePayload) and event.payload.node_id == node]


def nodes_of(history: History, task: str) -> list[str]:
    """The ids of all nodes of a task, in the order of their creation: one for each round of a loop it stands in."""
    return [
        event.payload.node_id
        for event in _events(history)
        if isinstance(event.payload, NodeCreated) and ((event.payload.meta or {}).get("node") or {}).get("task") == task
    ]


def pauses_of(history: History, node: str) -> list[float]:
    """The virtual seconds between each failed attempt of a node and the next attempt."""
    pauses: list[float] = []
    failed: Event | None = None
    for event in _events(history):
        payload = event.payload
        if isinstance(payload, NodeFailReported) and payload.node_id == node:
            failed = event
        elif isinstance(payload, NodeStarted) and payload.node_id == node and failed is not None:
            pauses.append((event.occurred_at - failed.occurred_at).total_seconds())
            failed = None
    return pauses


# --- Inside ----------------------------------------------------------------------------------------------------------


def _events(history: History) -> Sequence[Event]:
    return history.events if isinstance(history, FlowResult) else history


def _state(history: History) -> ExecutionState:
    return history.state if isinstance(history, FlowResult) else fold(history)


def _assert_status(history: History, wanted: ExecutionStatus) -> None:
    state = _state(history)
    if state.status is not wanted:
        _fail(state, f"the run should be {wanted.value}, and is {state.status.value}")


def _assert_node(history: History, node: str, wanted: NodeStatus) -> NodeState:
    state = _state(history)
    found = _node(state, node)
    if found.status is not wanted:
        _fail(state, f"node '{node}' should be {wanted.value}, and is {found.status.value}")
    return found


def _node(state: ExecutionState, node: str) -> NodeState:
    found = state.nodes.get(node)
    if found is None:
        _fail(state, f"the run has no node '{node}'")
    return found


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _fail(state: ExecutionState, problem: str) -> NoReturn:
    raise AssertionError(f"{problem}\n{standing(state)}")
