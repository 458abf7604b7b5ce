"""Explores every interleaving of a small graph, not a sample of them.

From the start of the execution on, every possible move is tried in every state: workers start, succeed and fail what is
ready or running, people resume what waits, and a cancel may come at any moment, after which workers may still finish,
fail, or stop. States that differ only in times and version are visited once. All times are the same.
"""

from collections import Counter, deque
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import msgspec

from pyoco_server.core import (
    CancelMode,
    Command,
    Event,
    ExecutionState,
    Graph,
    NodeStatus,
    advance,
    confirm_stopped,
    initial_state,
    orchestrate,
    state_to_dict,
)
from pyoco_server.core.events import Actor, ActorKind
from pyoco_server.core.reducer import fold
from pyoco_server.core.state import NodeState
from tests.build import EXECUTION, T0, Ids, command
from tests.invariants import check_causes, check_no_repeats, check_state, check_step, check_sums

ENGINE = Actor(ActorKind.SYSTEM, "engine")
NO_NODES = initial_state(EXECUTION).nodes


class Move(NamedTuple):
    """A command, the report of a worker that it has stopped, or the end of the grace period."""

    name: str
    node_id: str | None = None
    observed: bool = False


class Explored(NamedTuple):
    """The result of an exploration; ``ends`` holds every state in which the execution has ended."""

    states: int
    steps: int
    ends: list[ExecutionState]

    def finisher(self) -> Counter[str]:
        """How many ends there are of which status."""
        return Counter(state.status.value for state in self.ends)


def explore(graph: Graph, *, limit: int = 300_000) -> Explored:
    """Visit every state that can be reached; check every step, every state, and that an end can be reached from it."""
    first = _begin(graph)
    check_state(graph, first)
    keys = _Keys()
    seen = {keys.of(first)}
    open_states = deque([first])
    leads_to: dict[bytes, list[bytes]] = {}
    ends: list[ExecutionState] = []
    steps = 0
    while open_states:
        state = open_states.popleft()
        here = keys.of(state)
        if state.is_terminal:
            ends.append(state)
            continue
        for move in moves(state):
            steps += 1
            following = _take(graph, state, move)
            there = keys.of(following)
            leads_to.setdefault(there, []).append(here)
            if there not in seen:
                check_state(graph, following)  # a state with the same key has the same sums, see _take
                seen.add(there)
                open_states.append(following)
                assert len(seen) <= limit, "too many states for an exhaustive exploration"
    assert _all_that_reach([keys.of(end) for end in ends], leads_to) == seen, "no end can be reached from some state"
    return Explored(len(seen), steps, ends)


def moves(state: ExecutionState) -> Iterator[Move]:
    """Everything that can happen now."""
    yield Move("grace period over") if state.is_cancel_requested else Move("CancelExecution")
    for node in sorted(state.live_nodes(), key=lambda live: live.node_id):
        yield from _cancelled_moves(node) if state.is_cancel_requested else _ordinary_moves(node)


def _ordinary_moves(node: NodeState) -> Iterator[Move]:
    match node.status:
        case NodeStatus.READY:
            yield Move("StartNode", node.node_id)
        case NodeStatus.RUNNING if node.is_at_work:
            yield Move("SucceedNode", node.node_id)
            yield Move("FailNode", node.node_id)
            if node.node_type == "Wait" and node.wait_key is None:
                yield Move("PutNodeWaiting", node.node_id)
        case NodeStatus.RUNNING:
            yield Move("StartNode", node.node_id)
        case NodeStatus.WAITING:
            yield Move("ResumeNode", node.node_id)
            yield Move("FailNode", node.node_id)
        case _:
            raise AssertionError(f"{node.node_id} is {node.status}, which is not live")


def _cancelled_moves(node: NodeState) -> Iterator[Move]:
    """What a worker may report that was executing the node at the cancel: success, failure, or that it stopped."""
    yield Move("SucceedNode", node.node_id, observed=True)
    yield Move("FailNode", node.node_id, observed=True)
    yield Move("stopped", node.node_id)


def _begin(graph: Graph) -> ExecutionState:
    state = initial_state(EXECUTION)
    for name, fields in (("CreateExecution", {"graphId": graph.graph_id}), ("StartExecution", {})):
        made = advance(graph, state, command(name, **fields), now=T0, new_id=Ids())
        state = fold(made, state)
    return state


def _take(graph: Graph, state: ExecutionState, move: Move) -> ExecutionState:
    """Make a move, and check the commit it makes."""
    after = state
    commit = _commit(graph, state, move)
    assert commit, f"{move} did nothing"
    for event in commit:
        after = check_step(after, event)
    check_no_repeats(commit)
    if move.name != "grace period over":
        check_causes(commit)
    check_sums(after)
    if state.is_cancel_requested and after.is_terminal:
        assert after.status == "CANCELED"
    return after


def _commit(graph: Graph, state: ExecutionState, move: Move) -> list[Event]:
    if move.name == "stopped":
        assert move.node_id is not None
        return confirm_stopped(graph, state, move.node_id, actor=ENGINE, now=T0, new_id=Ids())
    if move.name == "grace period over":
        return orchestrate(graph, state, now=T0, new_id=Ids(), cancel_mode=CancelMode.IMMEDIATE)
    return advance(graph, state, _command(move), now=T0, new_id=Ids(), observed=move.observed)


@cache
def _command(move: Move) -> Command:
    made: Command = command(move.name, move.node_id, **({"waitKey": "key"} if move.name == "PutNodeWaiting" else {}))
    return made


class _Keys:
    """Keys of states; two states with the same key differ only in times and version.

    A step changes few nodes, so the JSON of each node object is kept.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, tuple[NodeState, bytes]] = {}

    def of(self, state: ExecutionState) -> bytes:
        rest = state_to_dict(msgspec.structs.replace(state, version=0, nodes=NO_NODES))
        nodes = b"".join(self._node(state.nodes[node_id]) for node_id in sorted(state.nodes))
        return msgspec.json.encode(rest) + nodes

    def _node(self, node: NodeState) -> bytes:
        known = self._nodes.get(id(node))
        if known is None:
            known = self._nodes[id(node)] = (node, msgspec.json.encode(node))
        return known[1]


def _all_that_reach(ended: list[bytes], leads_to: dict[bytes, list[bytes]]) -> set[bytes]:
    reached = set(ended)
    stack = list(ended)
    while stack:
        for before in leads_to.get(stack.pop(), ()):
            if before not in reached:
                reached.add(before)
                stack.append(before)
    return reached
