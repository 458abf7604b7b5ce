"""The form of a wait: the JSON Schema in its prompt, and the check of an answer against it.

A prompt may have ``schema`` (or ``fields``): JSON Schema, or the properties of an object by their names. Without one
every answer is accepted: ``options`` are suggestions of the dashboard, not a limit. The dashboard draws its form from
the same fields.

Schemas can come from an untrusted flow.yaml. So nothing is fetched for a ``$ref``, and patterns are matched in linear
time; a pattern that needs more (look-around, back-references) is refused.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgspec

from pyoco_server.core.json_codec import JsonObject
from pyoco_server.flows.errors import AnswerError, FlowError

if TYPE_CHECKING:
    import jsonschema_rs

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_VALUE: Final = "the value"
"""The name of the answer in messages, which do not repeat the answer itself: it may contain secrets."""
MOST_PROBLEMS: Final = 20
REMEMBERED: Final = 256


def schema_of(prompt: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 a schema is an object or a boolean
    """Return the JSON Schema that an answer to this prompt must fit; None if every answer fits."""
    asked = prompt or {}
    schema = next((asked[name] for name in ("schema", "fields") if asked.get(name) is not None), None)
    return _expanded(schema) if isinstance(schema, Mapping) else None


def check_form(prompt: Mapping[str, Any] | None) -> None:
    """Refuse a prompt whose schema is not valid JSON Schema; FlowError names the place."""
    schema = schema_of(prompt)
    if schema is None:
        return
    try:
        _validator(_encoded(schema))
    except ValueError as error:
        wrong = cast("jsonschema_rs.ValidationError", error)
        where = ".".join(map(str, ["prompt.schema", *wrong.instance_path]))
        raise FlowError(f"{where} is not JSON Schema: {wrong.message}") from error


def check_answer(node_id: str, prompt: Mapping[str, Any] | None, answer: Any) -> None:  # noqa: ANN401 any JSON
    """Refuse an answer that does not fit the prompt's form: AnswerError.

    An older log can have a prompt with an invalid schema, which was accepted then: every answer fits it.
    """
    schema = schema_of(prompt)
    if schema is None:
        return
    try:
        validator = _validator(_encoded(schema))
    except ValueError:
        return
    problems = [_problem(error) for error, _ in zip(validator.iter_errors(answer), range(MOST_PROBLEMS), strict=False)]
    if problems:
        raise AnswerError(node_id, problems)


def _expanded(schema: Mapping[str, Any]) -> JsonObject:
    """Return the schema with the short forms of the dashboard written out as JSON Schema."""
    if "type" not in schema and "properties" not in schema and all(_is_field(field) for field in schema.values()):
        schema = {"properties": schema}
    if not isinstance(schema.get("properties"), Mapping):
        return dict(schema)
    fields = {
        name: {"type": field} if isinstance(field, str) else field for name, field in schema["properties"].items()
    }
    return {"type": "object", **schema, "properties": fields}


def _is_field(field: object) -> bool:
    return isinstance(field, Mapping) or (isinstance(field, str) and field in _TYPES)


def _problem(error: "jsonschema_rs.ValidationError") -> JsonObject:
    path = ["input", *map(str, error.instance_path)]
    kind = error.kind
    if kind.name == "required":
        return {"loc": [*path, kind.as_dict()["property"]], "msg": "this field is required", "type": kind.name}
    return {"loc": path, "msg": error.message, "type": kind.name}


def _encoded(schema: JsonObject) -> bytes:
    return msgspec.json.encode(schema, order="sorted")


@lru_cache(maxsize=REMEMBERED)
def _validator(encoded: bytes) -> "jsonschema_rs.Validator":
    """Return the validator of a schema; ValueError (a ``jsonschema_rs.ValidationError``) if the schema is invalid."""
    import jsonschema_rs  # noqa: PLC0415 it takes a tenth of a second, and most processes check no form

    return jsonschema_rs.validator_for(
        msgspec.json.decode(encoded),
        mask=_VALUE,
        retriever=_refuse_remote,
        pattern_options=jsonschema_rs.RegexOptions(),
    )


def _refuse_remote(address: str) -> NoReturn:
    raise ValueError(f"a schema at another address ({address:.80}) is not fetched; write it into the prompt")
