"""The state machine: every rule that decides a status, as tables.

The reducer, the command handler, the orchestrator and the published diagrams all read these tables. Who sends a command
matters in one place only: ``observed`` in ``command_handler.handle``, for work that its engine saw end.

The theory
----------
An execution is a set of nodes. Both have a *status*, and every status has a *rank*. An event proposes a status; the
proposal is taken only if its rank is higher than that of the current status (``choose_*``). Ranks therefore rise and
never fall, whatever the order in which events arrive; only waiting and resuming, which go back and forth, need their
order. The rest of the system depends on three consequences:

* **Cancel wins.** ``CANCELED`` has the highest rank on both levels. The order of appends decides a race (below); the
  ranks decide where one log has both ends, as another program may write it.
* **A request is already binding.** From the first ``EXECUTION_CANCEL_REQUESTED`` on, the events in
  ``IGNORED_AFTER_CANCEL`` change nothing: an execution that was asked to cancel cannot complete or fail any more,
  though it is not canceled yet.
* **One step down.** A resumed node leaves ``WAITING`` for ``RUNNING``, which has a lower rank. ``STEPS_DOWN`` is the
  complete list of such exceptions; it has one entry.

A race between cancel and success
---------------------------------
The log decides: the event that is appended first wins, and the loser of the compare-and-set reads it and decides again
(``app.runtime.execution``).

* Cancel first: ``REFUSED_AFTER_CANCEL`` refuses a SucceedNode from outside. From the engine that ran the node it is
  recorded, because it happened; the orchestrator then ends the execution ``CANCELED`` (``core.propagation``), and the
  reducer would ignore an EXECUTION_COMPLETED (``IGNORED_AFTER_CANCEL``).
* Success first: a node that succeeded stays ``SUCCEEDED``, and the cancel stops the others. An execution that has
  ended stays ended: the command handler makes no event of a cancel that comes later (``command_handler._payloads``).
  ``orchestrator.cancel_after_end`` is the one exception.

Commands are guarded by ``NODE_GUARDS`` before they become events; a status missing from a guard's row *is* the
refusal.
"""

from enum import StrEnum, unique
from typing import Final, NamedTuple


@unique
class ExecutionStatus(StrEnum):
    """The status of an execution."""

    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@unique
class NodeStatus(StrEnum):
    """The status of a node."""

    IDLE = "IDLE"
    READY = "READY"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@unique
class EventType(StrEnum):
    """The 24 facts. The list is closed: nothing else is ever emitted or accepted."""

    EXECUTION_CREATED = "EXECUTION_CREATED"
    EXECUTION_STARTED = "EXECUTION_STARTED"
    EXECUTION_COMPLETED = "EXECUTION_COMPLETED"
    EXECUTION_ARCHIVED = "EXECUTION_ARCHIVED"
    EXECUTION_CANCEL_REQUESTED = "EXECUTION_CANCEL_REQUESTED"
    EXECUTION_CANCELED = "EXECUTION_CANCELED"
    EXECUTION_FAIL_REQUESTED = "EXECUTION_FAIL_REQUESTED"
    EXECUTION_FAILED = "EXECUTION_FAILED"
    NODE_CREATED = "NODE_CREATED"
    NODE_READY = "NODE_READY"
    NODE_STARTED = "NODE_STARTED"
    NODE_PROGRESS_REPORTED = "NODE_PROGRESS_REPORTED"
    NODE_WAITING = "NODE_WAITING"
    NODE_RESUME_REQUESTED = "NODE_RESUME_REQUESTED"
    NODE_RESUMED = "NODE_RESUMED"
    NODE_SUCCEEDED = "NODE_SUCCEEDED"
    NODE_FAIL_REPORTED = "NODE_FAIL_REPORTED"
    NODE_FAILED = "NODE_FAILED"
    NODE_CANCEL_REQUESTED = "NODE_CANCEL_REQUESTED"
    NODE_CANCELED = "NODE_CANCELED"
    NODE_INTERRUPT_REQUESTED = "NODE_INTERRUPT_REQUESTED"
    FORK_OPENED = "FORK_OPENED"
    JOIN_GATE_UPDATED = "JOIN_GATE_UPDATED"
    JOIN_PASSED = "JOIN_PASSED"


@unique
class CommandType(StrEnum):
    """The 12 requests. The list is closed too."""

    CREATE_EXECUTION = "CreateExecution"
    START_EXECUTION = "StartExecution"
    CANCEL_EXECUTION = "CancelExecution"
    ARCHIVE_EXECUTION = "ArchiveExecution"
    MARK_NODE_READY = "MarkNodeReady"
    START_NODE = "StartNode"
    REPORT_NODE_PROGRESS = "ReportNodeProgress"
    PUT_NODE_WAITING = "PutNodeWaiting"
    REQUEST_RESUME_NODE = "RequestResumeNode"
    RESUME_NODE = "ResumeNode"
    SUCCEED_NODE = "SucceedNode"
    FAIL_NODE = "FailNode"


# --- Ranks -----------------------------------------------------------------------------------------------------------

EXECUTION_RANK: Final = {
    ExecutionStatus.CANCELED: 400,
    ExecutionStatus.FAILED: 300,
    ExecutionStatus.COMPLETED: 200,
    ExecutionStatus.ACTIVE: 100,
}

NODE_RANK: Final = {
    NodeStatus.CANCELED: 700,
    NodeStatus.FAILED: 600,
    NodeStatus.SUCCEEDED: 500,
    NodeStatus.WAITING: 400,
    NodeStatus.RUNNING: 300,
    NodeStatus.READY: 200,
    NodeStatus.IDLE: 100,
}

TERMINAL_EXECUTION: Final = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELED})
TERMINAL_NODE: Final = frozenset({NodeStatus.SUCCEEDED, NodeStatus.FAILED, NodeStatus.CANCELED})
LIVE_NODE: Final = frozenset({NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING})


def exec_rank(status: ExecutionStatus) -> int:
    """Return the rank of an execution status."""
    return EXECUTION_RANK[status]


def node_rank(status: NodeStatus) -> int:
    """Return the rank of a node status."""
    return NODE_RANK[status]


def choose_exec_status(current: ExecutionStatus, candidate: ExecutionStatus) -> ExecutionStatus:
    """Return the status with the higher rank; ``current`` on a tie."""
    return candidate if EXECUTION_RANK[candidate] > EXECUTION_RANK[current] else current


def choose_node_status(current: NodeStatus, candidate: NodeStatus) -> NodeStatus:
    """Return the status with the higher rank; ``current`` on a tie."""
    return candidate if NODE_RANK[candidate] > NODE_RANK[current] else current


# --- What events propose ---------------------------------------------------------------------------------------------

EXECUTION_PROPOSALS: Final = {
    EventType.EXECUTION_CREATED: ExecutionStatus.ACTIVE,
    EventType.EXECUTION_STARTED: ExecutionStatus.ACTIVE,
    EventType.EXECUTION_COMPLETED: ExecutionStatus.COMPLETED,
    EventType.EXECUTION_FAILED: ExecutionStatus.FAILED,
    EventType.EXECUTION_CANCELED: ExecutionStatus.CANCELED,
}

NODE_PROPOSALS: Final = {
    EventType.NODE_CREATED: NodeStatus.IDLE,
    EventType.NODE_READY: NodeStatus.READY,
    EventType.NODE_STARTED: NodeStatus.RUNNING,
    EventType.NODE_WAITING: NodeStatus.WAITING,
    EventType.NODE_SUCCEEDED: NodeStatus.SUCCEEDED,
    EventType.NODE_FAILED: NodeStatus.FAILED,
    EventType.NODE_CANCELED: NodeStatus.CANCELED,
}

STEPS_DOWN: Final = {(NodeStatus.WAITING, EventType.NODE_RESUMED): NodeStatus.RUNNING}

IGNORED_AFTER_CANCEL: Final = frozenset(
    {
        EventType.NODE_READY,
        EventType.NODE_STARTED,
        EventType.NODE_PROGRESS_REPORTED,
        EventType.NODE_WAITING,
        EventType.NODE_RESUME_REQUESTED,
        EventType.NODE_RESUMED,
        EventType.JOIN_PASSED,
        EventType.JOIN_GATE_UPDATED,
        EventType.FORK_OPENED,
        EventType.EXECUTION_COMPLETED,
        EventType.EXECUTION_FAILED,
    }
)

IGNORED_WHEN_TERMINAL: Final = frozenset({EventType.NODE_READY})
"""Nothing becomes ready in an execution that has ended, however it ended."""

# --- What commands need ----------------------------------------------------------------------------------------------


class NodeGuard(NamedTuple):
    """The statuses in which a node command is accepted or is already done, and the event that records it."""

    accepts: frozenset[NodeStatus]
    already_done: frozenset[NodeStatus]
    emits: EventType


_NOTHING: Final = frozenset[NodeStatus]()

NODE_GUARDS: Final = {
    CommandType.MARK_NODE_READY: NodeGuard(
        frozenset({NodeStatus.IDLE}), frozenset({NodeStatus.READY}), EventType.NODE_READY
    ),
    # A running node can be started again with a higher attempt: that is how a retry, or a worker that takes over the
    # run, fences off the previous attempt.
    CommandType.START_NODE: NodeGuard(
        frozenset({NodeStatus.READY, NodeStatus.RUNNING}), _NOTHING, EventType.NODE_STARTED
    ),
    CommandType.REPORT_NODE_PROGRESS: NodeGuard(
        frozenset({NodeStatus.RUNNING}), _NOTHING, EventType.NODE_PROGRESS_REPORTED
    ),
    CommandType.PUT_NODE_WAITING: NodeGuard(frozenset({NodeStatus.RUNNING}), _NOTHING, EventType.NODE_WAITING),
    CommandType.REQUEST_RESUME_NODE: NodeGuard(
        frozenset({NodeStatus.WAITING}), _NOTHING, EventType.NODE_RESUME_REQUESTED
    ),
    CommandType.RESUME_NODE: NodeGuard(frozenset({NodeStatus.WAITING}), _NOTHING, EventType.NODE_RESUMED),
    CommandType.SUCCEED_NODE: NodeGuard(frozenset({NodeStatus.RUNNING}), _NOTHING, EventType.NODE_SUCCEEDED),
    CommandType.FAIL_NODE: NodeGuard(
        frozenset({NodeStatus.RUNNING, NodeStatus.WAITING}), _NOTHING, EventType.NODE_FAILED
    ),
}

REFUSED_AFTER_CANCEL: Final = frozenset({CommandType.START_EXECUTION, *NODE_GUARDS})
"""Commands that move an execution forward: refused once a cancel was requested.

Except SucceedNode and FailNode of the engine that ran the node (``observed``): the log records what happened.
"""

# --- What may follow what, for a log written by this package ---------------------------------------------------------
# The reducer accepts any order (ranks decide). This package *writes* only these steps, except in
# ``orchestrator.cancel_after_end``. The tests check every log against them, and docs/state-machine.md is drawn from
# them.

EXECUTION_STEPS: Final = {
    ExecutionStatus.ACTIVE: {
        EventType.EXECUTION_CANCELED: ExecutionStatus.CANCELED,
        EventType.EXECUTION_FAILED: ExecutionStatus.FAILED,
        EventType.EXECUTION_COMPLETED: ExecutionStatus.COMPLETED,
    },
    ExecutionStatus.COMPLETED: {},
    ExecutionStatus.FAILED: {},
    ExecutionStatus.CANCELED: {},
}

NODE_STEPS: Final = {
    NodeStatus.IDLE: {EventType.NODE_READY: NodeStatus.READY, EventType.NODE_CANCELED: NodeStatus.CANCELED},
    NodeStatus.READY: {
        EventType.NODE_STARTED: NodeStatus.RUNNING,
        EventType.NODE_CANCELED: NodeStatus.CANCELED,
    },
    NodeStatus.RUNNING: {
        EventType.NODE_STARTED: NodeStatus.RUNNING,
        EventType.NODE_WAITING: NodeStatus.WAITING,
        EventType.NODE_SUCCEEDED: NodeStatus.SUCCEEDED,
        EventType.NODE_FAILED: NodeStatus.FAILED,
        EventType.NODE_CANCELED: NodeStatus.CANCELED,
    },
    NodeStatus.WAITING: {
        EventType.NODE_RESUMED: NodeStatus.RUNNING,
        EventType.NODE_FAILED: NodeStatus.FAILED,
        EventType.NODE_CANCELED: NodeStatus.CANCELED,
    },
    NodeStatus.SUCCEEDED: {},
    NodeStatus.FAILED: {},
    NodeStatus.CANCELED: {},
}

STEPS_IN_PLACE: Final = {
    NodeStatus.RUNNING: frozenset({EventType.NODE_STARTED}),
    NodeStatus.SUCCEEDED: frozenset({EventType.NODE_STARTED, EventType.NODE_SUCCEEDED}),
}
"""Events that propose a status and leave the node where it is: a new attempt, and the attempt at a node that has
succeeded by which its lost result is computed again (``core.recompute``)."""
