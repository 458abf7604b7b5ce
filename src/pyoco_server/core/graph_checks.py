"""What a graph must be before anything runs on it. Every problem names the node, and all are found at once."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum, unique
from typing import Protocol

import msgspec

from pyoco_server.core.joins import JoinPredicate
from pyoco_server.core.payloads import EdgeOn, JoinPolicy
from pyoco_server.errors import InvalidInputError


@unique
class GraphProblem(StrEnum):
    """Why a graph cannot run."""

    DUPLICATE_NODE = "DUPLICATE_NODE"
    DUPLICATE_EDGE = "DUPLICATE_EDGE"
    DANGLING_EDGE = "DANGLING_EDGE"
    NO_START = "NO_START"
    SEVERAL_STARTS = "SEVERAL_STARTS"
    START_HAS_INPUTS = "START_HAS_INPUTS"
    END_HAS_OUTPUTS = "END_HAS_OUTPUTS"
    CYCLE = "CYCLE"
    UNREACHABLE_NODE = "UNREACHABLE_NODE"
    NO_PATH_TO_END = "NO_PATH_TO_END"
    NO_WAY_ON_SUCCESS = "NO_WAY_ON_SUCCESS"
    JOIN_WITHOUT_BRANCHES = "JOIN_WITHOUT_BRANCHES"
    BAD_JOIN_POLICY = "BAD_JOIN_POLICY"
    MISPLACED_OPTION = "MISPLACED_OPTION"


class GraphFinding(msgspec.Struct, frozen=True):
    """One problem, the node it is at, and what to do about it."""

    problem: GraphProblem
    node_id: str | None
    message: str


class GraphError(InvalidInputError, ValueError):
    """The graph cannot run; ``findings`` lists everything wrong with it."""

    def __init__(self, findings: Sequence[GraphFinding]) -> None:
        super().__init__("; ".join(finding.message for finding in findings))
        self.findings = tuple(findings)

    def __reduce__(self) -> tuple[type["GraphError"], tuple[Sequence[GraphFinding]]]:  # type: ignore[explicit-override]  # needs Python 3.12
        return GraphError, (self.findings,)


class CheckedNode(Protocol):
    """What the checks ask of a node."""

    @property
    def node_id(self) -> str: ...  # noqa: D102 the protocol's docstring covers its members
    @property
    def node_type(self) -> str: ...  # noqa: D102
    @property
    def policy(self) -> JoinPolicy | None: ...  # noqa: D102
    @property
    def required(self) -> int | None: ...  # noqa: D102
    @property
    def predicate(self) -> str | None: ...  # noqa: D102
    @property
    def is_end(self) -> bool: ...  # noqa: D102
    @property
    def is_join(self) -> bool: ...  # noqa: D102
    def misplaced(self) -> list[str]: ...  # noqa: D102


class CheckedEdge(Protocol):
    """What the checks ask of an edge."""

    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def target(self) -> str: ...  # noqa: D102
    @property
    def on(self) -> EdgeOn: ...  # noqa: D102


def check_graph(
    nodes: Sequence[CheckedNode], edges: Sequence[CheckedEdge], predicates: Mapping[str, JoinPredicate]
) -> tuple[str, ...]:
    """Return the node ids in an order in which every edge points forward, or raise :class:`GraphError`."""
    findings = [*_identities(nodes, edges)]
    if findings:  # the checks below need ids that mean something
        raise GraphError(findings)
    shape = _Shape(nodes, edges)
    findings = [*_ends_and_starts(shape), *_joins(shape, predicates)]
    order = _topological_order(shape)
    if len(order) < len(nodes):
        circle = _one_cycle(shape, set(order))
        findings.append(
            GraphFinding(
                GraphProblem.CYCLE,
                circle[0],
                f"cycle {' -> '.join([*circle, circle[0]])}: a graph cannot go back; remove one of these edges",
            )
        )
    findings += _reachability(shape)
    if findings:
        raise GraphError(findings)
    return tuple(order)


class _Shape:
    """Nodes by id and their neighbours, in both directions."""

    def __init__(self, nodes: Sequence[CheckedNode], edges: Sequence[CheckedEdge]) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.edges = edges
        self.after: dict[str, list[CheckedEdge]] = {node.node_id: [] for node in nodes}
        self.before: dict[str, list[CheckedEdge]] = {node.node_id: [] for node in nodes}
        for edge in edges:
            self.after[edge.source].append(edge)
            self.before[edge.target].append(edge)

    def forward(self, node_id: str) -> Iterator[str]:
        return (edge.target for edge in self.after[node_id])

    def backward(self, node_id: str) -> Iterator[str]:
        return (edge.source for edge in self.before[node_id])


def _identities(nodes: Sequence[CheckedNode], edges: Sequence[CheckedEdge]) -> Iterator[GraphFinding]:
    for node_id, count in Counter(node.node_id for node in nodes).items():
        if count > 1:
            yield GraphFinding(
                GraphProblem.DUPLICATE_NODE,
                node_id,
                f"node '{node_id}' is listed {count} times: ids must be unique",
            )
    known = {node.node_id for node in nodes}
    for edge in edges:
        for missing in sorted({edge.source, edge.target} - known):
            yield GraphFinding(
                GraphProblem.DANGLING_EDGE,
                missing,
                f"edge {edge.source} -> {edge.target}: there is no node '{missing}'",
            )
    for (source, target), count in Counter((edge.source, edge.target) for edge in edges).items():
        if count > 1:
            yield GraphFinding(
                GraphProblem.DUPLICATE_EDGE, source, f"edge {source} -> {target} is listed {count} times"
            )


def _ends_and_starts(shape: _Shape) -> Iterator[GraphFinding]:
    starts = [node_id for node_id, node in shape.nodes.items() if node.node_type == "Start"]
    if not starts:
        yield GraphFinding(GraphProblem.NO_START, None, "no node of type Start: add one")
    for extra in starts[1:]:
        yield GraphFinding(
            GraphProblem.SEVERAL_STARTS,
            extra,
            f"node '{extra}' is a second Start: use one Start and a Fork after it",
        )
    for start in starts:
        if shape.before[start]:
            yield GraphFinding(
                GraphProblem.START_HAS_INPUTS, start, f"node '{start}' is a Start: nothing can lead to it"
            )
    for node_id, node in shape.nodes.items():
        outgoing = shape.after[node_id]
        if node.is_end and outgoing:
            yield GraphFinding(
                GraphProblem.END_HAS_OUTPUTS,
                node_id,
                f"node '{node_id}' is a {node.node_type} end: nothing can follow it",
            )
        elif outgoing and not any(edge.on in {EdgeOn.SUCCESS, EdgeOn.ALWAYS} for edge in outgoing):
            yield GraphFinding(
                GraphProblem.NO_WAY_ON_SUCCESS,
                node_id,
                f"node '{node_id}' has no edge to follow when it succeeds: add one",
            )


def _joins(shape: _Shape, predicates: Mapping[str, JoinPredicate]) -> Iterator[GraphFinding]:
    for node_id, node in shape.nodes.items():
        if node.is_join:
            if not shape.before[node_id]:
                yield GraphFinding(
                    GraphProblem.JOIN_WITHOUT_BRANCHES,
                    node_id,
                    f"node '{node_id}' is a Join without branches: nothing leads to it",
                )
            complaint = _custom_policy_complaint(node, len(shape.before[node_id]), predicates)
        elif node.policy or node.required or node.predicate:
            complaint = f"is a {node.node_type}: only a Join has a policy"
        else:
            complaint = None
        if complaint:
            yield GraphFinding(GraphProblem.BAD_JOIN_POLICY, node_id, f"node '{node_id}' {complaint}")
        for option in node.misplaced():
            yield GraphFinding(
                GraphProblem.MISPLACED_OPTION, node_id, f"node '{node_id}' is a {node.node_type}: remove '{option}'"
            )


def _custom_policy_complaint(node: CheckedNode, branches: int, predicates: Mapping[str, JoinPredicate]) -> str | None:
    chosen = [name for name, value in (("required", node.required), ("predicate", node.predicate)) if value]
    if node.policy is not JoinPolicy.CUSTOM:
        return f"has '{chosen[0]}', which only the CUSTOM policy uses" if chosen else None
    if len(chosen) == 2:
        return "has the CUSTOM policy with 'required' and 'predicate': give one of them"
    if node.predicate and node.predicate not in predicates:
        known = ", ".join(sorted(predicates)) or "none"
        return f"names the predicate '{node.predicate}', which is not known (known: {known})"
    if node.required and node.required > branches:
        return f"requires {node.required} branches but has {branches}"
    return None


def _topological_order(shape: _Shape) -> list[str]:
    waiting_for = {node_id: len(before) for node_id, before in shape.before.items()}
    ready = deque(node_id for node_id, count in waiting_for.items() if count == 0)
    order = []
    while ready:
        node_id = ready.popleft()
        order.append(node_id)
        for target in shape.forward(node_id):
            waiting_for[target] -= 1
            if waiting_for[target] == 0:
                ready.append(target)
    return order


def _one_cycle(shape: _Shape, ordered: set[str]) -> list[str]:
    """Walk backwards among the nodes no order was found for: each has such a predecessor, so the walk must close."""
    node_id = next(node_id for node_id in shape.nodes if node_id not in ordered)
    position: dict[str, int] = {}
    path: list[str] = []
    while node_id not in position:
        position[node_id] = len(path)
        path.append(node_id)
        node_id = next(source for source in shape.backward(node_id) if source not in ordered)
    return path[position[node_id] :][::-1]


def _reachability(shape: _Shape) -> Iterator[GraphFinding]:
    starts = [node_id for node_id, node in shape.nodes.items() if node.node_type == "Start"]
    ends = [node_id for node_id, node in shape.nodes.items() if node.is_end]
    from_start = _closure(starts, shape.forward)
    to_end = _closure(ends, shape.backward)
    for node_id, node in shape.nodes.items():
        orphaned_join = node.is_join and not shape.before[node_id]  # already reported, more precisely
        if starts and node_id not in from_start and not orphaned_join:
            yield GraphFinding(
                GraphProblem.UNREACHABLE_NODE,
                node_id,
                f"node '{node_id}' cannot be reached from Start: connect or remove it",
            )
        if node_id not in to_end:
            yield GraphFinding(
                GraphProblem.NO_PATH_TO_END,
                node_id,
                f"node '{node_id}' has no path to an end: lead it to a Success, Failed or Canceled node",
            )


def _closure(seeds: Sequence[str], neighbours: "_Neighbours") -> set[str]:
    seen = set(seeds)
    stack = list(seeds)
    while stack:
        for found in neighbours(stack.pop()):
            if found not in seen:
                seen.add(found)
                stack.append(found)
    return seen


class _Neighbours(Protocol):
    def __call__(self, node_id: str, /) -> Iterator[str]: ...
