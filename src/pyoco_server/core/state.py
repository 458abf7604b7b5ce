"""The state of an execution after some of its events.

States are values: the reducer makes a new one and does not change the old one. ``nodes`` is a persistent map, so a new
state shares all but the changed path with the old one, and a step costs the same with a hundred nodes as with ten
thousand. For the same reason the state has two running sums, ``counts`` and, while the execution is active,
``tallies``: both could be counted from ``nodes``, but that would be a walk over all nodes at every step.
"""

from datetime import datetime
from typing import Final

import msgspec
from immutables import Map

from pyoco_server.core.joins import EdgeTally, Fate
from pyoco_server.core.json_codec import JsonObject, as_json, rfc3339
from pyoco_server.core.payloads import EdgeOn, JoinPolicy, NodeMeta, Skip, Successor
from pyoco_server.core.transitions import (
    LIVE_NODE,
    TERMINAL_EXECUTION,
    TERMINAL_NODE,
    ExecutionStatus,
    NodeStatus,
)

_OUTCOME: Final = {
    NodeStatus.SUCCEEDED: EdgeOn.SUCCESS,
    NodeStatus.FAILED: EdgeOn.FAILURE,
    NodeStatus.CANCELED: EdgeOn.CANCEL,
}


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One node: the specification's fields, then those of this package."""

    node_id: str
    node_type: str
    status: NodeStatus = NodeStatus.IDLE
    attempt: int = 0
    worker_id: str | None = None
    wait_key: str | None = None
    output: JsonObject | None = None
    error: JsonObject | None = None
    canceled_by_execution: bool = False
    cancellation_applied: bool = False

    prompt: JsonObject | None = None
    resumption: JsonObject | None = None
    """The input of the last resume, until the node waits again."""
    progress: float | None = None
    progress_message: str | None = None
    failed_attempt: int = 0
    """The last attempt that was reported as failed; equal to ``attempt`` while the node waits for its next attempt."""
    interrupted_attempt: int = 0
    """The last attempt that was asked to stop."""
    failures: int = 0
    """How many attempts were reported as failed."""
    retries: int = 0
    """How many times a failed attempt may be followed by another."""
    isolated: bool = False
    """Its failure does not fail the execution (fail policy *isolate*)."""
    skip: Skip | None = None
    edges: tuple[Successor, ...] = ()
    handles: tuple[EdgeOn, ...] = ()
    """The outcomes that its edges follow, each once and in their order, so that all processes write the same document.
    """
    inputs: int = 0

    @property
    def is_terminal(self) -> bool:
        """Has the node ended?"""
        return self.status in TERMINAL_NODE

    @property
    def is_tallied(self) -> bool:
        """Do branches meet here, so that a tally of them is kept?"""
        return self.inputs > 1 or self.node_type == "Join"

    @property
    def is_at_work(self) -> bool:
        """Is a worker executing an attempt now, according to the log?"""
        return self.status is NodeStatus.RUNNING and self.failed_attempt < self.attempt

    def fate(self, on: EdgeOn) -> Fate | None:
        """Return how an outgoing edge that follows ``on`` is settled; None while the node has not ended."""
        outcome = _OUTCOME.get(self.status)
        if outcome is None:
            return None
        if self.skip is not None:
            return Fate(self.skip.counts_as.value)
        if on is outcome or on is EdgeOn.ALWAYS:
            return Fate.TAKEN
        if outcome is EdgeOn.SUCCESS or outcome in self.handles or EdgeOn.ALWAYS in self.handles:
            return Fate.DROPPED
        if outcome is EdgeOn.CANCEL:
            return Fate.CANCELED
        return Fate.ISOLATED if self.isolated else Fate.FAILED

    def placed(self, place: NodeMeta) -> "NodeState":
        """Return the node with its place in the graph."""
        return msgspec.structs.replace(
            self,
            edges=place.edges,
            handles=tuple(dict.fromkeys(edge.on for edge in place.edges)),
            inputs=place.inputs or 0,
            retries=place.retries,
            isolated=place.isolated,
        )


class JoinGate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A join as its last JOIN_GATE_UPDATED recorded it, and whether it has passed."""

    expected_branches: tuple[str, ...] = ()
    completed_branches: tuple[str, ...] = ()
    failed_branches: tuple[str, ...] = ()
    canceled_branches: tuple[str, ...] = ()
    policy: JoinPolicy = JoinPolicy.ALL_SUCCESS
    is_passable: bool = False
    passed: bool = False


class Counts(msgspec.Struct, frozen=True, gc=False):
    """How many nodes have which status."""

    idle: int = 0
    ready: int = 0
    running: int = 0
    waiting: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def live(self) -> int:
        """How many nodes are ready, running or waiting."""
        return self.ready + self.running + self.waiting


class ExecutionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution: the specification's fields, then those of this package."""

    execution_id: str
    graph_id: str | None = None
    status: ExecutionStatus = ExecutionStatus.ACTIVE
    nodes: Map[str, NodeState] = Map()
    cancel_requested_at: datetime | None = None
    canceled_at: datetime | None = None
    failed_at: datetime | None = None
    completed_at: datetime | None = None
    version: int = 0
    """How many events took effect; in a log that this package wrote, the number of events."""

    created_at: datetime | None = None
    started_at: datetime | None = None
    archived_at: datetime | None = None
    cancel_reason: str | None = None
    join_gates: Map[str, JoinGate] = Map()
    input: JsonObject | None = None
    failure: JsonObject | None = None
    """Why it failed: reason, failedNodeId, error."""
    placed: int = 0
    """How many nodes were created with their place in a graph: an edge leads to them, or they are its start."""
    counts: Counts = Counts()
    tallies: Map[str, EdgeTally] = Map()

    @property
    def exists(self) -> bool:
        """Was it created?"""
        return self.graph_id is not None

    @property
    def is_terminal(self) -> bool:
        """Has it ended?"""
        return self.status in TERMINAL_EXECUTION

    @property
    def is_cancel_requested(self) -> bool:
        """Was it asked to cancel? Once true, always true."""
        return self.cancel_requested_at is not None

    def live_nodes(self) -> list[NodeState]:
        """Return the nodes that are ready, running or waiting, in no particular order. Looks at all nodes."""
        return [node for node in self.nodes.values() if node.status in LIVE_NODE]


def initial_state(execution_id: str) -> ExecutionState:
    """The state before the first event."""
    return ExecutionState(execution_id=execution_id)


def state_to_dict(state: ExecutionState) -> JsonObject:
    """Return the state as plain JSON with every field; absent values are null."""
    fields: JsonObject = {
        "executionId": state.execution_id,
        "graphId": state.graph_id,
        "status": state.status.value,
        "version": state.version,
    }
    for name, moment in (
        ("createdAt", state.created_at),
        ("startedAt", state.started_at),
        ("cancelRequestedAt", state.cancel_requested_at),
        ("canceledAt", state.canceled_at),
        ("failedAt", state.failed_at),
        ("completedAt", state.completed_at),
        ("archivedAt", state.archived_at),
    ):
        fields[name] = rfc3339(moment) if moment else None
    fields["cancelReason"] = state.cancel_reason
    fields["input"] = state.input
    fields["failure"] = state.failure
    fields["nodes"] = {node_id: _plain(state.nodes[node_id]) for node_id in sorted(state.nodes)}
    fields["joinGates"] = {node_id: _plain(state.join_gates[node_id]) for node_id in sorted(state.join_gates)}
    return fields


def _plain(value: NodeState | JoinGate) -> JsonObject:
    return as_json(value)
