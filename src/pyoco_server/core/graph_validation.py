"""Checks of a graph before anything runs on it, and the names of the branches that meet at its joins.

:func:`check_graph` finds all problems at once, and names the node and the remedy for each. :func:`branch_names` names a
branch after the node behind the fork where it starts, if there is one such fork, and after its last node otherwise.
"""

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
    """What the checks read of a node."""

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
    """What the checks read of an edge."""

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
    if findings:  # the checks below need unique ids and edges between existing nodes
        raise GraphError(findings)
    adjacency = _Adjacency(nodes, edges)
    findings = [*_ends_and_starts(adjacency), *_joins(adjacency, predicates)]
    order = _topological_order(adjacency)
    if len(order) < len(nodes):
        circle = _one_cycle(adjacency, set(order))
        findings.append(
            GraphFinding(
                GraphProblem.CYCLE,
                circle[0],
                f"cycle {' -> '.join([*circle, circle[0]])}: a graph cannot go back; remove one of these edges",
            )
        )
    findings += _reachability(adjacency)
    if findings:
        raise GraphError(findings)
    return tuple(order)


class _Adjacency:
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


def _ends_and_starts(adjacency: _Adjacency) -> Iterator[GraphFinding]:
    starts = [node_id for node_id, node in adjacency.nodes.items() if node.node_type == "Start"]
    if not starts:
        yield GraphFinding(GraphProblem.NO_START, None, "no node of type Start: add one")
    for extra in starts[1:]:
        yield GraphFinding(
            GraphProblem.SEVERAL_STARTS,
            extra,
            f"node '{extra}' is a second Start: use one Start and a Fork after it",
        )
    for start in starts:
        if adjacency.before[start]:
            yield GraphFinding(
                GraphProblem.START_HAS_INPUTS, start, f"node '{start}' is a Start: nothing can lead to it"
            )
    for node_id, node in adjacency.nodes.items():
        outgoing = adjacency.after[node_id]
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


def _joins(adjacency: _Adjacency, predicates: Mapping[str, JoinPredicate]) -> Iterator[GraphFinding]:
    for node_id, node in adjacency.nodes.items():
        if node.is_join:
            if not adjacency.before[node_id]:
                yield GraphFinding(
                    GraphProblem.JOIN_WITHOUT_BRANCHES,
                    node_id,
                    f"node '{node_id}' is a Join without branches: nothing leads to it",
                )
            complaint = _custom_policy_complaint(node, len(adjacency.before[node_id]), predicates)
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


def _topological_order(adjacency: _Adjacency) -> list[str]:
    waiting_for = {node_id: len(before) for node_id, before in adjacency.before.items()}
    ready = deque(node_id for node_id, count in waiting_for.items() if count == 0)
    order = []
    while ready:
        node_id = ready.popleft()
        order.append(node_id)
        for target in adjacency.forward(node_id):
            waiting_for[target] -= 1
            if waiting_for[target] == 0:
                ready.append(target)
    return order


def _one_cycle(adjacency: _Adjacency, ordered: set[str]) -> list[str]:
    """Return one cycle: walk backwards among the nodes without an order; each has such a predecessor."""
    node_id = next(node_id for node_id in adjacency.nodes if node_id not in ordered)
    position: dict[str, int] = {}
    path: list[str] = []
    while node_id not in position:
        position[node_id] = len(path)
        path.append(node_id)
        node_id = next(source for source in adjacency.backward(node_id) if source not in ordered)
    return path[position[node_id] :][::-1]


def _reachability(adjacency: _Adjacency) -> Iterator[GraphFinding]:
    starts = [node_id for node_id, node in adjacency.nodes.items() if node.node_type == "Start"]
    ends = [node_id for node_id, node in adjacency.nodes.items() if node.is_end]
    from_start = _closure(starts, adjacency.forward)
    to_end = _closure(ends, adjacency.backward)
    for node_id, node in adjacency.nodes.items():
        orphaned_join = node.is_join and not adjacency.before[node_id]  # already reported, more precisely
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


Sources = Mapping[str, Sequence[str]]


def branch_names(order: Sequence[str], sources: Sources, forks: frozenset[str], joins: Sequence[str]) -> Sources:
    """Return for every join the names of its branches, in the order of its incoming edges.

    ``order`` lists all nodes so that every edge points forward, the start first; ``sources`` has the source of each
    incoming edge, by node.
    """
    dominators = _Dominators(order, sources)
    return {join: _names(sources[join], dominators, dominators.of(join), forks) for join in joins}


def _names(tails: Sequence[str], dominators: "_Dominators", fork: str, forks: frozenset[str]) -> Sequence[str]:
    if fork not in forks:
        return tails
    heads = [dominators.step_below(fork, tail) for tail in tails]
    proper = len(set(heads)) == len(heads) and fork not in tails
    return tuple(heads) if proper else tails


class _Dominators:
    """The immediate dominator of each node: the nearest node that every path to it goes through.

    It takes one pass, because the nodes come in topological order. The nodes form a tree by dominance; each also has a
    pointer to an ancestor farther up (``_jump``, a skew-binary jump pointer), so that any ancestor is found in a
    logarithmic number of steps.
    """

    def __init__(self, order: Sequence[str], sources: Sources) -> None:
        start = order[0]
        self._above: dict[str, str] = {start: start}
        self._jump: dict[str, str] = {start: start}
        self._depth: dict[str, int] = {start: 0}
        for node_id in order[1:]:
            first, *others = sources[node_id]
            common = first
            for source in others:
                common = self._meet(common, source)
            self._add(node_id, common)

    def of(self, node_id: str) -> str:
        return self._above[node_id]

    def step_below(self, upper: str, lower: str) -> str:
        """Return the ancestor of ``lower`` directly below ``upper``; ``lower`` itself if both are the same."""
        return lower if lower == upper else self._climb(lower, self._depth[upper] + 1)

    def _add(self, node_id: str, above: str) -> None:
        far, farther = self._jump[above], self._jump[self._jump[above]]
        balanced = self._depth[above] - self._depth[far] == self._depth[far] - self._depth[farther]
        self._above[node_id] = above
        self._jump[node_id] = farther if balanced else above
        self._depth[node_id] = self._depth[above] + 1

    def _climb(self, node_id: str, depth: int) -> str:
        while self._depth[node_id] > depth:
            jump = self._jump[node_id]
            node_id = jump if self._depth[jump] >= depth else self._above[node_id]
        return node_id

    def _meet(self, one: str, other: str) -> str:
        depth = min(self._depth[one], self._depth[other])
        one, other = self._climb(one, depth), self._climb(other, depth)
        while one != other:
            if self._jump[one] != self._jump[other]:
                one, other = self._jump[one], self._jump[other]
            else:
                one, other = self._above[one], self._above[other]
        return one
