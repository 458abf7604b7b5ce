"""Which answers the form of a wait accepts, and errors in a schema."""

from typing import Any

import pytest

from pyoco_server.flows.errors import AnswerError, FlowError
from pyoco_server.flows.forms import check_answer, check_form

OBJECT = {
    "schema": {
        "type": "object",
        "properties": {"amount": {"type": "integer", "minimum": 3}, "by": {"enum": ["ann", "bob"]}},
        "required": ["amount"],
    }
}
FITS: list[tuple[dict[str, Any] | None, Any]] = [
    (None, "anything"),
    ({}, None),
    ({"question": "?"}, {"x": 1}),
    ({"options": ["yes", {"value": 7, "label": "Seven"}]}, "later"),
    ({"choices": [1, 2]}, {"why": "neither"}),
    ({"schema": {"type": "string"}}, "text"),
    ({"schema": {"enum": ["a", None]}}, None),
    ({"fields": {"ok": "boolean", "by": {"type": "string"}}}, {"ok": True}),
    ({"schema": {"properties": {"ok": "boolean"}}}, {}),
    (OBJECT, {"amount": 3, "by": "ann", "more": 1}),
    ({"schema": "free text"}, 1),
    ({"schema": {"type": "no such type"}}, 1),
]
DOES_NOT_FIT = [
    ({"schema": {"enum": ["yes", "no"]}}, "maybe", ["input"]),
    ({"schema": {"enum": [True]}, "options": [1]}, 1, ["input"]),
    ({"schema": {"type": "string"}}, 1, ["input"]),
    ({"schema": {"properties": {"ok": {"type": "boolean"}}}}, "ok", ["input"]),
    ({"fields": {"ok": "boolean"}}, {"ok": "yes"}, ["input", "ok"]),
    (OBJECT, {"by": "ann"}, ["input", "amount"]),
    (OBJECT, {"amount": 2}, ["input", "amount"]),
    (OBJECT, {"amount": 3, "by": "eve"}, ["input", "by"]),
    ({"schema": {"type": "array", "items": {"type": "string"}}}, ["a", 1], ["input", "1"]),
]


@pytest.mark.parametrize(("prompt", "answer"), FITS)
def test_an_answer_that_fits_is_taken(prompt: dict[str, Any] | None, answer: Any) -> None:
    check_answer("ask", prompt, answer)


@pytest.mark.parametrize(("prompt", "answer", "field"), DOES_NOT_FIT)
def test_an_answer_that_does_not_fit_names_the_field(prompt: dict[str, Any], answer: Any, field: list[str]) -> None:
    with pytest.raises(AnswerError) as caught:
        check_answer("ask", prompt, answer)
    assert [problem["loc"] for problem in caught.value.details["problems"]] == [field]
    assert ".".join(field) in str(caught.value)
    assert caught.value.err_id == "ERR-PYOCO-0002"


def test_every_field_that_is_wrong_is_named_and_no_value_is_repeated() -> None:
    with pytest.raises(AnswerError) as caught:
        check_answer("ask", OBJECT, {"amount": "s3cret", "by": "s3cret"})
    assert len(caught.value.details["problems"]) == 2
    assert "s3cret" not in str(caught.value) + str(caught.value.details)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "strin"}, "prompt.schema.type"),
        ({"properties": {"a": {"minimum": "3"}}}, "prompt.schema.properties.a.minimum"),
        ({"type": "string", "pattern": "("}, "prompt.schema.pattern"),
        ({"type": "string", "pattern": "(?=a)b"}, "prompt.schema.pattern"),
        ({"$ref": "http://127.0.0.1:1/schema"}, "prompt.schema"),
    ],
)
def test_an_invalid_schema_is_refused(schema: Any, where: str) -> None:
    with pytest.raises(FlowError, match=f"^{where} is not JSON Schema: ".replace(".", r"\.")):
        check_form({"schema": schema})


def test_a_pattern_is_matched_in_linear_time() -> None:
    prompt = {"schema": {"type": "string", "pattern": "^(a+)+$"}}
    check_form(prompt)
    with pytest.raises(AnswerError):
        check_answer("ask", prompt, "a" * 50_000 + "!")
