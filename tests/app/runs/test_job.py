"""Jobs on the wire: documented jobs are understood, invalid ones are refused, and no field is lost."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.app.runs.job import InvalidJobError, Job, decode_job, encode_job, new_job
from pyoco_server.app.runs.submit import Submission
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.core import (
    Actor,
    ActorKind,
    Event,
    ExecutionState,
    decode_event,
    encode_event,
    fold,
    handle,
    initial_state,
)
from pyoco_server.core.commands import CreateExecution
from pyoco_server.core.payloads import ExecutionCreated
from tests.build import Ids

RUN = "7f8a2a4e-6b1c-4b5e-9a63-1f0f4f3f7a11"
NOW = datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)
DOCUMENTED: dict[str, Any] = {
    "run_id": RUN,
    "flow_name": "main",
    "tag": "cpu",
    "tags": ["cpu", "nightly"],
    "params": {"n": 1, "deep": {"list": [1, 2.5, None, True, "é"]}},
    "submitted_at": 1_893_456_000.5,
}

texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
submissions = st.builds(
    Submission,
    flow_name=names,
    params=st.dictionaries(texts, json_values, max_size=4),
    tag=st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    tags=st.none() | st.lists(texts, max_size=3).map(tuple),
    workflow_yaml=st.none() | texts,
    tenant_id=st.none() | texts,
    api_key_id=st.none() | texts,
)


def created_by(submission: Submission) -> Event:
    run_input = submission.input(NOW)
    command = CreateExecution(
        execution_id=RUN,
        actor=Actor(ActorKind.USER, "ann"),
        graph_id=run_input.flow_name,
        input=run_input.to_json(),
        correlation_id="c",
    )
    [created] = handle(initial_state(RUN), command, now=NOW, new_id=Ids(), graph_ids={run_input.flow_name})
    return created


def encoded(**changes: Any) -> bytes:
    """The documented job with changes; ``...`` leaves a field out."""
    fields = {**DOCUMENTED, **changes}
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not ...})


def test_the_documented_job_is_understood() -> None:
    job = decode_job(encoded())
    assert (job.run_id, job.flow_name, job.tag, job.tags) == (RUN, "main", "cpu", ("cpu", "nightly"))
    assert (job.params, job.submitted_at) == (DOCUMENTED["params"], 1_893_456_000.5)
    assert (job.log_position, job.created, job.wake) == (None, None, False)
    assert job.creation() is None


def test_optional_fields_may_be_missing() -> None:
    job = decode_job(encoded(tags=..., params=...))
    assert job.input().tags == ("cpu",)
    assert job.input().params == {}
    assert decode_job(encoded(tags=None, params=None)) == job


def test_unknown_fields_are_ignored() -> None:
    assert decode_job(encoded(priority=3, schema_version={"a": 1})) == decode_job(encoded())


def test_times_may_be_integers() -> None:
    assert decode_job(encoded(submitted_at=1_893_456_000)).submitted_at == 1_893_456_000.0


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({"run_id": ...}, False),
        ({"run_id": None}, False),
        ({"run_id": 7}, False),
        ({"run_id": ""}, False),
        ({"run_id": "a.b"}, False),
        ({"run_id": "a b"}, False),
        ({"run_id": "a\n"}, False),
        ({"run_id": "é"}, False),
        ({"run_id": "a" * 201}, False),
        ({"flow_name": ...}, True),
        ({"flow_name": ""}, True),
        ({"flow_name": 1}, True),
        ({"tag": ...}, True),
        ({"tag": "a.b"}, True),
        ({"tag": "*"}, True),
        ({"tag": ">"}, True),
        ({"tag": ""}, True),
        ({"tag": 1}, True),
        ({"submitted_at": ...}, True),
        ({"submitted_at": "now"}, True),
        ({"submitted_at": None}, True),
        ({"tags": "cpu"}, True),
        ({"tags": [1]}, True),
        ({"params": [1]}, True),
        ({"params": "x"}, True),
        ({"log_position": 0}, True),
        ({"log_position": "1"}, True),
        ({"created": 1}, True),
        ({"wake": "yes"}, True),
        ({"workflow_yaml": 1}, True),
    ],
    ids=str,
)
def test_an_invalid_job_is_refused_with_its_run_id_if_that_can_be_read(changes: dict[str, Any], is_known: bool) -> None:
    with pytest.raises(InvalidJobError) as error:
        decode_job(encoded(**changes))
    [name] = changes
    assert error.value.run_id == (RUN if is_known else None)
    assert name in str(error.value)
    assert (error.value.err_id, error.value.msg_id) == ("ERR-PYOCO-0012", "MSG-PYOCO-0012")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"\xff\xfe",
        b'{"run_id": "\xff"}',
        b'{"run_id": "\\ud800"}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_only_a_json_object_is_a_job(body: bytes) -> None:
    with pytest.raises(InvalidJobError) as error:
        decode_job(body)
    assert error.value.run_id is None


@given(submissions)
def test_a_job_contains_the_first_event_of_the_log(submission: Submission) -> None:
    created = created_by(submission)
    job = new_job(RUN, submission.input(NOW), created=created, position=7)
    received = decode_job(encode_job(job))
    assert received == job
    assert received.creation() == decode_event(encode_event(created))
    assert received.log_position == 7


@given(submissions)
def test_what_was_submitted_is_read_back_from_the_log(submission: Submission) -> None:
    assert RunInput.of(fold([created_by(submission)])) == submission.input(NOW)


@given(st.dictionaries(texts, json_values, max_size=4))
def test_a_program_that_knows_only_the_documented_fields_can_read_our_jobs(params: dict[str, Any]) -> None:
    submission = Submission(flow_name="main", params=params, tag="cpu")
    job = new_job(RUN, submission.input(NOW), created=created_by(submission), position=7)
    fields = msgspec.json.decode(encode_job(job))
    documented = {name: fields[name] for name in ("run_id", "flow_name", "tag", "tags", "params", "submitted_at")}
    assert documented == {
        "run_id": RUN,
        "flow_name": "main",
        "tag": "cpu",
        "tags": ["cpu"],
        "params": params,
        "submitted_at": NOW.timestamp(),
    }


@pytest.mark.parametrize(
    "given_input",
    [
        None,
        {},
        {"run": None},
        {"run": 5},
        {"run": "text"},
        {"run": {"tag": 5}},
        {"run": {"flow_name": 5}},
        {"params": [1, 2]},
        {"params": "text", "run": {"tag": "cpu"}},
        {"anything": {"else": 1}},
    ],
    ids=str,
)
def test_an_execution_of_a_client_is_a_run_of_its_graph(given_input: dict[str, Any] | None) -> None:
    """Executions can be created with any input: it need not be one of ours."""
    found = RunInput.of(ExecutionState(execution_id=RUN, graph_id="g", input=given_input))
    assert (found.flow_name, found.params) == ("g", {})


def test_parameters_of_a_client_are_kept() -> None:
    state = ExecutionState(execution_id=RUN, graph_id="g", input={"params": {"n": 1}, "run": "text"})
    assert RunInput.of(state).params == {"n": 1}


def created_with(**fields: Any) -> Event:
    payload = ExecutionCreated(graph_id="g", input=fields.pop("input", None), extra=fields)
    return msgspec.structs.replace(created_by(Submission(flow_name="g")), payload=payload)


@pytest.mark.spec("000 §3.1")
def test_fields_of_the_platform_beside_the_input_are_read() -> None:
    owned = {"flow_name": "g", "tag": "external", "tenant_id": "acme"}
    for given_input in (None, {"run": 5}, {"run": {"tenant_id": "bees", "tag": "cpu"}}):
        found = RunInput.of_creation(created_with(input=given_input, platform=owned))
        assert (found.tag, found.tenant_id) == ("external", "acme")


@pytest.mark.parametrize("platform", [5, "text", {"tag": 5}, []])
def test_invalid_fields_of_the_platform_are_ignored(platform: Any) -> None:
    found = RunInput.of_creation(created_with(input={"run": {"tenant_id": "bees"}}, platform=platform))
    assert (found.flow_name, found.tag, found.tenant_id) == ("g", "default", None)


@pytest.mark.spec("004 REQ-0023")
@pytest.mark.parametrize(
    ("snapshot", "found"),
    [
        ({}, RunInput(flow_name="unknown")),
        ({"flow_name": "", "tag": 5, "params": [], "tags": "x"}, RunInput(flow_name="unknown")),
        (
            {"flow_name": "f", "params": {"n": 1}, "tag": "cpu", "tags": ["a"], "submitted_at": 7, "tenant_id": "acme"},
            RunInput(flow_name="f", params={"n": 1}, tag="cpu", tags=("a",), submitted_at=7.0, tenant_id="acme"),
        ),
    ],
    ids=["nothing", "nonsense", "everything"],
)
def test_the_input_of_a_run_is_read_from_a_foreign_snapshot(snapshot: dict[str, Any], found: RunInput) -> None:
    assert RunInput.of_snapshot(snapshot) == found


def test_a_wake_up_is_marked() -> None:
    job = Job(run_id=RUN, flow_name="main", tag="cpu", submitted_at=1.0, log_position=3, wake=True)
    assert decode_job(encode_job(job)) == job
    assert msgspec.json.decode(encode_job(job))["wake"] is True
