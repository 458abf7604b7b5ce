"""Commands on the wire: all twelve, their common fields, and every field of each."""

import json
from typing import Any

import pytest

from pyoco_server.core import CommandType, DecodeError, DecodeProblem, decode_command, encode_command
from tests.core.shapes import COMMANDS, KINDS, fullest, smallest

NAMES = [
    "CreateExecution",
    "StartExecution",
    "CancelExecution",
    "ArchiveExecution",
    "MarkNodeReady",
    "StartNode",
    "ReportNodeProgress",
    "PutNodeWaiting",
    "RequestResumeNode",
    "ResumeNode",
    "SucceedNode",
    "FailNode",
]
WRONG_FIELD = {DecodeProblem.MISSING_FIELD, DecodeProblem.ILL_TYPED_FIELD}
COMMON = {"executionId": "run-1", "actor": {"kind": "user", "id": "ann"}}


def wire(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": name, **COMMON, **fields}


def refused(raw: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_command(raw)
    return caught.value


def case(name: str, *values: Any) -> Any:
    label = "-".join([name, *map(str, values)])
    return pytest.param(name, *values, id=label, marks=pytest.mark.spec(COMMANDS[name].section))


EACH_COMMAND = [case(name) for name in COMMANDS]
EACH_REQUIRED_FIELD = [case(name, field) for name, shape in COMMANDS.items() for field in shape.required]
EACH_OPTIONAL_FIELD = [case(name, field) for name, shape in COMMANDS.items() for field in shape.optional]
EACH_ILL_TYPED_FIELD = [
    case(name, field, value)
    for name, shape in COMMANDS.items()
    for field, kind in (shape.required | shape.optional).items()
    for value in KINDS[kind].bad
]
EACH_PARTY = [
    case(name, field) for name, shape in COMMANDS.items() for field, kind in shape.optional.items() if kind == "party"
]


# --- The twelve ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §1")
def test_there_are_these_12_commands_and_no_other() -> None:
    assert [command_type.value for command_type in CommandType] == NAMES
    assert len(NAMES) == 12


@pytest.mark.spec("001 §1")
@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_read_by_its_name(name: str) -> None:
    assert decode_command(wire(name, smallest(COMMANDS[name]))).type == name


@pytest.mark.spec("001 §1")
@pytest.mark.parametrize(
    "name",
    ["FailExecution", "CompleteExecution", "CancelNode", "InterruptNode", "OpenFork", "startNode", "START_NODE", ""],
)
def test_a_command_outside_the_list_is_refused(name: str) -> None:
    error = refused(wire(name, {"nodeId": "a"}))
    assert (error.problem, error.path) == (DecodeProblem.UNKNOWN_TYPE, "$.type")


@pytest.mark.spec("001 §1")
@pytest.mark.parametrize("name", [7, None, ["StartNode"]])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    assert refused(wire("StartNode", {"nodeId": "a"}) | {"type": name}).path == "$.type"


@pytest.mark.spec("001 §1")
def test_a_command_without_a_name_is_refused() -> None:
    error = refused({**COMMON, "nodeId": "a"})
    assert (error.problem, error.path) == (DecodeProblem.MISSING_FIELD, "$.type")


@pytest.mark.spec("001 §1")
def test_an_event_type_is_no_command() -> None:
    assert refused(wire("NODE_READY", {"nodeId": "a"})).problem is DecodeProblem.UNKNOWN_TYPE


# --- What all carry --------------------------------------------------------------------------------------------------


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", COMMON)
def test_a_missing_common_field_is_named(name: str, field: str) -> None:
    sent = wire(name, smallest(COMMANDS[name]))
    del sent[field]
    error = refused(sent)
    assert (error.problem, error.path) == (DecodeProblem.MISSING_FIELD, f"$.{field}")


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("field", "value"), [("executionId", 7), ("actor", "ann"), ("correlationId", 7)])
def test_an_ill_typed_common_field_is_named(name: str, field: str, value: Any) -> None:
    error = refused(wire(name, smallest(COMMANDS[name])) | {field: value})
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.{field}")


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("kind", ["system", "user", "scheduler", "external"])
def test_four_kinds_of_actors_may_give_commands(kind: str) -> None:
    found = decode_command(wire("StartExecution", {"actor": {"kind": kind}}))
    assert (found.actor.kind, found.actor.id) == (kind, None)


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize(
    ("actor", "problem", "path"),
    [
        ({}, DecodeProblem.MISSING_FIELD, "$.actor.kind"),
        ({"kind": "robot"}, DecodeProblem.ILL_TYPED_FIELD, "$.actor.kind"),
        ({"kind": "user", "id": 7}, DecodeProblem.ILL_TYPED_FIELD, "$.actor.id"),
    ],
)
def test_an_actor_that_is_none_is_refused(actor: dict[str, Any], problem: DecodeProblem, path: str) -> None:
    error = refused(wire("StartExecution", {"actor": actor}))
    assert (error.problem, error.path) == (problem, path)


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("correlation", [{}, {"correlationId": "request-9"}])
def test_a_correlation_may_be_given(correlation: dict[str, str]) -> None:
    found = decode_command(wire("StartExecution", correlation))
    assert found.correlation_id == correlation.get("correlationId")


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize(
    "form", [dict, json.dumps, lambda sent: json.dumps(sent).encode()], ids=["dict", "str", "bytes"]
)
def test_a_command_is_read_from_any_form_of_json(form: Any) -> None:
    sent = wire("StartNode", {"nodeId": "a"})
    assert decode_command(form(sent)) == decode_command(sent)


@pytest.mark.spec("001 §2")
def test_reading_a_command_leaves_what_was_given_untouched() -> None:
    sent = wire("StartNode", {"nodeId": "a", "note": "mine"})
    decode_command(sent)
    assert sent == wire("StartNode", {"nodeId": "a", "note": "mine"})


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize(("raw", "problem"), [("{", DecodeProblem.MALFORMED_JSON), ("[]", DecodeProblem.NOT_AN_OBJECT)])
def test_what_is_no_json_object_is_refused(raw: str, problem: DecodeProblem) -> None:
    error = refused(raw)
    assert (error.problem, error.path) == (problem, "$")


# --- The fields of each ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EACH_COMMAND)
@pytest.mark.parametrize("filled", [smallest, fullest])
def test_a_command_is_written_as_it_was_read(name: str, filled: Any) -> None:
    sent = wire(name, filled(COMMANDS[name]) | {"correlationId": "request-9"})
    assert json.loads(encode_command(decode_command(sent))) == sent


@pytest.mark.parametrize("name", EACH_COMMAND)
def test_an_undeclared_field_is_kept(name: str) -> None:
    sent = wire(name, smallest(COMMANDS[name]) | {"note": {"x": [1]}, "extra": 1})
    assert json.loads(encode_command(decode_command(sent))) == sent


@pytest.mark.parametrize(("name", "field"), EACH_REQUIRED_FIELD)
def test_a_missing_required_field_is_named(name: str, field: str) -> None:
    fields = fullest(COMMANDS[name])
    del fields[field]
    error = refused(wire(name, fields))
    assert (error.problem, error.path) == (DecodeProblem.MISSING_FIELD, f"$.{field}")


@pytest.mark.parametrize(("name", "field"), EACH_REQUIRED_FIELD)
def test_python_spelling_of_a_field_is_not_its_wire_name(name: str, field: str) -> None:
    fields = smallest(COMMANDS[name])
    value = fields.pop(field)
    snake_case = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in field)
    assert refused(wire(name, fields | {snake_case: value})).path == f"$.{field}"


@pytest.mark.parametrize(("name", "field"), EACH_OPTIONAL_FIELD)
def test_any_optional_field_may_be_left_out(name: str, field: str) -> None:
    fields = fullest(COMMANDS[name])
    del fields[field]
    assert json.loads(encode_command(decode_command(wire(name, fields)))) == wire(name, fields)


@pytest.mark.parametrize(("name", "field", "value"), EACH_ILL_TYPED_FIELD)
def test_an_ill_typed_field_is_named(name: str, field: str, value: Any) -> None:
    error = refused(wire(name, smallest(COMMANDS[name]) | {field: value}))
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.{field}")


@pytest.mark.parametrize(("name", "field"), EACH_PARTY)
@pytest.mark.parametrize("party", [{}, {"id": "ann"}, {"kind": 7}, {"kind": "user", "id": 7}], ids=str)
def test_a_requester_has_a_kind_and_perhaps_an_id(name: str, field: str, party: dict[str, Any]) -> None:
    assert refused(wire(name, smallest(COMMANDS[name]) | {field: party})).problem in WRONG_FIELD


@pytest.mark.spec("001 §4.12")
@pytest.mark.parametrize("error", [{"code": 7}, {"message": ["broke"]}, {"detail": "line 3"}], ids=str)
def test_the_error_of_a_failure_has_its_shape(error: dict[str, Any]) -> None:
    assert refused(wire("FailNode", {"nodeId": "a", "error": error})).problem in WRONG_FIELD


@pytest.mark.spec("001 §4.12")
@pytest.mark.parametrize("retryable", ["no", 0, None])
def test_whether_to_try_again_is_a_yes_or_a_no(retryable: Any) -> None:
    error = refused(wire("FailNode", {"nodeId": "a", "retryable": retryable}))
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, "$.retryable")
