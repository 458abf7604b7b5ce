"""Invariants of every log that this package writes, in any process and in any way."""

from collections import Counter
from collections.abc import Sequence

from pyoco_server.core import Event, EventType, ExecutionState, Graph, decode_event, encode_event, fold, orchestrate
from pyoco_server.core.joins import EdgeTally
from pyoco_server.core.payloads import NodePayload, NodeStarted, NodeSucceeded
from pyoco_server.core.reducer import reduce
from pyoco_server.core.state import Counts, initial_state
from pyoco_server.core.transitions import (
    EXECUTION_RANK,
    EXECUTION_STEPS,
    LIVE_NODE,
    NODE_PROPOSALS,
    NODE_RANK,
    NODE_STEPS,
    STEPS_DOWN,
    STEPS_IN_PLACE,
    ExecutionStatus,
)
from tests.build import T0, Ids

ONCE_PER_EXECUTION = {
    EventType.EXECUTION_CREATED,
    EventType.EXECUTION_STARTED,
    EventType.EXECUTION_COMPLETED,
    EventType.EXECUTION_CANCEL_REQUESTED,
    EventType.EXECUTION_CANCELED,
    EventType.EXECUTION_FAILED,
    EventType.EXECUTION_ARCHIVED,
}
ONCE_PER_NODE = {
    EventType.NODE_CREATED,
    EventType.NODE_READY,
    EventType.NODE_FAILED,
    EventType.NODE_CANCEL_REQUESTED,
    EventType.NODE_CANCELED,
    EventType.FORK_OPENED,
    EventType.JOIN_PASSED,
}
ENDS = {EventType.EXECUTION_COMPLETED, EventType.EXECUTION_FAILED, EventType.EXECUTION_CANCELED}


def check_step(before: ExecutionState, event: Event) -> ExecutionState:
    """Fold one event and hold the step it makes against the rules."""
    after = reduce(before, event)
    assert after is not before, f"{event.type} was written but has no effect"
    assert after.version == before.version + 1
    assert EXECUTION_RANK[after.status] >= EXECUTION_RANK[before.status]
    if after.status is not before.status:
        assert EXECUTION_STEPS[before.status][event.type] is after.status
    if before.is_cancel_requested:
        assert after.cancel_requested_at == before.cancel_requested_at
        assert after.status in {ExecutionStatus.ACTIVE, ExecutionStatus.CANCELED}
    if before.is_terminal:
        assert event.type is EventType.EXECUTION_ARCHIVED, f"{event.type} after the end"
    if isinstance(event.payload, NodePayload) and event.type is not EventType.NODE_CREATED:
        _check_node_step(before, after, event, event.payload.node_id)
    return after


def _check_node_step(before: ExecutionState, after: ExecutionState, event: Event, node_id: str) -> None:
    old, new = before.nodes[node_id], after.nodes[node_id]
    if new.status is not old.status:
        assert NODE_STEPS[old.status][event.type] is new.status
        stepped_down = (old.status, event.type) in STEPS_DOWN
        assert stepped_down or NODE_RANK[new.status] > NODE_RANK[old.status]
    elif event.type in NODE_PROPOSALS:
        assert event.type in STEPS_IN_PLACE.get(old.status, ()), f"{event.type} changed nothing"
        if event.type is EventType.NODE_STARTED:
            assert new.attempt > old.attempt
        else:
            assert new.attempt == old.attempt == (new.output or {})["attempt"] > (old.output or {}).get("attempt", 0)


def check_log(graph: Graph, log: Sequence[Event], state: ExecutionState) -> None:
    """Hold a whole log, and the state it led to, against the rules."""
    replayed = initial_state(state.execution_id)
    for event in log:
        replayed = check_step(replayed, event)
    assert replayed == state
    assert fold([decode_event(encode_event(event)) for event in log]) == state
    assert state.version == len(log)
    check_no_repeats(log)
    check_state(graph, state)


def check_no_repeats(log: Sequence[Event]) -> None:
    """No event twice: neither the same one, nor the same fact in two."""
    assert len({event.event_id for event in log}) == len(log)
    facts: Counter[tuple[object, ...]] = Counter()
    for event in log:
        if event.type in ONCE_PER_EXECUTION:
            facts[event.type,] += 1
        elif event.type in ONCE_PER_NODE and isinstance(event.payload, NodePayload):
            facts[event.type, event.payload.node_id] += 1
        elif isinstance(event.payload, NodeStarted | NodeSucceeded):
            facts[event.type, event.payload.node_id, event.payload.attempt] += 1
    assert [fact for fact, count in facts.items() if count > 1] == []
    assert sum(event.type in ENDS for event in log) <= 1


def check_causes(commit: Sequence[Event]) -> None:
    """Check that each event of a commit follows from its first one, directly or through events before it."""
    known = {commit[0].event_id}
    for event in commit[1:]:
        assert event.causation_id in known, f"{event.type} has no cause in its commit"
        assert event.correlation_id == commit[0].correlation_id
        known.add(event.event_id)


def check_state(graph: Graph, state: ExecutionState) -> None:
    """Check the invariants of a state between two commands."""
    check_sums(state)
    left = orchestrate(graph, state, now=T0, new_id=Ids())
    assert left == [], f"consequences are missing: {[event.type for event in left]}"
    if state.is_terminal:
        assert [node.node_id for node in state.nodes.values() if node.status in LIVE_NODE] == []
    if state.status is ExecutionStatus.CANCELED:
        assert all(node.is_terminal for node in state.nodes.values())
        for node in state.nodes.values():
            assert node.cancellation_applied == (node.status in {"SUCCEEDED", "FAILED"})


def check_sums(state: ExecutionState) -> None:
    """Check that the running sums equal a count over all nodes."""
    recount = Counter(node.status.value.lower() for node in state.nodes.values())
    assert state.counts == Counts(**recount)
    tallies: dict[str, EdgeTally] = {}
    for node in state.nodes.values():
        for edge in node.edges:
            target = state.nodes[edge.to]
            fate = node.fate(edge.on)
            if fate is not None and (target.inputs > 1 or target.node_type == "Join"):
                tallies[edge.to] = tallies.get(edge.to, EdgeTally(target.inputs)).plus(fate)
    if state.status is not ExecutionStatus.CANCELED:  # convergence cancels nodes without counting their edges
        assert dict(state.tallies) == tallies
