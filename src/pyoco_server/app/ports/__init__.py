"""What the application needs from its surroundings, without how it is done.

Every port has two adapters, in memory and on NATS JetStream, held to one contract suite.
"""

from pyoco_server.app.ports.dead_letters import DeadLetters, StoredDeadLetter
from pyoco_server.app.ports.errors import LogConflictError, NotStoredError, TooLargeError, UnavailableError
from pyoco_server.app.ports.event_log import EventLog, OnAppend, Unsubscribe
from pyoco_server.app.ports.graphs import GraphRegistry
from pyoco_server.app.ports.outputs import OutputCopies, OutputPieces, OutputStore
from pyoco_server.app.ports.run_index import (
    LATENCY_BOUNDS_SEC,
    Cursor,
    DueWait,
    FeedState,
    Histogram,
    IndexedRun,
    Latencies,
    RunFilter,
    RunIndex,
    RunIndexReader,
    RunQuery,
    RunTally,
    SilentRun,
    SnapshotChange,
    SnapshotFeed,
    TenantUsage,
)
from pyoco_server.app.ports.snapshots import (
    LOG_STATUS,
    ForeignSnapshotError,
    SnapshotHead,
    SnapshotReader,
    Snapshots,
    StoredSnapshot,
    head_of,
    position_of,
)
from pyoco_server.app.ports.task_executor import Clock, NewId, TaskExecutor
from pyoco_server.app.ports.work_queue import Delivery, WorkQueue
from pyoco_server.app.ports.workers import WorkerRecord, WorkerRegistry

__all__ = [
    "LATENCY_BOUNDS_SEC",
    "LOG_STATUS",
    "Clock",
    "Cursor",
    "DeadLetters",
    "Delivery",
    "DueWait",
    "EventLog",
    "FeedState",
    "ForeignSnapshotError",
    "GraphRegistry",
    "Histogram",
    "IndexedRun",
    "Latencies",
    "LogConflictError",
    "NewId",
    "NotStoredError",
    "OnAppend",
    "OutputCopies",
    "OutputPieces",
    "OutputStore",
    "RunFilter",
    "RunIndex",
    "RunIndexReader",
    "RunQuery",
    "RunTally",
    "SilentRun",
    "SnapshotChange",
    "SnapshotFeed",
    "SnapshotHead",
    "SnapshotReader",
    "Snapshots",
    "StoredDeadLetter",
    "StoredSnapshot",
    "TaskExecutor",
    "TenantUsage",
    "TooLargeError",
    "UnavailableError",
    "Unsubscribe",
    "WorkQueue",
    "WorkerRecord",
    "WorkerRegistry",
    "head_of",
    "position_of",
]
