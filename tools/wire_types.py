"""Write the types of structs, as they are in JSON, in the words of the documentation."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import inspect as types

from pyoco_server.core.json_codec import Extensible
from tools.pages import code, table


class WireField(NamedTuple):
    """A field in JSON."""

    name: str
    type: str
    required: bool


def fields_of(struct: type[msgspec.Struct]) -> Iterator[WireField]:
    """Return the declared fields, without the field that keeps undeclared ones."""
    parts: Mapping[str, type[msgspec.Struct]] = struct.parts if issubclass(struct, Extensible) else {}
    for field in _struct(struct).fields:
        if field.encode_name != "extra":
            part = parts.get(field.encode_name)
            written = _object(_struct(part), more=True) if part is not None else _type(field.type)
            yield WireField(field.encode_name, written, field.required)


def fields_table(struct: type[msgspec.Struct], *, without: frozenset[str] = frozenset()) -> str:
    """Return the fields as a table, or a sentence if there are none."""
    shown = [field for field in fields_of(struct) if field.name not in without]
    if not shown:
        return "No fields of its own."
    rows = ((code([field.name]), field.type, "yes" if field.required else "") for field in shown)
    return table(("field", "type", "required"), rows)


def _struct(struct: type[msgspec.Struct]) -> types.StructType:
    found = types.type_info(struct)
    if not isinstance(found, types.StructType):
        raise TypeError(f"{struct} is no struct")
    return found


def _type(found: types.Type) -> str:  # noqa: C901, PLR0911, PLR0912 one line a kind of type
    match found:
        case types.Metadata(type=inner):
            return _type(inner)
        case types.UnionType(types=members):
            return " or ".join(dict.fromkeys(_type(member) for member in members if not _is_none(member)))
        case types.StrType(min_length=least):
            return "text, not empty" if least else "text"
        case types.BoolType():
            return "true or false"
        case types.IntType(ge=least, le=most):
            return "whole number" + _bounds(least, most)
        case types.FloatType(ge=least, le=most):
            return "number" + _bounds(least, most)
        case types.DateTimeType():
            return "time (RFC 3339, with its offset)"
        case types.DictType():
            return "object"
        case types.EnumType(cls=enum):
            return " or ".join(f"`{member.value}`" for member in enum)
        case types.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case types.VarTupleType(item_type=item) | types.ListType(item_type=item):
            return f"list of: {_type(item)}"
        case types.StructType():
            return _object(found, more=not found.forbid_unknown_fields)
        case types.AnyType():
            return "anything"
        case _:
            raise TypeError(f"no words are defined for {found}")


def _is_none(found: types.Type) -> bool:
    return isinstance(found, types.NoneType)


def _bounds(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f", {least} to {most}"
    return f", at least {least}" if least is not None else ""


def _object(found: types.StructType, *, more: bool) -> str:
    parts = [f"`{field.encode_name}`{'' if field.required else '?'}: {_type(field.type)}" for field in found.fields]
    return "object {" + "; ".join(parts) + ("; …" if more else "") + "}"
