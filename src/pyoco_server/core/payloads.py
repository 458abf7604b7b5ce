"""The payloads of the 24 events. Field names are those of the wire, in Python's spelling.

Fields that the specification does not list but this package writes are marked *ours*; they are optional, so the logs
of other programs can be read, too.
"""

from datetime import datetime
from enum import StrEnum, unique
from typing import Annotated, ClassVar, Final

import msgspec

from pyoco_server.core.json_codec import Extensible, JsonObject, Name
from pyoco_server.core.transitions import EventType

Attempt = Annotated[int, msgspec.Meta(ge=1)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)] | Annotated[float, msgspec.Meta(ge=0, le=100)]


@unique
class JoinPolicy(StrEnum):
    """When a join passes."""

    ALL_SUCCESS = "ALL_SUCCESS"
    ANY_SUCCESS = "ANY_SUCCESS"
    ALL_DONE = "ALL_DONE"
    CUSTOM = "CUSTOM"


@unique
class SkipKind(StrEnum):
    """How a node that never ran counts at the join that its branch leads to."""

    FAILED = "failed"
    ISOLATED = "isolated"
    CANCELED = "canceled"
    DROPPED = "dropped"


@unique
class EdgeOn(StrEnum):
    """Which outcome of its source an edge follows."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCEL = "cancel"
    ALWAYS = "always"


class Successor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """An outgoing edge as NODE_CREATED records it."""

    to: Name
    on: EdgeOn = EdgeOn.SUCCESS
    meets: bool = False
    """Do branches meet at its target, so that the target keeps a tally?"""


class Skip(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Why a node can no longer run: the node whose end prevents it, and how that counts."""

    by: Name
    counts_as: SkipKind


class Party(msgspec.Struct, frozen=True, gc=False):
    """Who made a request: like an actor, but of any kind."""

    kind: str
    id: str | None = None


class ErrorInfo(msgspec.Struct, frozen=True, gc=False):
    """A description of an error."""

    code: str | None = None
    message: str | None = None
    detail: JsonObject | None = None


class Payload(Extensible, frozen=True, kw_only=True):
    """Base of the 24 payloads."""

    type: ClassVar[EventType]


class NodePayload(Payload, frozen=True, kw_only=True):
    """Base of the payloads about one node."""

    node_id: Name


class AttemptPayload(NodePayload, frozen=True, kw_only=True):
    """Base of the payloads about one attempt of a node; with ``attempt`` (ours) a stale one can be recognised."""

    attempt: Attempt | None = None


# --- Execution lifecycle ---------------------------------------------------------------------------------------------


class ExecutionCreated(Payload, frozen=True, kw_only=True):
    """The execution exists."""

    type: ClassVar = EventType.EXECUTION_CREATED
    graph_id: Name
    input: JsonObject | None = None


class ExecutionStarted(Payload, frozen=True, kw_only=True):
    """The execution was started."""

    type: ClassVar = EventType.EXECUTION_STARTED
    parts: ClassVar = {"startedBy": Party}
    started_by: JsonObject | None = None


class ExecutionCompleted(Payload, frozen=True, kw_only=True):
    """The execution reached its end."""

    type: ClassVar = EventType.EXECUTION_COMPLETED
    result: JsonObject | None = None


class ExecutionArchived(Payload, frozen=True, kw_only=True):
    """The execution was archived; its status does not change."""

    type: ClassVar = EventType.EXECUTION_ARCHIVED
    reason: str | None = None


# --- Execution termination -------------------------------------------------------------------------------------------


class ExecutionCancelRequested(Payload, frozen=True, kw_only=True):
    """From here on the execution can only end canceled."""

    type: ClassVar = EventType.EXECUTION_CANCEL_REQUESTED
    parts: ClassVar = {"requestedBy": Party}
    reason: str | None = None
    requested_by: JsonObject | None = None


class ExecutionCanceled(Payload, frozen=True, kw_only=True):
    """The cancel is complete."""

    type: ClassVar = EventType.EXECUTION_CANCELED
    reason: str | None = None
    canceled_at: Moment | None = None


class ExecutionFailRequested(Payload, frozen=True, kw_only=True):
    """Failure of the execution was requested; a record only."""

    type: ClassVar = EventType.EXECUTION_FAIL_REQUESTED
    parts: ClassVar = {"requestedBy": Party}
    reason: str | None = None
    requested_by: JsonObject | None = None


class ExecutionFailed(Payload, frozen=True, kw_only=True):
    """The execution failed."""

    type: ClassVar = EventType.EXECUTION_FAILED
    parts: ClassVar = {"error": ErrorInfo}
    reason: str | None = None
    failed_node_id: str | None = None
    error: JsonObject | None = None


# --- Node lifecycle --------------------------------------------------------------------------------------------------


class NodeMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A node's place in its graph, as NODE_CREATED records it (ours), so that the log alone contains the structure.

    What the node's author wrote is kept separately, under ``node``: no name they choose can change how the graph runs.
    """

    node: JsonObject = {}

    edges: tuple[Successor, ...] = ()
    inputs: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many edges lead here. It is always written: a meta without it comes from another program."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 0
    isolated: bool = False


def place_of(meta: JsonObject | None) -> NodeMeta | None:
    """Return the place that NODE_CREATED records; None if its meta was written by another program."""
    if not meta or "inputs" not in meta:
        return None
    try:
        return msgspec.convert(meta, NodeMeta)
    except msgspec.ValidationError:
        return None


class NodeCreated(NodePayload, frozen=True, kw_only=True):
    """The node exists."""

    type: ClassVar = EventType.NODE_CREATED
    node_type: Name
    meta: JsonObject | None = None

    @property
    def described(self) -> JsonObject:
        """What the node's author wrote; empty if the meta was written by another program."""
        written = (self.meta or {}).get("node")
        return written if isinstance(written, dict) else {}


class NodeReady(NodePayload, frozen=True, kw_only=True):
    """The node may run."""

    type: ClassVar = EventType.NODE_READY


class NodeStarted(AttemptPayload, frozen=True, kw_only=True):
    """An attempt started."""

    type: ClassVar = EventType.NODE_STARTED
    attempt: Attempt
    worker_id: str | None = None


class NodeProgressReported(AttemptPayload, frozen=True, kw_only=True):
    """The progress of a node, as its task reported it."""

    type: ClassVar = EventType.NODE_PROGRESS_REPORTED
    progress: Percent | None = None
    message: str | None = None
    metrics: JsonObject | None = None


class NodeWaiting(AttemptPayload, frozen=True, kw_only=True):
    """The node waits for a resume from outside."""

    type: ClassVar = EventType.NODE_WAITING
    wait_key: str | None = None
    prompt: JsonObject | None = None


class NodeResumeRequested(AttemptPayload, frozen=True, kw_only=True):
    """The resume of a waiting node was requested."""

    type: ClassVar = EventType.NODE_RESUME_REQUESTED
    parts: ClassVar = {"requestedBy": Party}
    resume_key: str | None = None
    requested_by: JsonObject | None = None


class NodeResumed(AttemptPayload, frozen=True, kw_only=True):
    """A waiting node continues."""

    type: ClassVar = EventType.NODE_RESUMED


class NodeSucceeded(AttemptPayload, frozen=True, kw_only=True):
    """The node did its work."""

    type: ClassVar = EventType.NODE_SUCCEEDED
    output: JsonObject | None = None


class NodeFailReported(AttemptPayload, frozen=True, kw_only=True):
    """An attempt failed; NODE_FAILED follows only if the node has failed, too."""

    type: ClassVar = EventType.NODE_FAIL_REPORTED
    parts: ClassVar = {"error": ErrorInfo}
    error: JsonObject | None = None


class NodeFailed(AttemptPayload, frozen=True, kw_only=True):
    """The node failed for good."""

    type: ClassVar = EventType.NODE_FAILED
    parts: ClassVar = {"error": ErrorInfo}
    error: JsonObject | None = None


# --- Node cancellation -----------------------------------------------------------------------------------------------


class NodeCancelRequested(AttemptPayload, frozen=True, kw_only=True):
    """The cancel of one node was requested, not that of the execution."""

    type: ClassVar = EventType.NODE_CANCEL_REQUESTED
    reason: str | None = None


class NodeCanceled(AttemptPayload, frozen=True, kw_only=True):
    """The node is canceled; ``skip`` (ours) is set for one that never ran."""

    type: ClassVar = EventType.NODE_CANCELED
    reason: str | None = None
    skip: Skip | None = None


class NodeInterruptRequested(AttemptPayload, frozen=True, kw_only=True):
    """The worker that runs the node was asked to stop."""

    type: ClassVar = EventType.NODE_INTERRUPT_REQUESTED
    worker_id: str | None = None
    reason: str | None = None


# --- Graph control ---------------------------------------------------------------------------------------------------


class ForkOpened(NodePayload, frozen=True, kw_only=True):
    """The branches that start here have started."""

    type: ClassVar = EventType.FORK_OPENED
    branch_ids: tuple[Name, ...]


class JoinGateUpdated(NodePayload, frozen=True, kw_only=True):
    """Which branches that meet here have ended, and how."""

    type: ClassVar = EventType.JOIN_GATE_UPDATED
    expected_branches: tuple[Name, ...]
    completed_branches: tuple[Name, ...]
    failed_branches: tuple[Name, ...]
    canceled_branches: tuple[Name, ...]
    policy: JoinPolicy
    is_passable: bool


class JoinPassed(NodePayload, frozen=True, kw_only=True):
    """The join has passed: what follows it may run."""

    type: ClassVar = EventType.JOIN_PASSED


PAYLOADS: Final[dict[EventType, type[Payload]]] = {
    payload.type: payload
    for payload in (
        ExecutionCreated,
        ExecutionStarted,
        ExecutionCompleted,
        ExecutionArchived,
        ExecutionCancelRequested,
        ExecutionCanceled,
        ExecutionFailRequested,
        ExecutionFailed,
        NodeCreated,
        NodeReady,
        NodeStarted,
        NodeProgressReported,
        NodeWaiting,
        NodeResumeRequested,
        NodeResumed,
        NodeSucceeded,
        NodeFailReported,
        NodeFailed,
        NodeCancelRequested,
        NodeCanceled,
        NodeInterruptRequested,
        ForkOpened,
        JoinGateUpdated,
        JoinPassed,
    )
}
