"""The first events of a redriven run, and the plan that describes them.

Both come from one simulation, in memory, of the old run's graph: every node that is kept succeeds at once with its old
output, and the orchestrator adds what follows. So forks, joins and skipped branches of the new log are those of a run
in which the kept nodes have just succeeded. The plan then lets the other nodes succeed, too, to see which of them run.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.app.ports import NewId
from pyoco_server.app.runs.redrive_plan import Choice, OldRun
from pyoco_server.core import Actor, ActorKind, Command, Commit, Event, ExecutionState, NodeStatus, commit, fold
from pyoco_server.core.commands import StartExecution, StartNode, SucceedNode
from pyoco_server.core.events import Stamp
from pyoco_server.core.graph import CONTROL, NodeType
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import (
    NodeCreated,
    NodeProgressReported,
    NodeReady,
    NodeStarted,
    NodeSucceeded,
    Payload,
)
from pyoco_server.core.recompute import MADE_BY

COPIED_FROM: Final = "copiedFrom"
"""The field of an event that names the node, and its attempt, of which the event repeats the outcome."""
_REDRIVE: Final = Actor(ActorKind.SYSTEM, "redrive")

Output = Callable[[JsonObject | None], JsonObject | None]
"""Returns an output, or a decision, as the new log is to refer to it."""


class RedrivePlan(NamedTuple):
    """Node by node, what becomes of it and why; control nodes are left out."""

    keep: dict[str, str]
    run: dict[str, str]
    drop: dict[str, str]

    def to_json(self) -> JsonObject:
        """Return the plan as answers show it."""
        named = zip(self._fields, self, strict=True)
        return {name: [{"node": node, "why": why} for node, why in part.items()] for name, part in named}


class RedrivenRun:
    """A new run that repeats a part of an old one, as its log begins."""

    def __init__(
        self, old: OldRun, choice: Choice, created: Event, *, now: datetime, new_id: NewId, output: Output
    ) -> None:
        """``created`` is its EXECUTION_CREATED."""
        self.events: Final = [created]
        self.state: ExecutionState = fold([created])
        self._old = old
        self._choice = choice
        self._now = now
        self._new_id = new_id
        self._output = output
        self._stamp = Stamp(execution_id=created.execution_id, now=now, new_id=new_id)
        self._kept: dict[str, str] = {}
        self.graph: Final = old.graph
        self._inner = self._copies_inside_blocks()
        self._ready: deque[str] = deque()
        if old.state.placed:
            self._give(StartExecution(execution_id=created.execution_id, actor=_REDRIVE, extra=old.said_at_start))
            self._keep_what_succeeded()

    def plan(self) -> RedrivePlan:
        """Return what the new run keeps, what it runs if everything succeeds, and what it drops."""
        again = self._choice.again
        run = {node_id: again.get(node_id, "nodes inside it run again") for node_id in self._those_that_run()}
        for node_id in self._old.created:
            if (
                self._old.block_of(node_id) is not None
                and node_id not in self._kept
                and self._old.top_of(node_id) in run
            ):
                run[node_id] = again.get(node_id, "nodes inside it run again")
        left = {
            node_id: "the new run does not come to it"
            for node_id in self._old.created
            if node_id not in self._kept and node_id not in run and self._old.node(node_id).attempt > 0
        }
        return RedrivePlan(self._kept, run, left)

    # --- Keeping nodes -----------------------------------------------------------------------------------------------

    def _keep_what_succeeded(self) -> None:
        while self._ready:
            node_id = self._ready.popleft()
            if self._choice.is_kept(node_id):
                self._start(node_id)
                self._give(SucceedNode(**self._about(node_id), attempt=1, output=self._kept_output(node_id)))
                self._note_kept(node_id)
            elif node_id in self._choice.open:
                self._start(node_id)

    def _start(self, node_id: str) -> None:
        self._give(StartNode(**self._about(node_id), attempt=1))
        inner = [self._stamp.event(payload, _REDRIVE) for payload in self._inner.get(node_id, ())]
        self._take(inner, fold(inner, self.state))
        for event in inner:
            if isinstance(event.payload, NodeSucceeded):
                self._note_kept(event.payload.node_id)

    def _give(self, command: Command) -> None:
        made = self._simulated(self.state, command)
        self._take(made.events, made.state)

    def _take(self, events: Sequence[Event], state: ExecutionState) -> None:
        self.state = state
        for event in events:
            payload = event.payload
            if type(payload) is NodeReady and self._is_work(payload.node_id):
                self._ready.append(payload.node_id)
                if self._choice.is_kept(payload.node_id):
                    marked = msgspec.structs.replace(payload, extra={**payload.extra, **self._copied(payload.node_id)})
                    event = msgspec.structs.replace(event, payload=marked)  # noqa: PLW2901
            self.events.append(event)

    def _is_work(self, node_id: str) -> bool:
        nodes = self._old.graph.nodes
        return node_id in nodes and nodes[node_id].node_type not in CONTROL

    def _about(self, node_id: str) -> dict[str, Any]:
        return {
            "execution_id": self.state.execution_id,
            "actor": _REDRIVE,
            "node_id": node_id,
            "extra": self._copied(node_id),
        }

    def _copied(self, node_id: str) -> JsonObject:
        attempt = self._old.node(node_id).attempt
        return {COPIED_FROM: {"runId": self._old.run_id, "nodeId": node_id, "attempt": attempt}}

    def _kept_output(self, node_id: str) -> JsonObject | None:
        output = self._output(self._old.node(node_id).output)
        return None if output is None else {name: part for name, part in output.items() if name != MADE_BY}

    def _note_kept(self, node_id: str) -> None:
        is_wait = self._old.created[node_id].node_type == NodeType.WAIT
        self._kept[node_id] = "it was answered" if is_wait else "it succeeded"

    # --- Inside blocks -----------------------------------------------------------------------------------------------

    def _copies_inside_blocks(self) -> dict[str, list[Payload]]:
        """Return what the log gets for the nodes inside each block of the graph, in the order of the old log.

        The order counts: where several nodes write one result, the newest is the one that stays.
        """
        inner: dict[str, list[Payload]] = {}
        done: set[str] = set()
        for event in self._old.events:
            payload = event.payload
            node_id = getattr(payload, "node_id", None)
            if node_id in self._old.created and self._is_in_new_log(node_id):
                inner.setdefault(self._old.top_of(node_id), []).extend(self._copies(payload, node_id, done))
        return inner

    def _is_in_new_log(self, node_id: str) -> bool:
        """Whether all blocks around the node are open or kept, and it is itself."""
        block = self._old.block_of(node_id)
        stays = node_id in self._choice.open or self._choice.is_kept(node_id)
        return stays and (block is None or self._is_in_new_log(block))

    def _copies(self, payload: Payload, node_id: str, done: set[str]) -> Iterator[Payload]:
        """Return what the new log gets for one event of a node; of a node of the graph, only what its block decided."""
        is_inside, is_block = self._old.block_of(node_id) is not None, self._old.is_block(node_id)
        start = NodeStarted(node_id=node_id, attempt=1, extra=self._copied(node_id))
        match payload:
            case NodeCreated() if is_inside:
                yield payload
            case NodeReady() if is_inside:
                yield NodeReady(node_id=node_id, extra=start.extra)
                if is_block:
                    yield start
            case NodeProgressReported(metrics={"decision": {"key": str(key)} as decided}):
                if is_block and self._choice.keeps_decision(node_id, key):
                    metrics: JsonObject = {"decision": self._output(decided)}
                    yield NodeProgressReported(node_id=node_id, attempt=1, metrics=metrics, extra=start.extra)
            case NodeSucceeded() if is_inside and node_id not in done and self._choice.is_kept(node_id):
                done.add(node_id)
                if not is_block:
                    yield start
                output = self._kept_output(node_id)
                yield NodeSucceeded(node_id=node_id, attempt=1, output=output, extra=start.extra)
            case _:  # what the node went through before is not repeated
                return

    # --- The plan ----------------------------------------------------------------------------------------------------

    def _those_that_run(self) -> list[str]:
        """Return the nodes of the graph that run, in an order in which they may, if each succeeds."""
        state = self.state
        found = dict.fromkeys(node_id for node_id in self._old.graph.order if self._is_due(state, node_id))
        due = deque(found)
        while due and not state.is_terminal:
            node_id = due.popleft()
            if not self._is_due(state, node_id):  # a join was passed without it
                continue
            if state.nodes[node_id].status is NodeStatus.READY:
                state = self._simulated(state, StartNode(**self._about(node_id), attempt=1)).state
            made = self._simulated(state, SucceedNode(**self._about(node_id), attempt=1))
            state = made.state
            ready = [event.payload.node_id for event in made.events if isinstance(event.payload, NodeReady)]
            found |= dict.fromkeys(filter(self._is_work, ready))
            due.extend(ready)
        return [*found]

    def _is_due(self, state: ExecutionState, node_id: str) -> bool:
        is_there = self._is_work(node_id) and node_id in state.nodes
        return is_there and state.nodes[node_id].status in (NodeStatus.READY, NodeStatus.RUNNING)

    def _simulated(self, state: ExecutionState, command: Command) -> Commit:
        return commit(self._old.graph, state, command, now=self._now, new_id=self._new_id)
