"""A run as a tree of text: one row per node, the nodes of a block below it. Does not depend on a terminal."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from rich.text import Text
from rich.tree import Tree

from pyoco_server.cli.shared.descriptions import duration, failure, one_line, progress, result, waiting
from pyoco_server.core import Event, ExecutionState, NodeState, NodeStatus
from pyoco_server.core.graph import CONTROL
from pyoco_server.core.payloads import (
    NodeCanceled,
    NodeCreated,
    NodeFailed,
    NodePayload,
    NodeStarted,
    NodeSucceeded,
    NodeWaiting,
)

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_SEC: Final = 10
_BAR_WIDTH: Final = 20


class _Look(NamedTuple):
    glyph: str
    style: str


_LOOKS: Final = {
    NodeStatus.IDLE: _Look("·", "dim"),
    NodeStatus.READY: _Look("·", ""),
    NodeStatus.RUNNING: _Look("", "cyan"),  # a spinner, see _glyph
    NodeStatus.WAITING: _Look("?", "yellow"),
    NodeStatus.SUCCEEDED: _Look("✓", "green"),
    NodeStatus.FAILED: _Look("✗", "bold red"),
    NodeStatus.CANCELED: _Look("⊘", "dim"),
}
_RANKS: Final = {NodeStatus.READY: 1, NodeStatus.IDLE: 2, NodeStatus.SUCCEEDED: 3, NodeStatus.CANCELED: 4}
"""Which rows are left out first if there are too many: the highest rank. Running and failed nodes have none."""
_FOLDED: Final = 5
"""The rank of nodes inside a block that has succeeded."""


class RunTree:
    """The tree of one run, updated by its commits."""

    def __init__(self) -> None:
        self._state: ExecutionState | None = None
        self._order: list[str] = []
        self._parents: dict[str, str | None] = {}
        self._started: dict[str, datetime] = {}
        self._ended: dict[str, datetime] = {}
        self._deadlines: dict[str, str] = {}

    def take(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Update the tree by a commit."""
        self._state = state
        for event in events:
            self._note(event)
        new = [event.payload.node_id for event in events if isinstance(event.payload, NodeCreated)]
        work = [node_id for node_id in _in_order(new, state) if state.nodes[node_id].node_type not in CONTROL]
        for node_id in work:
            self._parents[node_id] = _parent(node_id, state)
        self._order += work

    def render(self, now: datetime, *, limit: int) -> Tree:
        """Draw the tree as of ``now`` with about ``limit`` rows at most; the least important ones are left out."""
        tree = Tree(self._headline(now), guide_style="dim")
        if self._state is None:
            return tree
        rows = self._rows(self._state, limit)
        branches: dict[str, Tree] = {}
        for node_id in rows:
            above = branches.get(self._parents[node_id] or "", tree)
            node = self._state.nodes[node_id]
            left = self._state.is_terminal and not node.is_terminal
            branches[node_id] = above.add(self._row_left(node) if left else self._row(node, now))
        hidden = len(self._order) - len(rows)
        if hidden:
            tree.add(Text(f"… {hidden} more", style="dim"))
        return tree

    def _note(self, event: Event) -> None:
        match event.payload:
            case NodeStarted(node_id=node_id):
                self._started.setdefault(node_id, event.occurred_at)
            case NodeWaiting(node_id=node_id, extra=extra) if "deadline" in extra:
                self._deadlines[node_id] = extra["deadline"]
            case NodeSucceeded() | NodeFailed() | NodeCanceled() as ended:
                self._ended[_node_of(ended)] = event.occurred_at
            case _:  # the state is enough for the others
                pass

    def _rows(self, state: ExecutionState, limit: int) -> list[str]:
        """Return the nodes to show: of equal rank the newest; a node is shown only with the block around it."""
        if len(self._order) <= limit:
            return self._order
        newest_first = self._order[::-1]
        by_rank = sorted(newest_first, key=lambda node_id: self._rank(node_id, state))
        chosen = {*by_rank[:limit]}
        return [node_id for node_id in self._order if chosen.issuperset(self._with_blocks(node_id))]

    def _rank(self, node_id: str, state: ExecutionState) -> int:
        own = _RANKS.get(state.nodes[node_id].status, 0)
        _, *blocks = self._with_blocks(node_id)
        folded = any(state.nodes[block].status is NodeStatus.SUCCEEDED for block in blocks)
        return _FOLDED if own and folded else own

    def _with_blocks(self, node_id: str) -> list[str]:
        """Return the node and the blocks around it, from the inside out."""
        found = [node_id]
        while (parent := self._parents[found[-1]]) is not None:
            found.append(parent)
        return found

    # --- Texts -------------------------------------------------------------------------------------------------------

    def _headline(self, now: datetime) -> Text:
        state = self._state
        if state is None or state.created_at is None:
            return Text("…")
        end = state.completed_at or state.failed_at or state.canceled_at or now
        done = sum(state.nodes[node_id].is_terminal for node_id in self._order)
        status = "CANCELING" if state.is_cancel_requested and not state.is_terminal else state.status.value
        text = Text.assemble((str(state.graph_id), "bold"), f"  {status}  {done}/{len(self._order)}")
        return text.append(f"  {duration((end - state.created_at).total_seconds())}", style="dim")

    def _row(self, node: NodeState, now: datetime) -> Text:
        look = _LOOKS[node.status]
        row = Text(no_wrap=True, overflow="ellipsis")
        row.append(f"{_glyph(node, now)} {self._label(node.node_id)}", style=look.style)
        if node.attempt > 1:
            row.append(f"  attempt {node.attempt}/{max(node.retries + 1, node.attempt)}", style="yellow")
        if node.progress is not None and node.is_at_work:
            row.append(f"  {_bar(node.progress)}", style="cyan")
        said = self._said(node)
        if said:
            row.append(f"  {said}", style="red" if node.status is NodeStatus.FAILED else "")
        took = self._took(node, now)
        return row.append(f"  {took}", style="dim") if took else row

    def _row_left(self, node: NodeState) -> Text:
        """Return the look of a node that had not ended when its run did: no spinner, as it will not change."""
        unfinished = "left unfinished" if node.attempt else "did not run"
        return Text(f"⊘ {self._label(node.node_id)}  {unfinished}", style="dim", no_wrap=True, overflow="ellipsis")

    def _label(self, node_id: str) -> str:
        """Return the name without that of the block around it: the round and the step."""
        parent = self._parents[node_id]
        return node_id if parent is None else node_id.removeprefix(parent).replace("/:", "/").removeprefix("/")

    def _said(self, node: NodeState) -> str:
        match node.status:
            case NodeStatus.WAITING:
                return f"waits {waiting(node.wait_key, node.prompt, self._deadlines.get(node.node_id))}"
            case NodeStatus.RUNNING if node.attempt and node.interrupted_attempt == node.attempt:
                return "asked to stop"
            case NodeStatus.RUNNING if not node.is_at_work:
                return one_line(f"failed, will try again: {failure(node.error)}")
            case NodeStatus.RUNNING:
                return progress(node.progress, node.progress_message)
            case NodeStatus.SUCCEEDED:
                return f"→ {result(node.output)}" if result(node.output) else ""
            case NodeStatus.FAILED:
                return failure(node.error)
            case NodeStatus.CANCELED if node.skip is not None:
                return "skipped"
            case NodeStatus.CANCELED:
                return "canceled"
            case NodeStatus.IDLE | NodeStatus.READY:  # last of a closed set
                return ""

    def _took(self, node: NodeState, now: datetime) -> str:
        start = self._started.get(node.node_id)
        if start is None:
            return ""
        return duration(max((self._ended.get(node.node_id, now) - start).total_seconds(), 0.0))


def _node_of(payload: NodePayload) -> str:
    return payload.node_id


def _glyph(node: NodeState, now: datetime) -> str:
    if node.status is NodeStatus.RUNNING:
        return _FRAMES[int(now.timestamp() * _FRAMES_PER_SEC) % len(_FRAMES)]
    return _LOOKS[node.status].glyph


def _bar(percent: float) -> str:
    full = round(_BAR_WIDTH * min(max(percent, 0), 100) / 100)
    return "━" * full + "╌" * (_BAR_WIDTH - full)


def _parent(node_id: str, state: ExecutionState) -> str | None:
    """Return the block of a node: ``:foreach[2]/check`` is inside ``:foreach``."""
    above = node_id.rpartition("/")[0]
    block = above.rpartition("[")[0] if above.endswith("]") else above
    return block if block in state.nodes else None


def _in_order(node_ids: Iterable[str], state: ExecutionState) -> list[str]:
    """Sort nodes that were created together: each after its predecessors, else in the order of creation."""
    given = list(node_ids)
    left = dict.fromkeys(given, 0)
    for node_id in given:
        for edge in state.nodes[node_id].edges:
            left[edge.to] = left.get(edge.to, 0) + 1
    ready = [node_id for node_id in given if left[node_id] == 0]
    ordered: list[str] = []
    for node_id in ready:  # grows during the loop
        ordered.append(node_id)
        for edge in state.nodes[node_id].edges:
            left[edge.to] -= 1
            if left[edge.to] == 0:
                ready.append(edge.to)
    return ordered
