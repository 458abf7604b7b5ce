"""What is known of an execution after some of its events.

States are values: the reducer makes a new one and leaves the old one alone. ``nodes`` is a persistent map, so a new
state shares all but the touched path with the old, and a step costs the same with a hundred nodes as with ten thousand.
For the same reason the state carries two running sums, ``counts`` and, while the execution is active, ``tallies``: they
hold nothing that could not be counted from ``nodes``, but counting would cost a walk over all of them at every step.
"""

from datetime import datetime
from typing import Final

import msgspec
from immutables import Map

from pyoco_server.core.joins import Fate, Tally
from pyoco_server.core.payloads import EdgeOn, JoinPolicy, NodeMeta, Skip, Successor
from pyoco_server.core.transitions import (
    LIVE_NODE,
    TERMINAL_EXECUTION,
    TERMINAL_NODE,
    ExecutionStatus,
    NodeStatus,
)
from pyoco_server.core.wire import JsonObject, as_json, rfc3339

_OUTCOME: Final = {
    NodeStatus.SUCCEEDED: EdgeOn.SUCCESS,
    NodeStatus.FAILED: EdgeOn.FAILURE,
    NodeStatus.CANCELED: EdgeOn.CANCEL,
}


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One node: the specification's fields, then what this system keeps beside them."""

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
    """What came with the resume of its last wait, until it waits again."""
    progress: float | None = None
    progress_message: str | None = None
    failed_attempt: int = 0
    """The last attempt reported as failed; equal to ``attempt`` while the node waits to be tried again."""
    interrupted_attempt: int = 0
    """The last attempt asked to stop."""
    failures: int = 0
    """How many attempts were reported as failed."""
    retries: int = 0
    """How many failed attempts may be followed by another."""
    isolated: bool = False
    """Its failure is its own affair (fail policy *isolate*)."""
    skip: Skip | None = None
    edges: tuple[Successor, ...] = ()
    handles: tuple[EdgeOn, ...] = ()
    """The outcomes its edges follow, each once and in their order: a document must not differ from one process to
    another."""
    inputs: int = 0

    @property
    def is_terminal(self) -> bool:
        """Can the node not change any more?"""
        return self.status in TERMINAL_NODE

    @property
    def is_tallied(self) -> bool:
        """Do branches meet here, so that it matters how many came in?"""
        return self.inputs > 1 or self.node_type == "Join"

    @property
    def is_at_work(self) -> bool:
        """Is somebody executing an attempt right now, as far as the log tells?"""
        return self.status is NodeStatus.RUNNING and self.failed_attempt < self.attempt

    def fate(self, on: EdgeOn) -> Fate | None:
        """How an outgoing edge that follows ``on`` is settled; None while the node goes on."""
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
        """The node with what its graph says of it."""
        return msgspec.structs.replace(
            self,
            edges=place.edges,
            handles=tuple(dict.fromkeys(edge.on for edge in place.edges)),
            inputs=place.inputs or 0,
            retries=place.retries,
            isolated=place.isolated,
        )


class JoinGate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A join as its last JOIN_GATE_UPDATED told it, and whether it was passed."""

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
        """Nodes that are under way."""
        return self.ready + self.running + self.waiting


class ExecutionState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One execution: the specification's fields, then what this system keeps beside them."""

    execution_id: str
    graph_id: str | None = None
    status: ExecutionStatus = ExecutionStatus.ACTIVE
    nodes: Map[str, NodeState] = Map()
    cancel_requested_at: datetime | None = None
    canceled_at: datetime | None = None
    failed_at: datetime | None = None
    completed_at: datetime | None = None
    version: int = 0
    """How many events took effect; in a log this system wrote, the number of events."""

    created_at: datetime | None = None
    started_at: datetime | None = None
    archived_at: datetime | None = None
    cancel_reason: str | None = None
    join_gates: Map[str, JoinGate] = Map()
    input: JsonObject | None = None
    failure: JsonObject | None = None
    """Why it failed: reason, failedNodeId, error."""
    placed: int = 0
    """How many nodes were created with their place in a graph: something leads to them, or they are its start."""
    counts: Counts = Counts()
    tallies: Map[str, Tally] = Map()

    @property
    def exists(self) -> bool:
        """Was it ever created?"""
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
        """The nodes that are under way, in no particular order. Looks at all nodes."""
        return [node for node in self.nodes.values() if node.status in LIVE_NODE]


def initial_state(execution_id: str) -> ExecutionState:
    """The state before the first event."""
    return ExecutionState(execution_id=execution_id)


def state_to_dict(state: ExecutionState) -> JsonObject:
    """Return the state as plain JSON: every field is there, absent values are null."""
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
