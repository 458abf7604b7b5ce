"""The graph: which node follows which, and by which rule each node waits for its incoming edges."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from pyoco_server.core.graph_validation import branch_names, check_graph
from pyoco_server.core.joins import (
    PREDICATES,
    TAKES_THE_FIRST,
    WAITS_FOR_ALL,
    JoinPredicate,
    JoinRule,
)
from pyoco_server.core.json_codec import (
    DecodeError,
    DecodeProblem,
    Extensible,
    JsonObject,
    Name,
    Raw,
    parse_object,
    plain,
    read,
    read_extensible,
)
from pyoco_server.core.payloads import EdgeOn, JoinPolicy, NodeMeta, Successor


class NodeType:
    """The node types the orchestrator knows; any other text is a kind of work, like Task."""

    START: Final = "Start"
    TASK: Final = "Task"
    WAIT: Final = "Wait"
    FORK: Final = "Fork"
    JOIN: Final = "Join"
    SUCCESS: Final = "Success"
    FAILED: Final = "Failed"
    CANCELED: Final = "Canceled"


ENDS: Final = frozenset({NodeType.SUCCESS, NodeType.FAILED, NodeType.CANCELED})
CONTROL: Final = frozenset({NodeType.START, NodeType.FORK, NodeType.JOIN, *ENDS})
"""Nodes that do no work: the orchestrator alone moves them."""


@unique
class NodeFailPolicy(StrEnum):
    """What a node's failure does to the rest of the execution."""

    BRANCH = "branch"
    """It fails the branch, and the execution, unless a join can do without the branch."""
    STOP = "stop"
    """It fails the execution, whatever joins follow."""
    ISOLATE = "isolate"
    """It only keeps the nodes that depend on it from running; the execution can still complete."""


@unique
class Losers(StrEnum):
    """What happens to branches that are still running when their join has passed."""

    CANCEL = "cancel"
    LEAVE = "leave"


class GraphNode(Extensible, frozen=True, kw_only=True):
    """A node as its author described it."""

    node_id: Name
    node_type: Name
    policy: JoinPolicy | None = None
    required: Annotated[int, msgspec.Meta(ge=1)] | None = None
    predicate: str | None = None
    losers: Losers = Losers.CANCEL
    fail_policy: NodeFailPolicy = NodeFailPolicy.BRANCH
    retries: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def is_end(self) -> bool:
        """Does the execution end here?"""
        return self.node_type in ENDS

    @property
    def is_join(self) -> bool:
        """Do branches meet here by a rule of their own?"""
        return self.node_type == NodeType.JOIN

    def misplaced(self) -> list[str]:
        """Return the options that mean nothing for a node of this type."""
        if self.node_type not in CONTROL:
            return ["losers"] if self.losers is not Losers.CANCEL else []
        work = (("retries", bool(self.retries)), ("failPolicy", self.fail_policy is not NodeFailPolicy.BRANCH))
        found = [name for name, given in work if given]
        return found + (["losers"] if self.losers is not Losers.CANCEL and not self.is_join else [])


class Edge(msgspec.Struct, frozen=True, gc=False):
    """One node follows another."""

    source: str
    target: str
    on: EdgeOn = EdgeOn.SUCCESS


class _WireEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    source: Name
    target: Name
    on: EdgeOn | None = None


class Graph:
    """A checked, immutable graph. Building one that cannot run raises :class:`GraphError`.

    ``remembered`` is a cache for other modules; it does not change what the graph means.
    """

    __slots__ = (
        "_branches",
        "_edges",
        "_incoming",
        "_outgoing",
        "_places",
        "_rules",
        "extra",
        "graph_id",
        "nodes",
        "order",
        "remembered",
        "start",
    )

    def __init__(
        self,
        graph_id: str,
        nodes: Iterable[GraphNode],
        edges: Iterable[Edge],
        *,
        predicates: Mapping[str, JoinPredicate] = PREDICATES,
        extra: JsonObject | None = None,
    ) -> None:
        self.extra: Final = extra or {}
        listed, self._edges = tuple(nodes), tuple(edges)
        self.order: Final = check_graph(listed, self._edges, predicates)
        self.graph_id: Final = graph_id
        self.nodes: Final = MappingProxyType({node.node_id: node for node in listed})
        self.start: Final = next(node.node_id for node in listed if node.node_type == NodeType.START)
        outgoing: dict[str, list[Edge]] = {node.node_id: [] for node in listed}
        incoming: dict[str, list[Edge]] = {node.node_id: [] for node in listed}
        for edge in self._edges:
            outgoing[edge.source].append(edge)
            incoming[edge.target].append(edge)
        self._outgoing: Final = {node_id: tuple(found) for node_id, found in outgoing.items()}
        self._incoming: Final = {node_id: tuple(found) for node_id, found in incoming.items()}
        self._places: Final = dict[str, bytes]()
        self.remembered: Final = dict[type, Any]()
        """What other modules have computed from this graph, by its type."""
        self._rules: Final = {node.node_id: _rule(node, predicates) for node in listed}
        self._branches: Final = branch_names(
            self.order,
            {node_id: tuple(edge.source for edge in found) for node_id, found in self._incoming.items()},
            frozenset(node.node_id for node in listed if node.node_type == NodeType.FORK),
            [node.node_id for node in listed if node.is_join],
        )

    def __eq__(self, other: object) -> bool:  # type: ignore[explicit-override]  # needs Python 3.12
        return isinstance(other, Graph) and graph_to_dict(self) == graph_to_dict(other)

    def __hash__(self) -> int:  # type: ignore[explicit-override]  # needs Python 3.12
        return hash((self.graph_id, self.order))

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, in the order given."""
        return self._edges

    def outgoing(self, node_id: str) -> tuple[Edge, ...]:
        """Return the edges that leave the node."""
        return self._outgoing[node_id]

    def incoming(self, node_id: str) -> tuple[Edge, ...]:
        """Return the edges that lead to the node."""
        return self._incoming[node_id]

    def rule(self, node_id: str) -> JoinRule:
        """Return the rule by which the node waits for its incoming edges."""
        return self._rules[node_id]

    def branches(self, join: str) -> Sequence[str]:
        """Return the names of the branches that meet at ``join``, in the order of its incoming edges."""
        return self._branches[join]

    def _meets(self, node_id: str) -> bool:
        return len(self._incoming[node_id]) > 1 or self.nodes[node_id].is_join

    def place(self, node_id: str) -> NodeMeta:
        """Return what NODE_CREATED records of the node: its author's fields, and its place in the graph."""
        node = self.nodes[node_id]
        described = plain(node)
        del described["nodeId"], described["nodeType"]
        return NodeMeta(
            node=described,
            edges=tuple(Successor(edge.target, edge.on, self._meets(edge.target)) for edge in self._outgoing[node_id]),
            inputs=len(self._incoming[node_id]),
            retries=node.retries,
            isolated=node.fail_policy is NodeFailPolicy.ISOLATE,
        )

    def place_as_json(self, node_id: str) -> JsonObject:
        """Return the same as JSON, encoded once; each caller gets its own copy."""
        encoded = self._places.get(node_id)
        if encoded is None:
            encoded = self._places[node_id] = msgspec.json.encode(self.place(node_id))
        place: JsonObject = msgspec.json.decode(encoded)
        return place


def graph_from_dict(raw: Raw, *, predicates: Mapping[str, JoinPredicate] = PREDICATES) -> Graph:
    """Read a graph; DecodeError for a malformed document, GraphError for a graph that cannot run."""
    fields = parse_object(raw)
    for field in ("graphId", "nodes", "edges"):
        if field not in fields:
            raise DecodeError(DecodeProblem.MISSING_FIELD, f"{field} is required", path=f"$.{field}")
    graph_id = read(fields["graphId"], Name, at="$.graphId")
    plain_nodes = read(fields["nodes"], list[JsonObject], at="$.nodes")
    nodes = [read_extensible(node, GraphNode, at=f"$.nodes[{index}]") for index, node in enumerate(plain_nodes)]
    wire_edges = read(fields["edges"], list[_WireEdge], at="$.edges")
    extra = {key: value for key, value in fields.items() if key not in {"graphId", "nodes", "edges"}}
    return Graph(graph_id, nodes, _with_outcomes(nodes, wire_edges), predicates=predicates, extra=extra)


def graph_to_dict(graph: Graph) -> JsonObject:
    """Write a graph the way :func:`graph_from_dict` reads it."""
    implied = _implied_outcomes(graph.nodes.values(), [(edge.source, edge.target) for edge in graph.edges])
    return {
        "graphId": graph.graph_id,
        "nodes": [plain(node) for node in graph.nodes.values()],
        "edges": [
            {"from": edge.source, "to": edge.target} | ({} if edge.on is on else {"on": edge.on.value})
            for edge, on in zip(graph.edges, implied, strict=True)
        ],
        **graph.extra,
    }


def _with_outcomes(nodes: list[GraphNode], edges: list[_WireEdge]) -> list[Edge]:
    """Return the edges, each with the outcome it follows.

    An edge without an outcome follows success. One to a Failed or Canceled end follows the outcome that the end is
    named after, unless it is the only edge of its source.
    """
    implied = _implied_outcomes(nodes, [(edge.source, edge.target) for edge in edges])
    return [Edge(edge.source, edge.target, edge.on or on) for edge, on in zip(edges, implied, strict=True)]


def _implied_outcomes(nodes: Iterable[GraphNode], edges: Sequence[tuple[str, str]]) -> list[EdgeOn]:
    named_after = {NodeType.FAILED: EdgeOn.FAILURE, NodeType.CANCELED: EdgeOn.CANCEL}
    types = {node.node_id: node.node_type for node in nodes}
    ways_on = Counter(source for source, _ in edges)
    return [
        named_after.get(types.get(target, ""), EdgeOn.SUCCESS) if ways_on[source] > 1 else EdgeOn.SUCCESS
        for source, target in edges
    ]


def _rule(node: GraphNode, predicates: Mapping[str, JoinPredicate]) -> JoinRule:
    if node.is_end:
        return TAKES_THE_FIRST
    if not node.is_join:
        return WAITS_FOR_ALL
    predicate = predicates[node.predicate] if node.predicate else None
    return JoinRule(node.policy or JoinPolicy.ALL_SUCCESS, node.required, predicate)
