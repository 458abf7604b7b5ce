"""Random graphs that can run.

With ``is_racy=False``, a strategy draws only graphs in which the order of ends cannot matter: joins wait for every
branch or fail at the first failure, no failure stops the execution at once, and it has no end but Success.
"""

from typing import Any

from hypothesis import strategies as st

from pyoco_server.core import Graph, graph_from_dict

Options = st.SearchStrategy[dict[str, Any]]

PATIENT_JOINS: list[dict[str, Any]] = [{}, {"policy": "ALL_SUCCESS"}, {"policy": "ALL_DONE"}]
RACY_JOINS: list[dict[str, Any]] = [
    {"policy": "ANY_SUCCESS"},
    {"policy": "ANY_SUCCESS", "losers": "leave"},
    {"policy": "CUSTOM", "required": 1},
    {"policy": "CUSTOM", "required": 2},
    {"policy": "CUSTOM", "required": 2, "losers": "leave"},
    {"policy": "CUSTOM", "predicate": "majority"},
]


def join_options(*, is_racy: bool) -> Options:
    return st.sampled_from(PATIENT_JOINS + RACY_JOINS if is_racy else PATIENT_JOINS)


def task_options(*, is_racy: bool) -> Options:
    policies = ["branch", "stop", "isolate"] if is_racy else ["branch", "isolate"]
    return st.fixed_dictionaries({}, optional={"retries": st.integers(0, 2), "failPolicy": st.sampled_from(policies)})


class _Builder:
    """Collects nodes and edges, and makes ids."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"nodeId": "start", "nodeType": "Start"}]
        self.edges: list[dict[str, str]] = []

    def node(self, node_type: str, options: dict[str, Any]) -> str:
        node_id = f"{node_type.lower()}{len(self.nodes)}"
        self.nodes.append({"nodeId": node_id, "nodeType": node_type, **options})
        return node_id

    def edge(self, source: str, target: str, on: str | None = None) -> None:
        self.edges.append({"from": source, "to": target} | ({"on": on} if on else {}))

    def graph(self) -> Graph:
        return graph_from_dict({"graphId": "g", "nodes": self.nodes, "edges": self.edges})


@st.composite
def structured_graphs(draw: st.DrawFn, max_work: int = 7, *, is_racy: bool = True) -> Graph:
    """Sequences and nested fork/join blocks of tasks and waits, some with a handler for failure."""
    builder = _Builder()
    joins, tasks = join_options(is_racy=is_racy), task_options(is_racy=is_racy)
    budget = draw(st.integers(1, max_work))

    def block(entry: str, depth: int) -> str:
        """Append a block behind ``entry`` and return its last node."""
        nonlocal budget
        kind = draw(st.sampled_from(["task", "task", "wait", "rescued", "fork", "fork"])) if depth < 3 else "task"
        if kind == "fork" and budget > 1:
            fork, width = builder.node("Fork", {}), draw(st.integers(2, 3))
            builder.edge(entry, fork)
            tails = [sequence(fork, depth + 1) for _ in range(width)]
            join = builder.node("Join", draw(joins))
            for tail in tails:
                builder.edge(tail, join)
            return join
        budget -= 1
        node = builder.node("Wait" if kind == "wait" else "Task", draw(tasks))
        builder.edge(entry, node)
        return rescued(node) if kind == "rescued" else node

    def rescued(node: str) -> str:
        """Append a handler for the node's failure, and a join of both ways."""
        handler = builder.node("Task", draw(tasks))
        any_success: list[dict[str, Any]] = [{"policy": "ANY_SUCCESS"}] if is_racy else []
        join = builder.node("Join", draw(st.sampled_from([{}, *any_success, {"policy": "ALL_DONE"}])))
        builder.edge(node, handler, "failure")
        builder.edge(node, join)
        builder.edge(handler, join)
        return join

    def sequence(entry: str, depth: int) -> str:
        last = block(entry, depth)
        while budget > 0 and draw(st.booleans()):
            last = block(last, depth)
        return last

    tail = sequence("start", 0)
    end = draw(st.sampled_from(["Success", "Success", "Success", "Failed", "Canceled"])) if is_racy else "Success"
    builder.edge(tail, builder.node(end, {}))
    return builder.graph()


@st.composite
def tangled_graphs(draw: st.DrawFn, max_work: int = 6, *, is_racy: bool = True) -> Graph:
    """Any DAG: tasks with several inputs and outputs, joins over branches of different forks, several ends."""
    builder = _Builder()
    joins, tasks = join_options(is_racy=is_racy), task_options(is_racy=is_racy)
    count = draw(st.integers(2, max_work))
    inner = ["start"]
    fed: set[str] = set()
    for _ in range(count):
        kind = draw(st.sampled_from(["Task", "Task", "Wait", "Join"]))
        options = draw(joins.filter(lambda o: "required" not in o) if kind == "Join" else tasks)
        node = builder.node(kind, options)
        sources = draw(st.lists(st.sampled_from(inner), min_size=1, max_size=3, unique=True))
        for source in sources:
            outcomes = ["success", "success", "success", "failure", "always", "cancel"]
            on = draw(st.sampled_from(outcomes)) if source in fed and source != "start" else "success"
            builder.edge(source, node, on)
            if on in {"success", "always"}:
                fed.add(source)
        inner.append(node)
    others = ["Success", "Failed", "Canceled", None] if is_racy else ["Success", None]
    end, other = builder.node("Success", {}), draw(st.sampled_from(others))
    second = builder.node(other, {}) if other else None
    used = False
    for node in inner[1:]:
        if node not in fed:
            target = second if second and draw(st.booleans()) else end
            used = used or target == second
            builder.edge(node, target)
    if second and not used:
        builder.edge(inner[-1], second)
    if not any(edge["to"] == end for edge in builder.edges):
        builder.edge(inner[1], end)
    return builder.graph()


runnable_graphs = st.one_of(structured_graphs(), tangled_graphs())
raceless_graphs = st.one_of(structured_graphs(is_racy=False), tangled_graphs(is_racy=False))
