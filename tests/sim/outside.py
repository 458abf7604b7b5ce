"""Executions on registered graphs, which outsiders drive: their graphs, the commands and the answers."""

from typing import Any, Final

import msgspec
from typing_extensions import override

from pyoco_server.core.json_codec import JsonObject
from tests.sim.history import UNKNOWN

EVERY: Final = 5
"""One of this many worlds has outsiders."""
WHICH: Final = 2
LATE_SEC: Final = 30.0
"""An abandoned execution is resumed this long after the last fault, and not before."""


def _node(node_id: str, node_type: str = "Task", **options: Any) -> JsonObject:
    named = {"task": node_id} if node_type == "Task" else {}
    return {"nodeId": node_id, "nodeType": node_type, **named, **options}


def _graph(graph_id: str, nodes: list[JsonObject], *paths: str) -> JsonObject:
    edges = {pair: None for path in paths for pair in zip(path.split()[:-1], path.split()[1:], strict=True)}
    return {"graphId": graph_id, "nodes": nodes, "edges": [{"from": source, "to": target} for source, target in edges]}


_ENDS: Final = [_node("start", "Start"), _node("end", "Success")]
_FORKED: Final = [*_ENDS, _node("fork", "Fork"), _node("left"), _node("right", retries=1)]
GRAPHS: Final = {
    graph["graphId"]: msgspec.json.encode(graph)
    for graph in (
        _graph("line", [*_ENDS, _node("a", retries=1), _node("b")], "start a b end"),
        _graph(
            "both",
            [*_FORKED, _node("meet", "Join", policy="ALL_SUCCESS"), _node("last")],
            *("start fork left meet last end", "fork right meet"),
        ),
        _graph(
            "either",
            [*_FORKED, _node("meet", "Join", policy="ANY_SUCCESS")],
            *("start fork left meet end", "fork right meet"),
        ),
    )
}
GRAPH_IDS: Final = sorted(GRAPHS)


def has_outsiders(seed: int) -> bool:
    """Return whether the world of this seed has outsiders; they change nothing in the other worlds."""
    return seed % EVERY == WHICH


class Given(msgspec.Struct):
    """A command of an outsider, and its answer."""

    execution_id: str
    fields: JsonObject
    key: str | None
    is_taken: bool = False
    """Whether a gateway accepted it. Otherwise it was refused, or its outcome is unknown."""
    event_ids: list[str] = []
    refusal: str | None = None

    @override
    def __str__(self) -> str:
        outcome = "taken" if self.is_taken else self.refusal or UNKNOWN
        return f"{self.fields['type']} {self.fields.get('nodeId', '')} to {self.execution_id} ({self.key}): {outcome}"


class Outside:
    """What the outsiders of a world know in common."""

    def __init__(self) -> None:
        self.wanted: list[tuple[JsonObject, str | None]] = []
        """The fields and the key of each request to create an execution."""
        self.executions: list[str] = []
        """Executions that a gateway has confirmed."""
        self.left: set[str] = set()
        """Those of them that outsiders abandon for a long time."""
        self.versions: dict[str, int] = {}
        """The highest version of each that an answer had."""
        self.given: list[Given] = []
        self.archiving: set[str] = set()
        """Executions with an archive command that no gateway has confirmed yet."""

    def note(self, execution_id: str, *, is_left: bool) -> None:
        """Record that a gateway has confirmed an execution."""
        if execution_id not in self.executions:
            self.executions.append(execution_id)
            if is_left:
                self.left.add(execution_id)

    def note_version(self, execution_id: str, version: int) -> None:
        """Record the version in an answer."""
        self.versions[execution_id] = max(version, self.versions.get(execution_id, 0))

    def of(self, execution_id: str) -> list[Given]:
        """Return the commands given to an execution."""
        return [each for each in self.given if each.execution_id == execution_id]
