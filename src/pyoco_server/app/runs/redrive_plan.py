"""Plans a redrive: which nodes of an ended run a new run keeps, and which it runs again.

A node that did not succeed runs again, and so does everything behind it. A block (a loop, a choice, a parallel group)
in which a node runs again is *open*: it starts again, keeps its decisions and the nodes that succeeded in it, and its
code, which a worker runs from the beginning, creates the others.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, Literal

from pyoco_server.app.snapshots.projection import REDRIVE
from pyoco_server.core import Event, ExecutionState, NodeState, NodeStatus, fold, read_graph
from pyoco_server.core.graph import CONTROL, Graph, NodeType
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import ExecutionStarted, NodeCreated
from pyoco_server.errors import InvalidInputError
from pyoco_server.values.codec import KIND, OutputKind

SEQUENTIAL: Final = frozenset({"Repeat", "Until"})
"""Blocks in which every round builds on the rounds before it."""
BLOCKS: Final = frozenset({*SEQUENTIAL, "ForEach", "Parallel", "Switch"})
_INDEX: Final = re.compile(r"\[(\d+)\]")
_ROUND: Final = re.compile(r"round (\d+)\Z")

COPIED: Final = "copied"
"""In the field ``redrive`` of EXECUTION_CREATED, if the copy takes several messages: how many events it has."""

Cut = Literal["failed", "start"] | tuple[str, ...]
"""Where the new run begins: at what did not succeed, at the start, or also at the nodes of these names."""


def is_half_copied(events: Sequence[Event]) -> bool:
    """Whether the log lacks a part of what a redrive copies: its process is at work, or it has died."""
    about = events[0].payload.extra.get(REDRIVE)
    count = about.get(COPIED) if isinstance(about, dict) else None
    return isinstance(count, int) and len(events) < count


class OldRun:
    """An ended run as its log describes it; control nodes are left out of what it lists."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.run_id: Final = events[0].execution_id
        self.events: Final = events
        self.state: Final[ExecutionState] = fold(events)
        self.graph: Final[Graph] = read_graph(events).graph
        self.created: Final[dict[str, NodeCreated]] = {}
        """Nodes, in the order in which they were created."""
        self.said_at_start: JsonObject = {}
        """What EXECUTION_STARTED says besides its fields, such as the code."""
        self._parents: dict[str, str | None] = {}
        self._children: dict[str, list[str]] = {}
        self._bodies: dict[str, list[str]] = {}
        for event in events:
            match event.payload:
                case NodeCreated() as created if created.node_type not in CONTROL:
                    if created.node_id not in self.created:
                        self._add(created)
                case ExecutionStarted(extra=extra):
                    self.said_at_start = extra
                case _:  # the state has the rest
                    pass

    def _add(self, created: NodeCreated) -> None:
        node_id = created.node_id
        self.created[node_id] = created
        self._parents[node_id] = block = None if node_id in self.graph.nodes else self._block_around(node_id)
        if block is not None:
            self._children.setdefault(block, []).append(node_id)
            self._bodies.setdefault(self.body(node_id), []).append(node_id)

    def _block_around(self, node_id: str) -> str | None:
        cuts = [at for at, character in enumerate(node_id) if character in "[/"]
        blocks = (node_id[:at] for at in reversed(cuts) if self.is_block(node_id[:at]))
        return next(blocks, None)

    def is_block(self, node_id: str) -> bool:
        """Whether nodes are created inside the node."""
        return node_id in self.created and self.created[node_id].node_type in BLOCKS

    def node(self, node_id: str) -> NodeState:
        """Return the node as the run left it."""
        return self.state.nodes[node_id]

    def block_of(self, node_id: str) -> str | None:
        """Return the block that created the node; None for a node of the graph."""
        return self._parents[node_id]

    def top_of(self, node_id: str) -> str:
        """Return the node of the graph that the node is or is inside of."""
        block = self._parents[node_id]
        return node_id if block is None else self.top_of(block)

    def body(self, node_id: str) -> str:
        """Return how the ids of all nodes begin that are in the same round, branch or case of a block."""
        block = self._parents[node_id] or ""
        return node_id[: node_id.index("/", len(block)) + 1]

    def later_in_body(self, node_id: str) -> list[str]:
        """Return the nodes that came after this one in its round, branch or case."""
        body = self._bodies[self.body(node_id)]
        return body[body.index(node_id) + 1 :]

    def children(self, block: str) -> Sequence[str]:
        """Return the nodes that the block created."""
        return self._children.get(block, ())

    def inside(self, node_id: str) -> Iterator[str]:
        """Return all nodes inside a node, also those in blocks inside it."""
        for child in self.children(node_id):
            yield child
            yield from self.inside(child)

    def named(self, name: str) -> list[str]:
        """Return the node with this id, or all nodes of the task with this name."""
        if name in self.created:
            return [name]
        return [node_id for node_id, created in self.created.items() if created.described.get("task") == name]

    def names(self) -> list[str]:
        """Return the names by which nodes can be found: ids, and names of tasks."""
        tasks = (created.described.get("task") for created in self.created.values())
        return [*dict.fromkeys([*self.created, *(task for task in tasks if isinstance(task, str))])]


class Choice:
    """What of an ended run a redrive repeats, and what it keeps."""

    def __init__(self, old: OldRun, cut: Cut, ask_again: Iterable[str] = (), lost: Container[str] = ()) -> None:
        """``lost``: nodes whose stored result is missing. InvalidInputError if a name is not one of the run's."""
        self.again: Final[dict[str, str]] = {}
        """Nodes that are not kept, and why; of those inside blocks only the ones that the old run had."""
        self.open: Final[set[str]] = set()
        """Blocks that start again and keep what succeeded in them."""
        self._old = old
        self._lost = lost
        self._first_round: dict[str, int] = {}
        for node_id, why in self._roots(cut, ask_again).items():
            self._repeat(node_id, why)
        for node_id in old.created:
            if self._is_interrupted_block(node_id):
                self._open(node_id)
        self._repeat_what_follows()

    def is_kept(self, node_id: str) -> bool:
        """Whether the new run takes the node over as it ended."""
        is_repeated = node_id in self.again or node_id in self.open
        return not is_repeated and self._old.node(node_id).status is NodeStatus.SUCCEEDED

    def keeps_decision(self, block: str, key: str) -> bool:
        """Whether the block decided this before the first round that runs again."""
        about = _ROUND.match(key)
        return about is None or int(about[1]) < self._first_round.get(block, int(about[1]) + 1)

    # --- Where the new run begins ------------------------------------------------------------------------------------

    def _roots(self, cut: Cut, ask_again: Iterable[str]) -> dict[str, str]:
        old = self._old
        if cut == "start":
            return {node_id: "the run begins again" for node_id in old.created if old.block_of(node_id) is None}
        roots = {node_id: why for node_id in old.created if (why := self._why_not_kept(node_id)) is not None}
        for name in () if cut == "failed" else cut:
            roots |= dict.fromkeys(_named("from", old, name), "it was asked for")
        for name in ask_again:
            for node_id in _named("ask_again", old, name):
                if old.created[node_id].node_type != NodeType.WAIT:
                    raise InvalidInputError(f"ask_again: '{name:.80}' is not a wait; to run a task again, use from")
                roots[node_id] = "it is asked again"
        return roots

    def _why_not_kept(self, node_id: str) -> str | None:
        """Return why the node must run again; None if it need not, or if only nodes inside it must."""
        node = self._old.node(node_id)
        if node.status is NodeStatus.SUCCEEDED:
            is_lost = (node.output or {}).get(KIND) == OutputKind.LOST.value or node_id in self._lost
            return "its result is lost" if is_lost else None
        if node.status is NodeStatus.IDLE or node.skip is not None:  # what came before it decides again
            return None
        if self._old.is_block(node_id) and (self._has_unfinished(node_id) or node.status is not NodeStatus.FAILED):
            return None
        return "it failed" if node.status is NodeStatus.FAILED else "it had not ended"

    def _has_unfinished(self, block: str) -> bool:
        return any(self._old.node(node_id).status is not NodeStatus.SUCCEEDED for node_id in self._old.inside(block))

    def _is_interrupted_block(self, node_id: str) -> bool:
        """Whether the run ended while the block was at work."""
        node = self._old.node(node_id)
        has_ended = node.status in (NodeStatus.SUCCEEDED, NodeStatus.FAILED) or node.skip is not None
        return self._old.is_block(node_id) and node.attempt > 0 and not has_ended and node_id not in self.again

    # --- What follows from that --------------------------------------------------------------------------------------

    def _repeat(self, node_id: str, why: str) -> None:
        self._repeat_whole(node_id, why)
        self._repeat_behind(node_id)

    def _repeat_whole(self, node_id: str, why: str) -> None:
        self.again.setdefault(node_id, why)
        for inner in self._old.inside(node_id):
            self.again.setdefault(inner, f"'{node_id}' runs again")

    def _repeat_behind(self, node_id: str) -> None:
        """Repeat what came later in the same round, branch or case, and open the block around it."""
        block = self._old.block_of(node_id)
        if block is None:
            return
        for later in self._old.later_in_body(node_id):
            self._repeat_whole(later, f"it comes after '{node_id}'")
        index = _INDEX.match(node_id, len(block))
        if index is not None and self._old.created[block].node_type in SEQUENTIAL:
            self._repeat_rounds(block, int(index[1]))
        self._open(block)

    def _repeat_rounds(self, block: str, first: int) -> None:
        """Repeat the rounds of a loop that come after the first one that changes."""
        self._first_round[block] = first = min(first, self._first_round.get(block, first))
        for child in self._old.children(block):
            index = _INDEX.match(child, len(block))
            if index is not None and int(index[1]) > first:
                self._repeat_whole(child, f"it comes after round {first} of '{block}'")

    def _open(self, block: str) -> None:
        if block not in self.open:
            self.open.add(block)
            self._repeat_behind(block)

    def _repeat_what_follows(self) -> None:
        """Repeat every node of the graph behind one that is repeated or open."""
        graph, changed = self._old.graph, dict[str, str]()
        for node_id in graph.order:
            causes = (changed[edge.source] for edge in graph.incoming(node_id) if edge.source in changed)
            cause = next(causes, None)
            if cause is not None:
                self.open.discard(node_id)
                if node_id in self._old.created:
                    self._repeat_whole(node_id, f"it comes after '{cause}'")
            if node_id in self.again or node_id in self.open:
                changed[node_id] = node_id
            elif cause is not None:
                changed[node_id] = cause


def _named(field: str, old: OldRun, name: str) -> list[str]:
    found = old.named(name)
    if not found:
        near = get_close_matches(name, old.names(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; GET /runs/{run_id}/graph lists its nodes"
        raise InvalidInputError(f"{field}: the run has no node or task '{name:.80}'{hint}")
    return found
