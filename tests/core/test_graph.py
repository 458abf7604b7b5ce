"""Reading, writing and checking graphs."""

import itertools
import json
from typing import Any

import pytest

from pyoco_server.core import (
    DecodeError,
    DecodeProblem,
    EventType,
    Graph,
    GraphError,
    GraphProblem,
    graph_from_dict,
    graph_to_dict,
)
from pyoco_server.core.graph import GraphNode
from pyoco_server.core.joins import EdgeTally
from pyoco_server.core.payloads import EdgeOn
from tests.build import Run, chain, diamond, graph, payload

START, END = {"nodeId": "s", "nodeType": "Start"}, {"nodeId": "z", "nodeType": "Success"}
FULL: dict[str, Any] = {
    "graphId": "full",
    "nodes": [
        START,
        {"nodeId": "f", "nodeType": "Fork"},
        {"nodeId": "a", "nodeType": "Task", "retries": 2, "failPolicy": "isolate"},
        {"nodeId": "b", "nodeType": "Wait", "failPolicy": "stop", "prompt": {"title": "ok?"}},
        {"nodeId": "j", "nodeType": "Join", "policy": "CUSTOM", "required": 1, "losers": "leave"},
        {"nodeId": "k", "nodeType": "Join", "policy": "CUSTOM", "predicate": "majority"},
        END,
        {"nodeId": "e", "nodeType": "Failed"},
        {"nodeId": "c", "nodeType": "Canceled"},
    ],
    "edges": [
        {"from": "s", "to": "f"},
        {"from": "f", "to": "a"},
        {"from": "f", "to": "b"},
        {"from": "a", "to": "j"},
        {"from": "b", "to": "j", "on": "always"},
        {"from": "j", "to": "k"},
        {"from": "k", "to": "z"},
        {"from": "a", "to": "e"},
        {"from": "b", "to": "c"},
    ],
}


# --- Reading and writing ---------------------------------------------------------------------------------------------


@pytest.mark.spec("003 §12.1")
def test_written_graph_reads_back_the_same() -> None:
    assert graph_to_dict(graph_from_dict(FULL)) == FULL


@pytest.mark.parametrize("raw", [json.dumps(FULL), json.dumps(FULL).encode()], ids=["text", "bytes"])
def test_graph_is_read_from_json(raw: str | bytes) -> None:
    assert graph_to_dict(graph_from_dict(raw)) == FULL


def test_defaults_are_left_out() -> None:
    implied = {"e": "failure", "c": "cancel"}
    spelt_out = [edge | {"on": edge.get("on", implied.get(edge["to"], "success"))} for edge in FULL["edges"]]
    assert graph_to_dict(graph_from_dict({**FULL, "edges": spelt_out})) == FULL


def test_an_outcome_that_is_not_the_implied_one_is_written() -> None:
    raw = {
        "graphId": "g",
        "nodes": [START, {"nodeId": "a", "nodeType": "Task"}, END, {"nodeId": "e", "nodeType": "Failed"}],
        "edges": [{"from": "s", "to": "a"}, {"from": "a", "to": "z"}, {"from": "a", "to": "e", "on": "success"}],
        "title": "kept",
    }
    assert graph_to_dict(graph_from_dict(raw)) == raw


def test_graphs_are_equal_if_they_say_the_same() -> None:
    assert graph_from_dict(FULL) == graph_from_dict(FULL)
    assert hash(graph_from_dict(FULL)) == hash(graph_from_dict(FULL))
    assert graph_from_dict(FULL) != graph_from_dict(FULL | {"graphId": "other"})


def test_undeclared_fields_of_a_node_are_kept() -> None:
    node = graph_from_dict(FULL).nodes["b"]
    assert node.extra == {"prompt": {"title": "ok?"}}


def test_undeclared_fields_of_a_node_are_recorded_with_it() -> None:
    created = [payload(found) for found in Run(graph_from_dict(FULL)).log if found.type is EventType.NODE_CREATED]
    meta = {found["nodeId"]: found["meta"] for found in created}
    assert meta["b"]["node"]["prompt"] == {"title": "ok?"}
    assert meta["a"]["retries"] == 2


def test_edges_are_recorded_with_their_source() -> None:
    created = [payload(found) for found in Run(chain("a")).log if found.type is EventType.NODE_CREATED]
    assert [found["meta"].get("edges", []) for found in created] == [[{"to": "a"}], [{"to": "z"}], []]


BAD_DOCUMENTS = [
    ({"graphId": "g", "nodes": [START, END]}, DecodeProblem.MISSING_FIELD, "$.edges"),
    ({"graphId": "g", "edges": []}, DecodeProblem.MISSING_FIELD, "$.nodes"),
    ({"nodes": [], "edges": []}, DecodeProblem.MISSING_FIELD, "$.graphId"),
    ({"graphId": "", "nodes": [], "edges": []}, DecodeProblem.ILL_TYPED_FIELD, "$.graphId"),
    ({"graphId": "g", "nodes": [{"nodeId": "s"}], "edges": []}, DecodeProblem.MISSING_FIELD, "$.nodes[0].nodeType"),
    (
        {"graphId": "g", "nodes": [START | {"policy": "MOST"}], "edges": []},
        DecodeProblem.ILL_TYPED_FIELD,
        "$.nodes[0].policy",
    ),
    (
        {"graphId": "g", "nodes": [START | {"retries": -1}], "edges": []},
        DecodeProblem.ILL_TYPED_FIELD,
        "$.nodes[0].retries",
    ),
    (
        {"graphId": "g", "nodes": [START, END], "edges": [{"from": "s", "to": "z", "label": "x"}]},
        DecodeProblem.UNKNOWN_FIELD,
        "$.edges[0].label",
    ),
    (
        {"graphId": "g", "nodes": [START, END], "edges": [{"from": "s", "to": "z", "on": "timeout"}]},
        DecodeProblem.ILL_TYPED_FIELD,
        "$.edges[0].on",
    ),
    ("[]", DecodeProblem.NOT_AN_OBJECT, "$"),
    ("{", DecodeProblem.MALFORMED_JSON, "$"),
]


@pytest.mark.parametrize(("raw", "problem", "path"), BAD_DOCUMENTS)
def test_malformed_document_names_the_place(raw: Any, problem: DecodeProblem, path: str) -> None:
    with pytest.raises(DecodeError) as refused:
        graph_from_dict(raw)
    assert (refused.value.problem, refused.value.path) == (problem, path)


# --- What an edge follows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "on"),
    [
        ("s>a a>z a>e", EdgeOn.FAILURE),
        ("s>a a>z a>e:always", EdgeOn.ALWAYS),
        ("s>a s>z a>e", EdgeOn.SUCCESS),
    ],
    ids=["beside another", "said", "the only one"],
)
def test_edge_to_a_failed_end_follows_the_failure_unless_it_is_the_only_way_on(edges: str, on: EdgeOn) -> None:
    found = graph("s:Start a z:Success e:Failed", edges)
    assert [edge.on for edge in found.incoming("e")] == [on]


def test_edge_to_a_canceled_end_follows_the_cancel() -> None:
    found = graph("s:Start a z:Success c:Canceled", "s>a a>z a>c")
    assert [edge.on for edge in found.incoming("c")] == [EdgeOn.CANCEL]


# --- Problems --------------------------------------------------------------------------------------------------------

# What is wrong, nodes, edges, options, the node that is to be named.
PROBLEMS: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("DUPLICATE_NODE", "s:Start a a z:Success", "s>a a>z", {}, "a"),
    ("DUPLICATE_EDGE", "s:Start a z:Success", "s>a s>a a>z", {}, "s"),
    ("DUPLICATE_EDGE", "s:Start a z:Success", "s>a a>z a>z:failure", {}, "a"),
    ("DANGLING_EDGE", "s:Start a z:Success", "s>a a>z a>ghost", {}, "ghost"),
    ("DANGLING_EDGE", "s:Start a z:Success", "s>a a>z ghost>a", {}, "ghost"),
    ("SEVERAL_STARTS", "s:Start t:Start z:Success", "s>z t>z", {}, "t"),
    ("START_HAS_INPUTS", "s:Start a z:Success", "s>a a>s a>z", {}, "s"),
    ("END_HAS_OUTPUTS", "s:Start y:Success z:Success", "s>y y>z", {}, "y"),
    ("END_HAS_OUTPUTS", "s:Start e:Failed z:Success", "s>e e>z", {}, "e"),
    ("CYCLE", "s:Start a z:Success", "s>a a>a a>z", {}, "a"),
    ("UNREACHABLE_NODE", "s:Start a z:Success", "s>z a>z", {}, "a"),
    ("NO_PATH_TO_END", "s:Start a z:Success", "s>a s>z", {}, "a"),
    ("NO_WAY_ON_SUCCESS", "s:Start a z:Success", "s>a s>z a>z:failure", {}, "a"),
    ("JOIN_WITHOUT_BRANCHES", "s:Start j:Join z:Success", "s>z j>z", {}, "j"),
    ("BAD_JOIN_POLICY", "s:Start a z:Success", "s>a a>z", {"a": {"policy": "ALL_DONE"}}, "a"),
    ("BAD_JOIN_POLICY", "s:Start a z:Success", "s>a a>z", {"a": {"required": 1}}, "a"),
    ("BAD_JOIN_POLICY", "s:Start a z:Success", "s>a a>z", {"a": {"predicate": "majority"}}, "a"),
    ("BAD_JOIN_POLICY", "s:Start j:Join z:Success", "s>j j>z", {"j": {"required": 1}}, "j"),
    ("MISPLACED_OPTION", "s:Start a z:Success", "s>a a>z", {"s": {"retries": 1}}, "s"),
    ("MISPLACED_OPTION", "s:Start a z:Success", "s>a a>z", {"z": {"failPolicy": "stop"}}, "z"),
    ("MISPLACED_OPTION", "s:Start a z:Success", "s>a a>z", {"a": {"losers": "leave"}}, "a"),
    ("MISPLACED_OPTION", "s:Start f:Fork a z:Success", "s>f f>a a>z", {"f": {"losers": "leave"}}, "f"),
    ("NO_WAY_ON_SUCCESS", "s:Start a e:Failed c:Canceled", "s>a a>e a>c", {}, "a"),
    (
        "BAD_JOIN_POLICY",
        "s:Start j:Join z:Success",
        "s>j j>z",
        {"j": {"policy": "CUSTOM", "required": 1, "predicate": "majority"}},
        "j",
    ),
    (
        "BAD_JOIN_POLICY",
        "s:Start j:Join z:Success",
        "s>j j>z",
        {"j": {"policy": "CUSTOM", "predicate": "most"}},
        "j",
    ),
    ("BAD_JOIN_POLICY", "s:Start j:Join z:Success", "s>j j>z", {"j": {"policy": "CUSTOM", "required": 2}}, "j"),
]


@pytest.mark.parametrize(("problem", "nodes", "edges", "options", "node_id"), PROBLEMS)
def test_graph_that_cannot_run_names_the_node(
    problem: str, nodes: str, edges: str, options: dict[str, Any], node_id: str
) -> None:
    with pytest.raises(GraphError) as refused:
        graph(nodes, edges, **options)
    found = next(finding for finding in refused.value.findings if finding.problem == problem)
    assert found.node_id == node_id
    assert node_id in found.message
    assert found.message in str(refused.value)


@pytest.mark.parametrize("nodes", ["z:Success", ""])
def test_graph_without_a_start_says_so(nodes: str) -> None:
    with pytest.raises(GraphError, match="no node of type Start") as refused:
        graph(nodes, "")
    assert [finding.problem for finding in refused.value.findings] == [GraphProblem.NO_START]


def test_every_problem_is_shown() -> None:
    assert {problem for problem, *_ in PROBLEMS} | {"NO_START"} == set(GraphProblem)


def test_cycle_is_spelt_out() -> None:
    with pytest.raises(GraphError, match=r"a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c") as refused:
        graph("s:Start a b c z:Success", "s>a a>b b>c c>a c>z")
    assert refused.value.findings[0].node_id in {"a", "b", "c"}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(GraphError) as refused:
        graph("s:Start a b z:Success", "s>z a>b", b={"policy": "ALL_DONE"})
    problems = [finding.problem.value for finding in refused.value.findings]
    assert problems == [
        "BAD_JOIN_POLICY",
        "UNREACHABLE_NODE",
        "NO_PATH_TO_END",
        "UNREACHABLE_NODE",
        "NO_PATH_TO_END",
    ]


def test_order_has_every_edge_pointing_forward() -> None:
    found = graph_from_dict(FULL)
    place = {node_id: number for number, node_id in enumerate(found.order)}
    assert all(place[edge.source] < place[edge.target] for edge in found.edges)


# --- Predicates ------------------------------------------------------------------------------------------------------


def test_graph_can_be_given_predicates_of_its_own() -> None:
    def first_two(tally: EdgeTally) -> bool:
        return tally.taken >= 2

    raw = graph_to_dict(diamond("a", "b", "c"))
    raw["nodes"] = [
        node | {"policy": "CUSTOM", "predicate": "firstTwo"} if node["nodeId"] == "j" else node for node in raw["nodes"]
    ]
    run = Run(graph_from_dict(raw, predicates={"firstTwo": first_two}))
    run.succeed("a", "c")
    assert run.status("after") == "READY"


# --- Branch names ----------------------------------------------------------------------------------------------------

BRANCHES = [
    ("one node each", "s:Start f:Fork a b j:Join z:Success", "s>f f>a f>b a>j b>j j>z", ["a", "b"]),
    ("several nodes", "s:Start f:Fork a a2 b b2 j:Join z:Success", "s>f f>a f>b a>a2 b>b2 a2>j b2>j j>z", ["a", "b"]),
    ("order of the edges", "s:Start f:Fork a b j:Join z:Success", "s>f f>a f>b b>j a>j j>z", ["b", "a"]),
    (
        "nested fork",
        "s:Start f:Fork a g:Fork x y i:Join j:Join z:Success",
        "s>f f>a f>g g>x g>y x>i y>i i>j a>j j>z",
        ["g", "a"],
    ),
    ("no fork", "s:Start a b j:Join z:Success", "s>a s>b a>j b>j j>z", ["a", "b"]),
    ("fork leads straight to the join", "s:Start f:Fork a j:Join z:Success", "s>f f>a f>j a>j j>z", ["f", "a"]),
    (
        "two edges of one branch",
        "s:Start f:Fork a x y b j:Join z:Success",
        "s>f f>a f>b a>x a>y x>j y>j b>j j>z",
        ["x", "y", "b"],
    ),
    (
        "branches of one fork cross",
        "s:Start f:Fork a b t j:Join z:Success",
        "s>f f>a f>b a>t b>t t>j a>j j>z",
        ["t", "a"],
    ),
]


@pytest.mark.spec("003 §7.1")
@pytest.mark.parametrize(("nodes", "edges", "names"), [row[1:] for row in BRANCHES], ids=[row[0] for row in BRANCHES])
def test_branches_of_a_join_are_named_after_the_heads_of_their_fork(nodes: str, edges: str, names: list[str]) -> None:
    assert list(graph(nodes, edges).branches("j")) == names


@pytest.mark.spec("003 §7.1")
def test_join_expects_the_branches_the_fork_opened() -> None:
    nodes = "s:Start f:Fork a a2 b b2 j:Join z:Success"
    run = Run(graph(nodes, "s>f f>a f>b a>a2 b>b2 a2>j b2>j j>z"))
    run.succeed("a", "a2")
    opened = next(payload(found) for found in run.log if found.type is EventType.FORK_OPENED)
    gate = next(payload(found) for found in run.log if found.type is EventType.JOIN_GATE_UPDATED)
    assert gate["expectedBranches"] == opened["branchIds"]
    assert gate["completedBranches"] == ["a"]


def test_graph_can_be_built_without_a_document() -> None:
    nodes = [GraphNode(node_id="s", node_type="Start"), GraphNode(node_id="z", node_type="Success")]
    built = Graph("g", nodes, [*graph("s:Start z:Success", "s>z").edges])
    assert (built.start, built.order) == ("s", ("s", "z"))


def test_branches_of_long_chains_are_named_by_their_heads() -> None:
    """Long enough for the search of common ancestors to take more than single steps."""
    size = 40
    one, other = ([f"{side}{number}" for number in range(size)] for side in "pq")
    path = " ".join(f"{a}>{b}" for chain_of in (one, other) for a, b in itertools.pairwise(chain_of))
    on = graph(
        f"s:Start f:Fork {' '.join(one + other)} j:Join z:Success",
        f"s>f f>p0 f>q0 {path} p{size - 1}>j q{size - 1}>j j>z",
    )
    assert list(on.branches("j")) == ["p0", "q0"]


def test_branches_that_fork_at_different_depths_have_different_names() -> None:
    on = graph(
        "s:Start f:Fork a b g:Fork c d e k:Join j:Join z:Success",
        "s>f f>a f>b b>g g>c g>d d>e c>k e>k k>j a>j j>z",
    )
    assert (list(on.branches("k")), list(on.branches("j"))) == (["c", "d"], ["b", "a"])
