"""Values as JSON that keeps their type: plain JSON where that is enough, *tagged* JSON where it is not.

Tagged JSON writes what JSON lacks as an object with one key that begins with ``$``: ``{"$tuple": [1, 2]}``. A
dictionary that JSON cannot hold, or that looks like a tag, is ``{"$dict": [[key, value], …]}``. What no tag covers is
refused here and kept in another way by ``app.runtime.outputs``. Types are matched exactly: no subclass decodes as its
base.

``values.tags`` has the tags of built-in types, ``values.classes`` those that name a class, ``values.arrays``
those of numpy and pandas. Only the tags of built-in types are accepted from outside (``classes=False``): the others
import the module they name.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum, unique
from math import isfinite
from typing import Any, Final

import msgspec
from typing_extensions import override

from pyoco_server.core.json_codec import DecodeError, DecodeProblem, JsonObject, parse_object
from pyoco_server.errors import InvalidInputError
from pyoco_server.values import arrays, tags
from pyoco_server.values import classes as class_tags
from pyoco_server.values.errors import USER_CODE_ERRORS, ClassNamedError, NotTaggableError, ValueCodecError, text_of
from pyoco_server.values.lazy import LazyDict, LoadableValue, LostValue, unread_in
from pyoco_server.values.tags import MAX_INT_BITS, Encode

_log = logging.getLogger(__name__)

DEEPEST: Final = 150
"""How deep tagged JSON may be nested, counted in JSON objects and arrays."""

KIND: Final = "output_kind"
"""The field that says how an output, or a decision, is kept; absent, it is plain JSON."""


@unique
class OutputKind(StrEnum):
    """How a value is kept."""

    JSON = "json"
    TAGGED = "tagged"
    PICKLE = "pickle"
    """As an object beside the log, signed; only workers load it."""
    LOST = "lost"
    """Only the process that made it has it."""


_LEAST_INT, _LARGEST_INT = -(2**63), 2**64 - 1
"""The integers that our reader of JSON does not read as floats."""
_AS_IT_IS: Final = frozenset({type(None), bool})
_TUPLE, _DICT = "$tuple", "$dict"


def as_json(value: Any) -> tuple[bytes, Any] | None:  # noqa: ANN401 any value
    """Return the value as plain JSON and what that reads back as; None unless that is equal and of the same type.

    The second is a copy: the owner of the value may change it later, and the log must not change with it.
    """
    try:
        if not _is_json(value):
            return None
        encoded = msgspec.json.encode(value)
        return encoded, msgspec.json.decode(encoded)
    except (ValueError, RuntimeError, MemoryError):  # too deep, being changed, or half a surrogate pair
        return None


def to_tagged(value: Any, *, classes: bool = True, lenient: bool = False) -> Any:  # noqa: ANN401 any value
    """Return the value as tagged JSON; NotTaggableError if no tag covers a part of it.

    ``lenient`` writes subclasses of text, numbers and mappings as what they derive from, as parameters always were.
    """
    return _Encoder(classes=classes, lenient=lenient).encode(value, "$", 0)


def as_tagged(value: Any, *, classes: bool = True) -> tuple[bytes, Any] | None:  # noqa: ANN401 any value
    """Return the value as tagged JSON and what that reads back as; None if no tag covers a part of it.

    Without ``classes`` no code of users runs.
    """
    try:
        encoded = msgspec.json.encode(to_tagged(value, classes=classes))
        return encoded, msgspec.json.decode(encoded)
    except NotTaggableError:
        return None
    except USER_CODE_ERRORS as error:  # attributes of the user's classes are read, and objects may change meanwhile
        _log.debug("not written as tagged JSON: %s", text_of(error), extra={"action": "output_not_tagged"})
        return None


def from_tagged(data: Any, *, classes: bool = True) -> Any:  # noqa: ANN401 any JSON
    """Return the value of tagged JSON; ValueCodecError says what is wrong with it and where."""
    return _Decoder(classes=classes).decode(data, "$", 0)


def has_tags(data: Any) -> bool:  # noqa: ANN401 tagged JSON
    """Does tagged JSON hold any tag, so that it must be decoded?"""
    if isinstance(data, dict):
        return _is_tag(data) or any(map(has_tags, data.values()))
    return isinstance(data, list) and any(map(has_tags, data))


def carried(name: str, value: Any) -> JsonObject:  # noqa: ANN401 any value
    """Return ``{name: value}`` for an event or a request, with ``<name>_kind`` if the value is tagged JSON.

    This is how parameters and answers to waits travel. DecodeError if the tags of built-in types do not cover it.
    """
    if as_json(value) is not None:
        return parse_object({name: value})
    try:
        data = to_tagged(value, classes=False, lenient=True)
    except NotTaggableError as error:
        raise DecodeError(
            DecodeProblem.ILL_TYPED_FIELD,
            f"a {error.type_name} is not accepted here: {error.reason}; use numbers, text, times, bytes, and lists, "
            "tuples, sets and dictionaries of them",
            path=f"$.{name}{error.at[1:]}",
        ) from error
    return parse_object({name: data, f"{name}_kind": OutputKind.TAGGED.value} if has_tags(data) else {name: data})


def received(name: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 any value
    """Return what :func:`carried` put into ``fields``; InvalidInputError if its kind or its tags are not accepted."""
    kind = fields.get(f"{name}_kind", OutputKind.JSON.value)
    if kind not in (OutputKind.JSON.value, OutputKind.TAGGED.value):
        raise InvalidInputError(f"{name}_kind: {kind!r:.40} is not accepted; use 'json' or 'tagged', or leave it out")
    value = fields.get(name)
    if kind == OutputKind.JSON.value:
        return value
    try:
        return from_tagged(value, classes=False)
    except ValueCodecError as error:
        raise InvalidInputError(f"{name}{error.at[1:]}: {error.problem}") from error


def fresh(value: Any) -> Any:  # noqa: ANN401 any JSON
    """Return a copy of JSON that the log holds, for tasks to change as they like."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _is_json(value: Any) -> bool:  # noqa: ANN401 any value
    """Does JSON keep the value and its type? Runs no code of users; half surrogate pairs are not looked for."""
    kind = type(value)
    if kind in _AS_IT_IS or kind is str:
        return True
    if kind is int:
        return bool(_LEAST_INT <= value <= _LARGEST_INT)
    if kind is float:
        return isfinite(value)
    if kind is list:
        return all(map(_is_json, value))
    return kind is dict and all(type(key) is str for key in value) and all(map(_is_json, value.values()))


def _is_tag(data: dict[str, Any]) -> bool:
    return len(data) == 1 and next(iter(data)).startswith("$")


class _Encoder:
    def __init__(self, *, classes: bool, lenient: bool) -> None:
        self._classes = classes
        self._lenient = lenient
        self._hashed = 0
        """How many sets and keys of dictionaries are around the value: what is read there must have a hash."""

    def encode(self, value: Any, at: str, depth: int) -> Any:  # noqa: ANN401
        if depth > DEEPEST:
            raise NotTaggableError(value, at, "it is nested too deeply")
        kind = type(value)
        if kind in _AS_IT_IS:
            return value
        if kind is list:
            return [self.encode(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(value)]
        if kind is LazyDict and not self._classes and any(unread_in(value)):
            raise NotTaggableError(value, at, "it holds values that are not loaded")
        if kind is dict or kind is LazyDict:
            return self._dict(dict(value), at, depth)
        if kind is tuple:
            return {_TUPLE: [self.encode(item, f"{at}[{index}]", depth + 2) for index, item in enumerate(value)]}

        def part(inner: Any) -> Any:  # noqa: ANN401
            return self.encode(inner, at, depth + 2)

        return self._tagged(value, kind, at, depth, part)

    def _tagged(self, value: Any, kind: type, at: str, depth: int, part: Encode) -> Any:  # noqa: ANN401
        writer = tags.WRITERS.get(kind)
        if writer is not None:
            is_set = kind in {set, frozenset}
            self._hashed += is_set
            written = writer(value, part)
            self._hashed -= is_set
        elif self._classes:
            written = arrays.write(value, part) or class_tags.write(value, part)
        else:
            written = None
        if written is None and self._lenient:
            plainer = tuple(value) if self._hashed and isinstance(value, tuple) else tags.plainer(value)
            if plainer is not value:
                return self.encode(plainer, at, depth)
        if written is None:
            known = "it is too large, or has a part that no tag covers" if kind in tags.WRITERS else "no tag covers it"
            raise NotTaggableError(value, at, known)
        return written

    def _dict(self, value: dict[Any, Any], at: str, depth: int) -> Any:  # noqa: ANN401
        keys = all(type(key) is str and tags.is_writable(key) for key in value)
        if keys and not _is_tag(value):
            return {key: self.encode(item, f"{at}.{key}", depth + 1) for key, item in [*value.items()]}
        pairs = [
            [self._key(key, at, depth), self.encode(item, f"{at}[{key!r:.40}]", depth + 3)]
            for key, item in [*value.items()]
        ]
        return {_DICT: pairs}

    def _key(self, key: Any, at: str, depth: int) -> Any:  # noqa: ANN401
        self._hashed += 1
        written = self.encode(key, f"{at}, a key", depth + 3)
        self._hashed -= 1
        return written


class TaggedValue(LoadableValue):
    """A value whose tagged JSON is here and names classes: their modules are imported when it is read."""

    def __init__(self, data: Any, lost: LostValue) -> None:  # noqa: ANN401 tagged JSON
        super().__init__(lost)
        self.data = data

    @override
    def _load(self) -> Any:
        return from_tagged(self.data)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return TaggedValue, (self.data, self.lost)


class _Decoder:
    def __init__(self, *, classes: bool) -> None:
        self._readers = {**tags.READERS, _TUPLE: _read_tuple, _DICT: _read_dict}
        if classes:
            self._readers |= class_tags.READERS | arrays.READERS
        self._classes = classes

    def decode(self, data: Any, at: str, depth: int) -> Any:  # noqa: ANN401
        if depth > DEEPEST + 10:
            raise ValueCodecError("it is nested too deeply", at)
        if isinstance(data, list):
            return [self.decode(item, f"{at}[{index}]", depth + 1) for index, item in enumerate(data)]
        if isinstance(data, dict):
            if _is_tag(data):
                return self._read(*next(iter(data.items())), at, depth)
            return {key: self.decode(item, f"{at}.{key}", depth + 1) for key, item in data.items()}
        if type(data) is int and data.bit_length() > MAX_INT_BITS:
            raise ValueCodecError("the integer is too large", at)
        return data

    def _read(self, tag: str, body: Any, at: str, depth: int) -> Any:  # noqa: ANN401
        reader = self._readers.get(tag)
        if reader is None:
            is_of_class = tag in class_tags.READERS or tag in arrays.READERS
            problem = "names a class, which is not accepted here" if is_of_class else "is not a tag"
            refusal = ClassNamedError if is_of_class else ValueCodecError
            raise refusal(f"'{tag:.40}' {problem}; write an object of one such key as {{'$dict': …}}", at)

        def part(inner: Any) -> Any:  # noqa: ANN401
            return self.decode(inner, f"{at}.{tag}", depth + 1)

        try:
            return reader(body, part)
        except ValueCodecError:
            raise
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, OSError) as error:
            raise ValueCodecError(f"'{tag}' cannot be read: {error!s:.200}", at) from error


def _read_tuple(body: Any, part: Encode) -> tuple[Any, ...]:  # noqa: ANN401
    return tuple(part(tags.listed(body)))


def _read_dict(body: Any, part: Encode) -> dict[Any, Any]:  # noqa: ANN401
    pairs = [tags.listed(pair) for pair in tags.listed(body)]
    keys = [part(key) for key, _ in pairs]
    tags.check_hashes(keys)
    return {key: part(item) for key, (_, item) in zip(keys, pairs, strict=True)}
