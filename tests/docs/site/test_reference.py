"""The generated pages are complete, and what they say can happen does happen."""

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tools import cli_doc, commands_doc, errors_doc, events_doc, http_doc, metrics_doc
from tools.links import slug

from pyoco_server.core import CommandRejected, ExecutionState, RejectionCode, decode_event, fold, handle
from pyoco_server.core.commands import COMMANDS, decode_command
from pyoco_server.core.transitions import CommandType, EventType, NodeStatus
from pyoco_server.messages import CATALOGUE
from tests.docs.site.http_examples import KEPT
from tests.golden.files import all_cases, load

NOW = "2030-01-01T00:00:00Z"


def headings(page: str) -> set[str]:
    return {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}


def test_every_event_has_its_section_and_an_example_that_decodes() -> None:
    page = events_doc.page()
    assert set(EventType) <= headings(page)
    examples = [part.partition("\n```")[0] for part in page.split("```json\n")[1:]]
    assert [decode_event(example).type for example in examples] == [*EventType]


def test_every_command_has_its_section_and_an_example_that_decodes() -> None:
    assert set(COMMANDS) <= headings(commands_doc.page())
    for verb, _ in commands_doc._routes():
        fields = {"executionId": "e", "actor": {"kind": "user"}, **verb.example}
        if "Node" in verb.command:
            fields["nodeId"] = "n"
        assert decode_command({"type": verb.command, **fields}).type == verb.command


def test_every_reason_for_a_refusal_is_explained() -> None:
    assert set(commands_doc.REASONS) == set(RejectionCode)


def test_the_refusals_of_every_command_are_those_that_happen() -> None:
    """All commands in many ways, on the states of the golden logs: what is refused, and what the page says."""
    seen: dict[str, set[RejectionCode]] = defaultdict(set)
    for state in states():
        for command in some_commands(state):
            try:
                handle(state, command, now=NOW, new_id=lambda: "id", graph_ids=("known",))
            except CommandRejected as refused:
                seen[command.type].add(refused.code)
    seen["StartExecution"].add(RejectionCode.GRAPH_NOT_FOUND)  # the gateway's: see tests/gateway/test_executions.py
    for name, command_type in COMMANDS.items():
        listed = set(commands_doc.refusals(command_type))
        assert seen[name] == listed, name


def states() -> Iterator[ExecutionState]:
    yield ExecutionState(execution_id="e")
    for case in all_cases():
        events = [decode_event(line) for line in load(case).lines]
        for count in {1, len(events) // 2, len(events) - 1, len(events)} - {0}:
            yield fold(events[:count])
    yield waiting_in_its_second_attempt()


def waiting_in_its_second_attempt() -> ExecutionState:
    """What no golden log has; made from one that waits in its first."""
    events = [decode_event(line) for line in load("wait-from-outside").lines]
    waits = next(place for place, event in enumerate(events, 1) if event.type is EventType.NODE_WAITING)
    state = fold(events[:waits])
    [node] = [node for node in state.nodes.values() if node.status is NodeStatus.WAITING]
    return msgspec.structs.replace(state, nodes=state.nodes.set(node.node_id, msgspec.structs.replace(node, attempt=2)))


def some_commands(state: ExecutionState) -> Iterator[Any]:
    common: dict[str, Any] = {"executionId": state.execution_id, "actor": {"kind": "user"}}
    for name in COMMANDS:
        if "Node" not in name:
            more = {"graphId": "unknown"} if name == CommandType.CREATE_EXECUTION else {}
            yield decode_command({"type": name, **common, **more})
            continue
        for node_id, attempt in product(["unknown", *state.nodes], [None, 1, 2, 9]):
            fields: dict[str, Any] = {**common, "nodeId": node_id}
            if name != CommandType.MARK_NODE_READY:
                fields |= {"attempt": attempt}
            if name == CommandType.RESUME_NODE:
                fields |= {"resumeKey": "no such key"}
            if name == CommandType.START_NODE:
                fields |= {"workerId": "another"}
            yield decode_command({"type": name, **fields})


def test_every_route_is_described_and_linked() -> None:
    page = http_doc.page()
    titles = headings(page)
    asked = json.loads(KEPT.read_text(encoding="utf-8"))
    assert set(asked) <= titles
    for name in asked:
        assert f"(#{slug(name)})" in page, name


@pytest.mark.parametrize(
    "words", ["pyoco-server up", "pyoco-server keys create", "pyoco-worker", "pyoco-client cancel"]
)
def test_every_program_is_described(words: str) -> None:
    assert words in headings(cli_doc.page())


def test_every_option_is_described() -> None:
    page = cli_doc.page()
    for parser, _ in cli_doc.PROGRAMS.values():
        for option in options(parser()):
            assert f"`{option}`" in page, option


def options(parser: Any) -> Iterator[str]:
    for action in cli_doc._shown(parser):
        yield from action.option_strings
    for below in cli_doc._subcommands(parser).values():
        yield from options(below)


def test_every_error_is_described_with_a_remedy() -> None:
    page = errors_doc.page()
    for entry in CATALOGUE.values():
        assert f"`{entry.err_id}`" in page
        assert entry.action_en in page


def test_the_metrics_are_those_a_gateway_answers() -> None:
    """The recorded answer is cut short, so the documentation may have more; what it has must agree."""
    described = {one.name: one for one in metrics_doc.in_code()}
    text = json.loads(KEPT.read_text(encoding="utf-8"))["GET /metrics"]["answer"].removesuffix("…")
    answered = [*text_string_to_metric_families(text)]
    assert answered
    for family in answered:
        found = described[f"{family.name}_total" if family.type == "counter" else family.name]
        assert (found.kind, found.help) == (family.type, family.documentation)
        labels = [set(sample.labels) - {"le"} for sample in family.samples]  # none of a metric that needs settings
        assert all(names == set(found.labels) for names in labels)
    assert set(described) == set(metrics_doc.READING)
