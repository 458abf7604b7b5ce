"""Short ways to write graphs, commands, events and logs in tests."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyoco_server.core import (
    CancelMode,
    Event,
    EventType,
    ExecutionState,
    Graph,
    NodeStatus,
    advance,
    decode_command,
    decode_event,
    event_to_dict,
    fold,
    graph_from_dict,
    initial_state,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
EXECUTION = "run-1"
USER = {"kind": "user", "id": "ann"}


class Ids:
    """Deterministic UUIDs: 1, 2, 3, …"""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def __call__(self) -> str:
        return f"00000000-0000-4000-8000-{next(self._next):012d}"


def graph(nodes: str, edges: str, **options: dict[str, Any]) -> Graph:
    """``graph("s:Start a b:Wait z:Success", "s>a a>b b>z", a={"retries": 1})``; a node without a type is a Task.

    An edge may name its outcome: ``a>h:failure``.
    """
    listed = []
    for word in nodes.split():
        node_id, _, node_type = word.partition(":")
        listed.append({"nodeId": node_id, "nodeType": node_type or "Task", **options.get(node_id, {})})
    drawn = []
    for word in edges.split():
        ends, _, on = word.partition(":")
        source, _, target = ends.partition(">")
        drawn.append({"from": source, "to": target} | ({"on": on} if on else {}))
    return graph_from_dict({"graphId": "g", "nodes": listed, "edges": drawn})


def chain(*tasks: str) -> Graph:
    """Start, the tasks one after the other, Success."""
    path = ["s", *tasks, "z"]
    return graph(f"s:Start {' '.join(tasks)} z:Success", " ".join(f"{a}>{b}" for a, b in itertools.pairwise(path)))


def diamond(*branches: str, join: dict[str, Any] | None = None) -> Graph:
    """Start, a fork into the branches, their join, a task behind it, Success."""
    edges = " ".join(f"f>{branch} {branch}>j" for branch in branches)
    nodes = f"s:Start f:Fork {' '.join(branches)} j:Join after z:Success"
    return graph(nodes, f"s>f {edges} j>after after>z", j=join or {})


def command(name: str, node_id: str | None = None, **fields: Any) -> Any:
    """A command for :data:`EXECUTION`, from :data:`USER` unless said otherwise."""
    node = {"nodeId": node_id} if node_id else {}
    return decode_command({"type": name, "executionId": EXECUTION, "actor": USER, **node, **fields})


_event_numbers = itertools.count(1)


def event(event_type: str, *, at: datetime = T0, causation_id: str | None = None, **payload: Any) -> Event:
    """An event for :data:`EXECUTION` with the given wire payload."""
    return decode_event(
        {
            "eventId": f"11111111-0000-4000-8000-{next(_event_numbers):012d}",
            "executionId": EXECUTION,
            "type": event_type,
            "occurredAt": at.isoformat(),
            "actor": {"kind": "system"},
            "schemaVersion": 1,
            "payload": payload,
        }
        | ({"causationId": causation_id} if causation_id else {})
    )


def state_of(*events: Event) -> ExecutionState:
    """The state after these events."""
    return fold(events, initial_state(EXECUTION))


def types(events: Sequence[Event]) -> list[EventType]:
    """Return the types of the events."""
    return [found.type for found in events]


def payload(found: Event) -> dict[str, Any]:
    """The payload as it is on the wire."""
    sent: dict[str, Any] = event_to_dict(found)["payload"]
    return sent


class Run:
    """One execution driven by commands; keeps its log and state, and advances the clock by one second per command."""

    def __init__(self, on: Graph, *, started: bool = True) -> None:
        self.graph = on
        self.state = initial_state(EXECUTION)
        self.log: list[Event] = []
        self.new_id = Ids()
        self.now = T0
        self.do("CreateExecution", graphId=on.graph_id)
        if started:
            self.do("StartExecution")

    def do(
        self,
        name: str,
        node_id: str | None = None,
        *,
        observed: bool = False,
        cancel_mode: CancelMode = CancelMode.WAIT_FOR_WORKERS,
        **fields: Any,
    ) -> list[Event]:
        """Give one command; return the events of its commit."""
        self.now += timedelta(seconds=1)
        made = advance(
            self.graph,
            self.state,
            command(name, node_id, **fields),
            now=self.now,
            new_id=self.new_id,
            observed=observed,
            cancel_mode=cancel_mode,
        )
        return self.commit(made)

    def commit(self, made: list[Event]) -> list[Event]:
        """Append events to the log, and fold them into the state."""
        self.log += made
        self.state = fold(made, self.state)
        return made

    def start(self, *node_ids: str) -> None:
        """Start these nodes."""
        for node_id in node_ids:
            self.do("StartNode", node_id)

    def succeed(self, *node_ids: str) -> list[Event]:
        """Start these nodes and let them succeed; returns the last commit."""
        made: list[Event] = []
        for node_id in node_ids:
            self.start(node_id)
            made = self.do("SucceedNode", node_id)
        return made

    def fail(self, node_id: str) -> list[Event]:
        """Start the node and let it fail."""
        self.start(node_id)
        return self.do("FailNode", node_id, error={"code": "E", "message": "broke"})

    def status(self, node_id: str) -> NodeStatus:
        """Return the status of the node."""
        return self.state.nodes[node_id].status
