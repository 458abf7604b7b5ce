"""Every recorded log is read as it was when it was recorded, to the byte; README.md says what to do if not."""

from collections import Counter
from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from pyoco_server.core import (
    Event,
    EventType,
    ExecutionStatus,
    JoinPolicy,
    encode_event,
    fold,
    graph_from_dict,
    graph_from_log,
    initial_state,
    orchestrate,
    reduce,
    state_to_dict,
)
from pyoco_server.core.graph import Losers, NodeFailPolicy, NodeType
from pyoco_server.core.payloads import EdgeOn, JoinGateUpdated, NodeCanceled, NodeCreated, NodeWaiting, SkipKind
from pyoco_server.flows.model import ForEach, Parallel, Repeat, Switch, Until
from tests.build import T0, Ids
from tests.golden.files import Golden, all_cases, decoded, load, moment

load = cache(load)
EVERY_CASE = pytest.mark.parametrize("case", all_cases())
BLOCKS = {block.__name__ for block in (Parallel, Switch, Repeat, ForEach, Until)}
NODE_KINDS = {kind for name, kind in vars(NodeType).items() if name.isupper()} | BLOCKS


@EVERY_CASE
def test_events_read_and_write_as_they_were(case: str) -> None:
    golden = load(case)
    assert golden.lines
    for line, event in zip(golden.lines, decoded(golden), strict=True):
        assert encode_event(event) == line


@EVERY_CASE
def test_the_documents_are_those_that_were_recorded(case: str) -> None:
    golden = load(case)
    events = decoded(golden)
    assert golden.moments[-1].after == len(events)
    for recorded in golden.moments:
        read = moment(events, golden.stored, recorded.after)
        for name in ("state", "snapshot", "graph", "results"):
            assert getattr(read, name) == getattr(recorded, name), f"{name} after {recorded.after} events"


@EVERY_CASE
def test_folding_one_event_at_a_time_gives_the_recorded_states(case: str) -> None:
    golden = load(case)
    recorded = {found.after: bytes(found.state) for found in golden.moments}
    state = initial_state(decoded(golden)[0].execution_id)
    for number, event in enumerate(decoded(golden), start=1):
        state = reduce(state, event)
        if number in recorded:
            assert msgspec.json.encode(state_to_dict(state)) == recorded[number]


@EVERY_CASE
def test_nothing_more_follows_from_what_was_recorded(case: str) -> None:
    """The orchestrator adds no event to an old log."""
    events = decoded(load(case))
    state = fold(events)
    follows = orchestrate(graph_from_log(events), state, now=T0, new_id=Ids())
    assert follows == [] or not state.nodes, "only a run that no worker has started may have consequences"


@EVERY_CASE
def test_the_recorded_graph_can_be_registered(case: str) -> None:
    graph = load(case).moments[-1].graph
    assert isinstance(graph, msgspec.Raw)
    assert graph_from_dict(bytes(graph)) == graph_from_log(decoded(load(case)))


# --- The collection is complete --------------------------------------------------------------------------------------


def _all() -> Iterator[tuple[Golden, list[Event]]]:
    for case in all_cases():
        yield load(case), decoded(load(case))


def _events() -> Iterator[Event]:
    for _, events in _all():
        yield from events


def test_every_event_type_occurs() -> None:
    assert {event.type for event in _events()} == set(EventType)


def test_every_kind_of_node_occurs_and_one_of_another_program() -> None:
    found = {event.payload.node_type for event in _events() if isinstance(event.payload, NodeCreated)}
    assert found > NODE_KINDS


def test_every_join_policy_is_both_passed_and_not() -> None:
    gates = [event.payload for event in _events() if isinstance(event.payload, JoinGateUpdated)]
    assert {(gate.policy, gate.is_passable) for gate in gates} == {
        (policy, passable) for policy in JoinPolicy for passable in (True, False)
    }


def test_every_option_of_a_graph_occurs() -> None:
    graphs = [graph_from_log(events) for _, events in _all()]
    nodes = [node for graph in graphs for node in graph.nodes.values()]
    assert {node.fail_policy for node in nodes} == set(NodeFailPolicy)
    assert {node.losers for node in nodes if node.is_join} == set(Losers)
    assert {edge.on for graph in graphs for edge in graph.edges} == set(EdgeOn)


def test_every_way_to_be_skipped_occurs() -> None:
    skips = [event.payload.skip for event in _events() if isinstance(event.payload, NodeCanceled)]
    assert {skip.counts_as for skip in skips if skip is not None} == set(SkipKind)


def test_every_status_occurs_at_an_end() -> None:
    statuses = Counter(fold(events).status for _, events in _all())
    assert set(statuses) == set(ExecutionStatus)
    shown = {msgspec.json.decode(golden.moments[-1].snapshot)["status"] for golden, _ in _all()}
    assert shown == {"PENDING", "RUNNING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"}


def test_waits_with_deadlines_and_defaults_occur() -> None:
    waits = [event.payload.extra for event in _events() if isinstance(event.payload, NodeWaiting)]
    assert any("default" in extra for extra in waits)
    assert any("deadline" in extra and "default" not in extra for extra in waits)
    assert any("deadline" not in extra for extra in waits)


def test_large_outputs_and_values_of_memory_only_occur() -> None:
    lines = [line for golden, _ in _all() for line in golden.lines]
    assert any(b'"output":{"stored":' in line for line in lines)
    assert any(b'"output":{"repr":' in line for line in lines)
    assert any(golden.stored for golden, _ in _all())
