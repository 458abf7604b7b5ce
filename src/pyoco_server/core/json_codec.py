"""JSON in and out: strict about the fields that the specification names, and tolerant of others.

Every wire object is a msgspec struct, so decoding *is* validation. Objects that may have fields of other programs or of
later versions (event payloads, commands, graph nodes) derive from :class:`Extensible`: fields that are not declared are
kept in ``extra`` and written out again.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum, unique
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec

from pyoco_server.errors import InvalidInputError

JsonObject = dict[str, Any]
Raw = bytes | bytearray | memoryview | str | Mapping[str, Any]
DEEPEST: Final = 200
Name = Annotated[str, msgspec.Meta(min_length=1)]
"""An identifier: any text but the empty one."""


class Extensible(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False, dict=False):
    """A wire object that keeps undeclared fields."""

    parts: ClassVar[Mapping[str, type[msgspec.Struct]]] = {}
    """Fields that hold an object of which some keys have a type: those are checked, the rest is kept."""

    extra: JsonObject = {}


T = TypeVar("T")
E = TypeVar("E", bound=Extensible)


@unique
class DecodeProblem(StrEnum):
    """What prevents a text from being decoded."""

    MALFORMED_JSON = "MALFORMED_JSON"
    TOO_DEEP = "TOO_DEEP"
    NOT_AN_OBJECT = "NOT_AN_OBJECT"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    MISSING_FIELD = "MISSING_FIELD"
    ILL_TYPED_FIELD = "ILL_TYPED_FIELD"
    UNSUPPORTED_SCHEMA_VERSION = "UNSUPPORTED_SCHEMA_VERSION"


class DecodeError(InvalidInputError, ValueError):
    """The input is malformed or has a wrong field; ``path`` says where."""

    def __init__(self, problem: DecodeProblem, message: str, *, path: str = "$") -> None:
        super().__init__(f"{message} (at {path})")
        self.problem = problem
        self.message = message
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:  # type: ignore[explicit-override]  # needs Python 3.12
        return _decode_error, (self.problem, self.message, self.path)


def _decode_error(problem: DecodeProblem, message: str, path: str) -> DecodeError:
    return DecodeError(problem, message, path=path)


_MISSING: Final = re.compile(r"missing required field `(?P<field>[^`]+)`")
_UNKNOWN: Final = re.compile(r"contains unknown field `(?P<field>[^`]+)`")
_LOCATION: Final = re.compile(r" - at `(?:key in )?(?P<path>[^`]+)`$")


def parse_object(raw: Raw) -> JsonObject:
    """Return ``raw`` as a JSON object; text and bytes are parsed, mappings are copied and checked."""
    if isinstance(raw, Mapping):
        copied: JsonObject = _as_plain(raw, "$", 0)
        return copied
    if not isinstance(raw, bytes | bytearray | memoryview | str):
        raise DecodeError(DecodeProblem.NOT_AN_OBJECT, f"expected a JSON object, got {type(raw).__name__}")
    try:
        value = msgspec.json.decode(raw)
    except RecursionError as error:
        raise DecodeError(DecodeProblem.TOO_DEEP, "nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError, UnicodeEncodeError) as error:
        raise DecodeError(DecodeProblem.MALFORMED_JSON, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DecodeError(DecodeProblem.NOT_AN_OBJECT, f"expected a JSON object, got {type(value).__name__}")
    return value


def _as_plain(value: Any, at: str, depth: int) -> Any:  # noqa: ANN401 any JSON value
    """Copy a value, and refuse what JSON cannot hold, so that everything that is read can be written out unchanged."""
    if depth > DEEPEST:
        raise DecodeError(DecodeProblem.TOO_DEEP, "nested too deeply", path=at)
    match value:
        case None | bool() | int():
            return value
        case str():
            if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
                raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, "text with half a surrogate pair", path=at)
            return str(value)
        case float() if isfinite(value):
            return value
        case datetime():
            return rfc3339(timestamp(value, at=at))
        case Mapping():
            return {_key(key, at): _as_plain(item, f"{at}.{key}", depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_as_plain(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(value)]
        case _:
            raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, f"{value!r:.80} is not JSON", path=at)


def _key(key: object, at: str) -> str:
    if not isinstance(key, str):
        raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, f"the key {key!r:.80} is not text", path=at)
    return str(key)


def read(value: object, type_: type[T], *, at: str = "$") -> T:
    """Convert plain JSON values to ``type_``; DecodeError names the field that is wrong."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _explain(str(error), at) from error


def read_extensible(value: JsonObject, type_: type[E], *, at: str = "$") -> E:
    """Like :func:`read`, keeping undeclared fields in ``extra``."""
    declared = wire_fields(type_)
    extra = {key: item for key, item in value.items() if key not in declared}
    known = {key: item for key, item in value.items() if key in declared} if extra else value
    decoded = read(known, type_, at=at)
    for field, part in type_.parts.items():
        if known.get(field) is not None:
            read(known[field], part, at=f"{at}.{field}")
    return msgspec.structs.replace(decoded, extra=extra) if extra else decoded


@cache
def wire_fields(type_: type[Extensible]) -> frozenset[str]:
    """Return the names that ``type_`` declares, as they are spelt on the wire."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(type_)) - {"extra"}


def plain(value: Extensible) -> JsonObject:
    """Return the JSON object for ``value``: declared fields first, then what was kept. Defaults are left out."""
    encoded: JsonObject = msgspec.to_builtins(value)
    kept = encoded.pop("extra", None)
    return {**encoded, **kept} if kept else encoded


def as_json(value: msgspec.Struct) -> JsonObject:
    """Return what a reader of the JSON would get: plain lists and dictionaries, times as text."""
    read_back: JsonObject = msgspec.json.decode(msgspec.json.encode(value))
    return read_back


def timestamp(moment: datetime | str, *, at: str = "now") -> datetime:
    """Return an aware UTC time; accepts an RFC 3339 text. A time without an offset is refused."""
    if type(moment) is datetime and moment.tzinfo is UTC:
        return moment
    if isinstance(moment, str):
        moment = read(moment, datetime, at=at)
    if not isinstance(moment, datetime):
        raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, f"expected a time, got {type(moment).__name__}", path=at)
    if moment.tzinfo is None:
        raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, "a time needs its offset from UTC", path=at)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise DecodeError(DecodeProblem.ILL_TYPED_FIELD, "outside the calendar in UTC", path=at) from error


def rfc3339(moment: datetime) -> str:
    """Write an aware time as all documents of this package do: UTC, ending in Z."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _explain(message: str, at: str) -> DecodeError:
    location = _LOCATION.search(message)
    path = at + location["path"][1:] if location else at
    message = _LOCATION.sub("", message)
    if missing := _MISSING.search(message):
        path = f"{path}.{missing['field']}"
        return DecodeError(DecodeProblem.MISSING_FIELD, f"{missing['field']} is required", path=path)
    if unknown := _UNKNOWN.search(message):
        path = f"{path}.{unknown['field']}"
        return DecodeError(DecodeProblem.UNKNOWN_FIELD, f"{unknown['field']} is not a field here", path=path)
    return DecodeError(DecodeProblem.ILL_TYPED_FIELD, message[:1].lower() + message[1:], path=path)
