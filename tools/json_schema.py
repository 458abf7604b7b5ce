"""Write JSON schemas of the OpenAPI document in the words of the documentation."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tools.pages import code

Schema = Mapping[str, Any]
Link = Callable[[str], str]
"""Writes a reference to another schema by its name."""


class SchemaField(NamedTuple):
    """A field of an object."""

    name: str
    type: str
    required: bool
    description: str


def fields(schema: Schema, link: Link) -> Iterator[SchemaField]:
    """Return the fields of an object."""
    required = set(schema.get("required", ()))
    for name, part in schema.get("properties", {}).items():
        yield SchemaField(name, written(part, link), name in required, _description(part))


def written(schema: Schema, link: Link) -> str:
    """Return a type in words."""
    if "$ref" in schema:
        return link(str(schema["$ref"]).rpartition("/")[2])
    for words in ("anyOf", "oneOf"):
        if words in schema:
            return " or ".join(dict.fromkeys(written(part, link) for part in schema[words]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "anything")
    return " or ".join(_kind(kind, schema, link) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _kind(kind: str, schema: Schema, link: Link) -> str:
    match kind:
        case "string":
            return (
                "file" if schema.get("format") == "binary" or "contentMediaType" in schema else "text" + _length(schema)
            )
        case "integer":
            return "whole number" + _range(schema)
        case "number":
            return "number" + _range(schema)
        case "boolean":
            return "true or false"
        case "array":
            return f"list of {written(schema.get('items', {}), link)}"
        case "object":
            inner = schema.get("additionalProperties")
            if isinstance(inner, Mapping) and inner:
                return f"object of {written(inner, link)}"
            return "object" + (f" {{{code(schema['properties'])}}}" if schema.get("properties") else "")
        case _:
            return kind


def _length(schema: Schema) -> str:
    return f", up to {schema['maxLength']} characters" if "maxLength" in schema else ""


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and most < 2**53:
        return f", {least} to {most}"
    return f", at least {least}" if least is not None else ""


def _description(schema: Schema) -> str:
    """Return the description; of alternatives without one of their own, that of the first which has one."""
    text = schema.get("description") or next(
        (part["description"] for part in schema.get("anyOf", ()) if "description" in part), ""
    )
    default = schema.get("default")
    return " ".join(f"{text}{f' Default: `{_json(default)}`.' if default not in (None, {}, []) else ''}".split())


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
