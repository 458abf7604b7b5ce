"""What this layer needs from the outside, and nothing about how it is done.

Every port has two adapters, in memory and on NATS JetStream, held to one contract suite.
"""

from pyoco_server.app.ports.dead_letters import DeadLetter, DeadLetters
from pyoco_server.app.ports.engine import Clock, NewId, Workshop
from pyoco_server.app.ports.errors import LogConflictError, NotStoredError, TooLargeError, UnavailableError
from pyoco_server.app.ports.event_log import EventLog, OnAppend, Unsubscribe
from pyoco_server.app.ports.graphs import GraphRegistry
from pyoco_server.app.ports.outputs import OutputPieces, OutputStore
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
    RunQuery,
    SilentRun,
    SnapshotChange,
    SnapshotFeed,
    Tally,
)
from pyoco_server.app.ports.snapshots import (
    LOG_STATUS,
    ForeignSnapshotError,
    SnapshotHead,
    Snapshots,
    StoredSnapshot,
    head_of,
    position_of,
)
from pyoco_server.app.ports.work_queue import Delivery, WorkQueue
from pyoco_server.app.ports.workers import WorkerRecord, WorkerRegistry

__all__ = [
    "LATENCY_BOUNDS_SEC",
    "LOG_STATUS",
    "Clock",
    "Cursor",
    "DeadLetter",
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
    "OutputPieces",
    "OutputStore",
    "RunFilter",
    "RunIndex",
    "RunQuery",
    "SilentRun",
    "SnapshotChange",
    "SnapshotFeed",
    "SnapshotHead",
    "Snapshots",
    "StoredSnapshot",
    "Tally",
    "TooLargeError",
    "UnavailableError",
    "Unsubscribe",
    "WorkQueue",
    "WorkerRecord",
    "WorkerRegistry",
    "Workshop",
    "head_of",
    "position_of",
]
