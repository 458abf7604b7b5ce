"""Events on the wire: the envelope, the 24 types, and every field of every payload."""

import json
from typing import Any

import pytest

from pyoco_server.core import (
    ActorKind,
    DecodeError,
    DecodeProblem,
    Event,
    EventType,
    decode_event,
    encode_event,
    encode_events,
    event_to_dict,
)
from tests.core.shapes import KINDS, PAYLOADS, fullest, smallest

GROUPS = {
    "000 §2.A": ["EXECUTION_CREATED", "EXECUTION_STARTED", "EXECUTION_COMPLETED", "EXECUTION_ARCHIVED"],
    "000 §2.B": ["EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED", "EXECUTION_FAIL_REQUESTED", "EXECUTION_FAILED"],
    "000 §2.C": [
        "NODE_CREATED",
        "NODE_READY",
        "NODE_STARTED",
        "NODE_PROGRESS_REPORTED",
        "NODE_WAITING",
        "NODE_RESUME_REQUESTED",
        "NODE_RESUMED",
        "NODE_SUCCEEDED",
        "NODE_FAIL_REPORTED",
        "NODE_FAILED",
    ],
    "000 §2.D": ["NODE_CANCEL_REQUESTED", "NODE_CANCELED", "NODE_INTERRUPT_REQUESTED"],
    "000 §2.E": ["FORK_OPENED", "JOIN_GATE_UPDATED", "JOIN_PASSED"],
}

WRONG_FIELD = {DecodeProblem.MISSING_FIELD, DecodeProblem.ILL_TYPED_FIELD}
ENVELOPE = {
    "eventId": "5f0c4a52-6c1e-4a6b-9b0e-0d6f3a1f4c11",
    "executionId": "run-1",
    "type": "NODE_READY",
    "occurredAt": "2026-01-01T00:00:00Z",
    "actor": {"kind": "system"},
    "schemaVersion": 1,
    "payload": {"nodeId": "a"},
}
OPTIONAL_IN_ENVELOPE = {"correlationId": "request-9", "causationId": "0b9a3c1e-41d5-4c0f-8f43-9a8f4e6f2d10"}


def wire(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    return ENVELOPE | {"type": event_type, "payload": payload}


def refused(raw: Any) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode_event(raw)
    return caught.value


def case(event_type: str, *values: Any) -> Any:
    name = "-".join([event_type, *map(str, values)])
    return pytest.param(event_type, *values, id=name, marks=pytest.mark.spec(PAYLOADS[event_type].section))


EACH_TYPE = [case(event_type) for event_type in PAYLOADS]
EACH_REQUIRED_FIELD = [case(event_type, field) for event_type, shape in PAYLOADS.items() for field in shape.required]
EACH_OPTIONAL_FIELD = [case(event_type, field) for event_type, shape in PAYLOADS.items() for field in shape.optional]
EACH_ILL_TYPED_FIELD = [
    case(event_type, field, value)
    for event_type, shape in PAYLOADS.items()
    for field, kind in (shape.required | shape.optional).items()
    for value in KINDS[kind].bad
]
EACH_LIST = [
    case(name, field) for name, shape in PAYLOADS.items() for field, kind in shape.required.items() if kind == "texts"
]
EACH_PARTY = [
    case(name, field) for name, shape in PAYLOADS.items() for field, kind in shape.optional.items() if kind == "party"
]
EACH_ERROR = [case(name) for name, shape in PAYLOADS.items() if "error" in shape.optional]


# --- The types -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("000 §0", *GROUPS)
def test_there_are_these_24_types_and_no_other() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert len(listed) == 24
    assert listed == [event_type.value for event_type in EventType]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        pytest.param(GROUPS[group], count, id=group, marks=pytest.mark.spec(group))
        for group, count in zip(GROUPS, (4, 4, 10, 3, 3), strict=True)
    ],
)
def test_every_type_of_a_group_is_read(names: list[str], count: int) -> None:
    assert [decode_event(wire(name, smallest(PAYLOADS[name]))).type for name in names] == names
    assert len(names) == count


@pytest.mark.spec("000 §0")
@pytest.mark.parametrize("name", ["NODE_SKIPPED", "EXECUTION_PAUSED", "node_ready", "NODE_READY ", "NodeReady", ""])
def test_a_type_outside_the_list_is_refused(name: str) -> None:
    error = refused(wire(name, {"nodeId": "a"}))
    assert (error.problem, error.path) == (DecodeProblem.UNKNOWN_TYPE, "$.type")


@pytest.mark.spec("000 §0")
def test_a_fact_cannot_be_changed_afterwards() -> None:
    fact = decode_event(ENVELOPE)
    with pytest.raises(AttributeError):
        fact.execution_id = "another"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        fact.payload.node_id = "b"  # type: ignore[attr-defined]


# --- The envelope ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("optional", [{}, OPTIONAL_IN_ENVELOPE], ids=["without optional fields", "with them"])
def test_the_envelope_is_written_as_it_was_read(optional: dict[str, str]) -> None:
    sent = ENVELOPE | optional
    assert json.loads(encode_event(decode_event(sent))) == sent


@pytest.mark.spec("000 §1.1")
def test_the_envelope_is_read_into_its_fields() -> None:
    found = decode_event(ENVELOPE | OPTIONAL_IN_ENVELOPE | {"actor": {"kind": "user", "id": "ann"}})
    assert isinstance(found, Event)
    assert (found.event_id, found.execution_id) == (ENVELOPE["eventId"], "run-1")
    assert (found.actor.kind, found.actor.id) == (ActorKind.USER, "ann")
    assert found.correlation_id == OPTIONAL_IN_ENVELOPE["correlationId"]
    assert found.causation_id == OPTIONAL_IN_ENVELOPE["causationId"]
    assert found.schema_version == 1


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("field", ENVELOPE)
def test_a_missing_envelope_field_is_named(field: str) -> None:
    error = refused({name: value for name, value in ENVELOPE.items() if name != field})
    assert (error.problem, error.path) == (DecodeProblem.MISSING_FIELD, f"$.{field}")


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("eventId", 7),
        ("executionId", ["run-1"]),
        ("type", 7),
        ("occurredAt", 1_767_225_600),
        ("actor", "system"),
        ("correlationId", 7),
        ("causationId", {"eventId": "x"}),
        ("payload", None),
        ("payload", []),
        ("payload", "nodeId"),
    ],
)
def test_an_ill_typed_envelope_field_is_named(field: str, value: Any) -> None:
    error = refused(ENVELOPE | {field: value})
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.{field}")


@pytest.mark.spec("000 §1.1")
def test_the_envelope_has_no_room_for_more_fields() -> None:
    error = refused(ENVELOPE | {"priority": 1})
    assert (error.problem, error.path) == (DecodeProblem.UNKNOWN_FIELD, "$.priority")


@pytest.mark.spec("000 §1.1")
def test_the_place_a_log_is_shown_with_is_no_part_of_the_fact() -> None:
    shown = decode_event(json.dumps(ENVELOPE | {"version": 3}))
    assert shown == decode_event(ENVELOPE)
    assert "version" not in event_to_dict(shown)


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("version", [0, -1, 1.5, "3", True])
def test_a_place_that_is_none_is_refused(version: Any) -> None:
    error = refused(ENVELOPE | {"version": version})
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, "$.version")


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("kind", ["system", "user", "scheduler", "external"])
def test_four_kinds_of_actors_are_known(kind: str) -> None:
    sent = ENVELOPE | {"actor": {"kind": kind, "id": "x"}}
    assert event_to_dict(decode_event(sent))["actor"] == {"kind": kind, "id": "x"}


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize(
    ("actor", "problem", "path"),
    [
        ({}, DecodeProblem.MISSING_FIELD, "$.actor.kind"),
        ({"id": "ann"}, DecodeProblem.MISSING_FIELD, "$.actor.kind"),
        ({"kind": "robot"}, DecodeProblem.ILL_TYPED_FIELD, "$.actor.kind"),
        ({"kind": "User"}, DecodeProblem.ILL_TYPED_FIELD, "$.actor.kind"),
        ({"kind": "user", "id": 7}, DecodeProblem.ILL_TYPED_FIELD, "$.actor.id"),
    ],
)
def test_an_actor_that_is_none_is_refused(actor: dict[str, Any], problem: DecodeProblem, path: str) -> None:
    error = refused(ENVELOPE | {"actor": actor})
    assert (error.problem, error.path) == (problem, path)


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("version", [0, 2, -1, 1.5])
def test_only_schema_version_1_is_read(version: float) -> None:
    error = refused(ENVELOPE | {"schemaVersion": version})
    assert (error.problem, error.path) == (DecodeProblem.UNSUPPORTED_SCHEMA_VERSION, "$.schemaVersion")


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("version", ["1", True, None, [1]])
def test_a_schema_version_is_a_number(version: Any) -> None:
    assert refused(ENVELOPE | {"schemaVersion": version}).path == "$.schemaVersion"


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01t00:00:00z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T09:00:00+09:00", "2026-01-01T00:00:00Z"),
        ("2025-12-31T19:30:00-04:30", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.25Z", "2026-01-01T00:00:00.250000Z"),
    ],
)
def test_times_are_written_in_utc(sent: str, written: str) -> None:
    assert event_to_dict(decode_event(ENVELOPE | {"occurredAt": sent}))["occurredAt"] == written


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("time", ["2026-01-01T00:00:00", "2026-01-01", "2026-02-30T00:00:00Z", "now", ""])
def test_a_time_that_names_no_moment_is_refused(time: str) -> None:
    error = refused(ENVELOPE | {"occurredAt": time})
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, "$.occurredAt")


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize(
    "form", [dict, json.dumps, lambda sent: json.dumps(sent).encode()], ids=["dict", "str", "bytes"]
)
def test_an_event_is_read_from_any_form_of_json(form: Any) -> None:
    assert decode_event(form(ENVELOPE)) == decode_event(ENVELOPE)


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("{", DecodeProblem.MALFORMED_JSON),
        (b"\xff", DecodeProblem.MALFORMED_JSON),
        ("[]", DecodeProblem.NOT_AN_OBJECT),
        ("null", DecodeProblem.NOT_AN_OBJECT),
        ("[" * 100_000, DecodeProblem.TOO_DEEP),
    ],
    ids=["cut off", "not UTF-8", "a list", "null", "a tower of lists"],
)
def test_what_is_no_json_object_is_refused(raw: str | bytes, problem: DecodeProblem) -> None:
    error = refused(raw)
    assert (error.problem, error.path) == (problem, "$")


# --- The payloads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event_type", EACH_TYPE)
@pytest.mark.parametrize("filled", [smallest, fullest])
def test_a_payload_is_written_as_it_was_read(event_type: str, filled: Any) -> None:
    sent = wire(event_type, filled(PAYLOADS[event_type]))
    assert json.loads(encode_event(decode_event(sent))) == sent


@pytest.mark.parametrize("event_type", EACH_TYPE)
def test_an_undeclared_field_is_kept(event_type: str) -> None:
    more = {"later": {"x": [1]}, "extra": 1, "type": "mine", "snake_case": True}
    sent = wire(event_type, smallest(PAYLOADS[event_type]) | more)
    assert json.loads(encode_event(decode_event(sent))) == sent


@pytest.mark.parametrize("event_type", EACH_TYPE)
def test_both_writers_agree(event_type: str) -> None:
    found = decode_event(wire(event_type, fullest(PAYLOADS[event_type])))
    assert json.loads(encode_event(found)) == event_to_dict(found)


@pytest.mark.parametrize("count", [0, 1, len(PAYLOADS)])
def test_several_are_written_as_each_of_them(count: int) -> None:
    found = [decode_event(wire(one, fullest(PAYLOADS[one]) | {"later": 1})) for one in [*PAYLOADS][:count]]
    assert encode_events(found) == b"[" + b",".join(map(encode_event, found)) + b"]"


@pytest.mark.parametrize(("event_type", "field"), EACH_REQUIRED_FIELD)
def test_a_missing_required_field_is_named(event_type: str, field: str) -> None:
    payload = fullest(PAYLOADS[event_type])
    del payload[field]
    error = refused(wire(event_type, payload))
    assert (error.problem, error.path) == (DecodeProblem.MISSING_FIELD, f"$.payload.{field}")


@pytest.mark.parametrize(("event_type", "field"), EACH_REQUIRED_FIELD)
def test_null_is_no_value_for_a_required_field(event_type: str, field: str) -> None:
    error = refused(wire(event_type, smallest(PAYLOADS[event_type]) | {field: None}))
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.payload.{field}")


@pytest.mark.parametrize(("event_type", "field"), EACH_OPTIONAL_FIELD)
def test_any_optional_field_may_be_left_out(event_type: str, field: str) -> None:
    payload = fullest(PAYLOADS[event_type])
    del payload[field]
    assert event_to_dict(decode_event(wire(event_type, payload)))["payload"] == payload


@pytest.mark.parametrize(("event_type", "field", "value"), EACH_ILL_TYPED_FIELD)
def test_an_ill_typed_field_is_named(event_type: str, field: str, value: Any) -> None:
    error = refused(wire(event_type, smallest(PAYLOADS[event_type]) | {field: value}))
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.payload.{field}")


@pytest.mark.parametrize(("event_type", "field"), EACH_LIST)
def test_an_ill_typed_member_of_a_list_is_named(event_type: str, field: str) -> None:
    error = refused(wire(event_type, smallest(PAYLOADS[event_type]) | {field: ["x", 7]}))
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, f"$.payload.{field}[1]")


@pytest.mark.parametrize(("event_type", "field"), EACH_PARTY)
@pytest.mark.parametrize("party", [{}, {"id": "ann"}, {"kind": 7}, {"kind": "user", "id": 7}], ids=str)
def test_a_requester_has_a_kind_and_perhaps_an_id(event_type: str, field: str, party: dict[str, Any]) -> None:
    assert refused(wire(event_type, smallest(PAYLOADS[event_type]) | {field: party})).problem in WRONG_FIELD


@pytest.mark.parametrize("event_type", EACH_ERROR)
@pytest.mark.parametrize("error", [{"code": 7}, {"message": ["broke"]}, {"detail": "line 3"}], ids=str)
def test_an_error_has_its_shape(event_type: str, error: dict[str, Any]) -> None:
    assert refused(wire(event_type, smallest(PAYLOADS[event_type]) | {"error": error})).problem in WRONG_FIELD


@pytest.mark.parametrize("event_type", EACH_ERROR)
@pytest.mark.parametrize("error", [{}, {"code": "E"}, {"message": "broke"}, {"detail": {}}, {"more": 1}], ids=str)
def test_every_part_of_an_error_is_optional(event_type: str, error: dict[str, Any]) -> None:
    sent = wire(event_type, smallest(PAYLOADS[event_type]) | {"error": error})
    assert event_to_dict(decode_event(sent)) == sent


@pytest.mark.spec("000 §3.12")
@pytest.mark.parametrize("progress", [0, 100, 33.3])
def test_progress_is_any_number_of_percent(progress: float) -> None:
    sent = wire("NODE_PROGRESS_REPORTED", {"nodeId": "a", "progress": progress})
    assert event_to_dict(decode_event(sent)) == sent


@pytest.mark.spec("000 §3.23")
@pytest.mark.parametrize("policy", ["ALL_SUCCESS", "ANY_SUCCESS", "ALL_DONE", "CUSTOM"])
def test_four_join_policies_are_known(policy: str) -> None:
    sent = wire("JOIN_GATE_UPDATED", smallest(PAYLOADS["JOIN_GATE_UPDATED"]) | {"policy": policy})
    assert event_to_dict(decode_event(sent)) == sent


@pytest.mark.spec("000 §1.1")
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+09:00", "9999-12-31T23:59:59-09:00"])
def test_a_time_outside_the_calendar_is_refused(at: str) -> None:
    error = refused(ENVELOPE | {"occurredAt": at})
    assert (error.problem, error.path) == (DecodeProblem.ILL_TYPED_FIELD, "$.occurredAt")


@pytest.mark.parametrize(
    ("name", "fields", "problem", "path"),
    [
        ("EXECUTION_STARTED", {"startedBy": {}}, DecodeProblem.MISSING_FIELD, "startedBy.kind"),
        ("EXECUTION_STARTED", {"startedBy": {"kind": 7}}, DecodeProblem.ILL_TYPED_FIELD, "startedBy.kind"),
        ("EXECUTION_CANCEL_REQUESTED", {"requestedBy": {"id": "x"}}, DecodeProblem.MISSING_FIELD, "requestedBy.kind"),
        ("NODE_FAILED", {"nodeId": "a", "error": {"code": 7}}, DecodeProblem.ILL_TYPED_FIELD, "error.code"),
        ("NODE_FAILED", {"nodeId": "a", "error": {"detail": "x"}}, DecodeProblem.ILL_TYPED_FIELD, "error.detail"),
    ],
)
@pytest.mark.spec("000 §3.2", "000 §3.5", "000 §3.18")
def test_a_wrong_part_of_an_object_is_named(
    name: str, fields: dict[str, Any], problem: DecodeProblem, path: str
) -> None:
    error = refused(wire(name, fields))
    assert (error.problem, error.path) == (problem, f"$.payload.{path}")


def nested(levels: int) -> str:
    """An object in an object in an object …, as the input of an execution."""
    inside = '{"in":' * levels + "{}" + "}" * levels
    return json.dumps(wire("EXECUTION_CREATED", {"graphId": "g", "input": 0})).replace(
        '"input": 0', f'"input": {inside}'
    )


def test_an_object_nested_too_deeply_is_refused() -> None:
    assert refused(nested(100_000)).problem is DecodeProblem.TOO_DEEP


def test_whatever_depth_can_be_read_can_be_written() -> None:
    readable = [levels for levels in (100, 500, 900, 1100) if _is_readable(nested(levels))]
    assert readable
    assert [levels for levels in readable if not encode_event(decode_event(nested(levels)))] == []


def _is_readable(raw: str) -> bool:
    try:
        decode_event(raw)
    except DecodeError:
        return False
    return True
