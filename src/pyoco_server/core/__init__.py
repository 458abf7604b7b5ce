"""The core: a pure, executable state machine.

:func:`handle` checks a command and returns the events it becomes; :func:`reduce` folds an event into a state;
:func:`orchestrate` returns the events that follow from a state. :func:`advance` does all three for one command. The
core has no I/O, no clock and no randomness: time and ids are arguments, and what the caller must do afterwards is
returned as values (:func:`effects`).

Start reading at ``transitions``: its tables hold every rule about a status, also for a race between cancel and success.
"""

from pyoco_server.core.command_handler import CommandRejected, RejectionCode, handle
from pyoco_server.core.commands import Command, decode_command, encode_command
from pyoco_server.core.commit import Commit
from pyoco_server.core.effects import (
    Effect,
    EndExecution,
    InterruptNode,
    RetryNode,
    RunNode,
    WakeNode,
    effects,
)
from pyoco_server.core.events import (
    Actor,
    ActorKind,
    Event,
    decode_event,
    encode_event,
    encode_events,
    event_to_dict,
    order_batch,
)
from pyoco_server.core.graph import Graph, graph_from_dict, graph_to_dict
from pyoco_server.core.graph_from_log import LoggedGraph, graph_from_log, read_graph
from pyoco_server.core.graph_validation import GraphError, GraphProblem
from pyoco_server.core.json_codec import DecodeError, DecodeProblem
from pyoco_server.core.orchestrator import (
    NodeNotStoppableError,
    WrongGraphError,
    add_node,
    adopt_end,
    advance,
    cancel_after_end,
    cancel_node,
    commit,
    confirm_stopped,
    fail,
    orchestrate,
)
from pyoco_server.core.payloads import JoinPolicy
from pyoco_server.core.propagation import CancelMode
from pyoco_server.core.recompute import recompute, recompute_failed, recomputed
from pyoco_server.core.reducer import ForeignEventError, fold, reduce
from pyoco_server.core.state import ExecutionState, NodeState, initial_state, state_to_dict
from pyoco_server.core.transitions import (
    CommandType,
    EventType,
    ExecutionStatus,
    NodeStatus,
    choose_exec_status,
    choose_node_status,
    exec_rank,
    node_rank,
)

__all__ = [
    "Actor",
    "ActorKind",
    "CancelMode",
    "Command",
    "CommandRejected",
    "CommandType",
    "Commit",
    "DecodeError",
    "DecodeProblem",
    "Effect",
    "EndExecution",
    "Event",
    "EventType",
    "ExecutionState",
    "ExecutionStatus",
    "ForeignEventError",
    "Graph",
    "GraphError",
    "GraphProblem",
    "InterruptNode",
    "JoinPolicy",
    "LoggedGraph",
    "NodeNotStoppableError",
    "NodeState",
    "NodeStatus",
    "RejectionCode",
    "RetryNode",
    "RunNode",
    "WakeNode",
    "WrongGraphError",
    "add_node",
    "adopt_end",
    "advance",
    "cancel_after_end",
    "cancel_node",
    "choose_exec_status",
    "choose_node_status",
    "commit",
    "confirm_stopped",
    "decode_command",
    "decode_event",
    "effects",
    "encode_command",
    "encode_event",
    "encode_events",
    "event_to_dict",
    "exec_rank",
    "fail",
    "fold",
    "graph_from_dict",
    "graph_from_log",
    "graph_to_dict",
    "handle",
    "initial_state",
    "node_rank",
    "orchestrate",
    "order_batch",
    "read_graph",
    "recompute",
    "recompute_failed",
    "recomputed",
    "reduce",
    "state_to_dict",
]
