"""The tags of Python's own types: how each is written, and read back without running user code."""

import base64
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

Encode = Callable[[Any], Any]
"""Writes, or reads, a part of a value."""
Writer = Callable[[Any, Encode], Any]
"""Writes a value; None if the value cannot be written after all."""
Reader = Callable[[Any, Encode], Any]

MAX_INT_BITS: Final = 14_000
"""Larger integers are not written as digits: Python itself refuses to read them."""
MAX_DIGITS: Final = 4_300
"""Of a Decimal: as many as Python reads of an integer."""
MAX_EXPONENT: Final = 6_144
"""Of a Decimal: that of IEEE 754's largest format. ``int()`` of a larger one takes any time and memory."""
MAX_INDEX: Final = 2**63 - 1
"""Of a range: as large as an index may be."""
MOST_EQUAL_HASHES: Final = 100
"""To add an element to a set takes a step for each one with the same hash."""

_ESCAPED: Final = re.compile(
    r"(?:[ -\[\]-~]|\\(?:[\\nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}|U000[0-9a-f]{5}|U0010[0-9a-f]{4}))*"
)
_NOT_FINITE: Final = {"nan", "inf", "-inf"}


def is_writable(text: str) -> bool:
    """Can UTF-8 encode the text? It cannot if half a surrogate pair is in it."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def plainer(value: Any) -> Any:  # noqa: ANN401 any value
    """What a subclass of text, numbers or a mapping derives from; the value itself if it is none of these."""
    for base in (str, bool, int, float):
        if isinstance(value, base) and type(value) is not base:
            return base.__str__(value) if base is str else base(value)
    if isinstance(value, Mapping) and type(value) is not dict:
        return dict(value)
    if isinstance(value, list | tuple) and type(value) not in {list, tuple}:
        return [*value]
    return value


def is_bounded(number: int | Decimal) -> bool:
    """Is it a number that arithmetic and conversions do not take long with?"""
    if isinstance(number, int):
        return number.bit_length() <= MAX_INT_BITS
    _, digits, exponent = number.as_tuple()
    return len(digits) <= MAX_DIGITS and (isinstance(exponent, str) or abs(number.adjusted()) <= MAX_EXPONENT)


def listed(body: Any) -> list[Any]:  # noqa: ANN401 any JSON
    """The body of a tag that is a list; TypeError if it is none."""
    if not isinstance(body, list):
        raise TypeError(f"expected a list, not {type(body).__name__}")
    return body


def text_of(body: Any) -> str:  # noqa: ANN401 any JSON
    """The body of a tag that is a text; TypeError if it is none."""
    if not isinstance(body, str):
        raise TypeError(f"expected a text, not {type(body).__name__}")
    return body


# --- Text and numbers ------------------------------------------------------------------------------------------------


def _write_int(value: int, _: Encode) -> Any:  # noqa: ANN401
    return value if value.bit_length() <= MAX_INT_BITS else None


def _write_float(value: float, _: Encode) -> Any:  # noqa: ANN401
    return value if isfinite(value) else {"$float": repr(value)}


def _read_float(body: Any, _: Encode) -> float:  # noqa: ANN401
    if body not in _NOT_FINITE:
        raise ValueError(f"expected one of {', '.join(sorted(_NOT_FINITE))}")
    return float(body)


def _write_text(value: str, _: Encode) -> Any:  # noqa: ANN401
    return value if is_writable(value) else {"$str": value.encode("unicode_escape").decode("ascii")}


def _read_text(body: Any, _: Encode) -> str:  # noqa: ANN401
    text = text_of(body)
    if not _ESCAPED.fullmatch(text):
        raise ValueError("expected ASCII with escapes such as \\ud800")
    return text.encode("ascii").decode("unicode_escape")


def _write_complex(value: complex, part: Encode) -> Any:  # noqa: ANN401
    return {"$complex": [part(value.real), part(value.imag)]}


def _read_complex(body: Any, part: Encode) -> complex:  # noqa: ANN401
    real, imag = part(listed(body))
    return complex(float(real), float(imag))


def _write_decimal(value: Decimal, _: Encode) -> Any:  # noqa: ANN401
    return {"$decimal": str(value)} if is_bounded(value) else None


def _read_decimal(body: Any, _: Encode) -> Decimal:  # noqa: ANN401
    text = text_of(body)
    if len(text) <= 2 * MAX_DIGITS and is_bounded(read := Decimal(text)):
        return read
    raise ValueError(f"the Decimal has more than {MAX_DIGITS} digits, or an exponent beyond {MAX_EXPONENT}")


def _write_fraction(value: Fraction, part: Encode) -> Any:  # noqa: ANN401
    return {"$fraction": [part(value.numerator), part(value.denominator)]}


def _read_fraction(body: Any, part: Encode) -> Fraction:  # noqa: ANN401
    top, bottom = part(listed(body))
    if type(top) is not int or type(bottom) is not int:
        raise TypeError("expected two integers")
    return Fraction(top, bottom)


def _read_bytes(body: Any, _: Encode) -> bytes:  # noqa: ANN401
    return base64.b64decode(text_of(body), validate=True)


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


# --- Collections -----------------------------------------------------------------------------------------------------


def _sorted(value: set[Any] | frozenset[Any], part: Encode) -> list[Any]:
    """The elements, in an order that is the same in every process."""
    return sorted((part(item) for item in value), key=msgspec.json.encode)


def _set_reader(kind: type[set[Any] | frozenset[Any]]) -> Reader:
    def read(body: Any, part: Encode) -> set[Any] | frozenset[Any]:  # noqa: ANN401
        items = part(listed(body))
        check_hashes(items)
        return kind(items)

    return read


def check_hashes(items: Collection[Any]) -> None:
    """Refuse elements, or keys, of which so many have the same hash that to collect them takes very long."""
    if len(items) > MOST_EQUAL_HASHES and max(Counter(map(hash, items)).values()) > MOST_EQUAL_HASHES:
        raise ValueError(f"more than {MOST_EQUAL_HASHES} elements have the same hash")


def _write_range(value: range, part: Encode) -> Any:  # noqa: ANN401
    bounds = (value.start, value.stop, value.step)
    return {"$range": [part(bound) for bound in bounds]} if _are_indexes(bounds) else None


def _are_indexes(bounds: Iterable[Any]) -> bool:
    return all(type(bound) is int and abs(bound) <= MAX_INDEX for bound in bounds)


def _read_range(body: Any, part: Encode) -> range:  # noqa: ANN401
    bounds = part(listed(body))
    if not _are_indexes(bounds):
        raise ValueError(f"expected integers up to {MAX_INDEX}")
    return range(*bounds)


# --- Times -----------------------------------------------------------------------------------------------------------


def _time_writer(tag: str) -> Writer:
    def write(value: datetime | time, _: Encode) -> Any:  # noqa: ANN401
        """``isoformat`` where it says all; otherwise an object that also names the zone and the fold."""
        zone, more = value.tzinfo, dict[str, Any]()
        if value.fold:
            more["fold"] = value.fold
        if type(zone) is timezone:
            offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # what pickle uses
            more |= {"name": name[0], "offset": _seconds(offset)} if name else {}
        elif type(zone) is ZoneInfo:
            key: str | None = zone.key  # None for one that was read from a file
            if key is None or ZoneInfo(key) is not zone:
                return None
            more["zone"] = key
        elif zone is not None:
            return None
        if not more:
            return {tag: value.isoformat()}
        is_apart = "zone" in more or "name" in more
        return {tag: {"at": (value.replace(tzinfo=None) if is_apart else value).isoformat(), **more}}

    return write


def _seconds(delta: timedelta) -> list[int]:
    return [delta.days, delta.seconds, delta.microseconds]


def _time_reader(kind: type[datetime | time]) -> Reader:
    def read(body: Any, _: Encode) -> datetime | time:  # noqa: ANN401
        if not isinstance(body, dict):
            return kind.fromisoformat(text_of(body))
        unknown = body.keys() - {"at", "fold", "zone", "name", "offset"}
        if unknown:
            raise ValueError(f"unknown field '{min(unknown)}'")
        read = kind.fromisoformat(text_of(body["at"]))
        if "zone" in body:
            read = read.replace(tzinfo=ZoneInfo(text_of(body["zone"])))
        elif "name" in body:
            read = read.replace(tzinfo=timezone(_delta(body["offset"]), text_of(body["name"])))
        return read.replace(fold=body.get("fold", 0))

    return read


def _delta(body: Any) -> timedelta:  # noqa: ANN401
    days, seconds, microseconds = listed(body)
    if not all(type(number) is int for number in body):
        raise TypeError("expected days, seconds and microseconds")
    return timedelta(days, seconds, microseconds)


# --- The tables ------------------------------------------------------------------------------------------------------

_PATHS: Final[dict[type, str]] = {
    type(Path()): "$path",
    PurePosixPath: "$pureposixpath",
    PureWindowsPath: "$purewindowspath",
}


def _path_writer(tag: str) -> Writer:
    return lambda value, part: {tag: part(str(value))}


def _path_reader(kind: type) -> Reader:
    return lambda body, part: kind(text_of(part(body)))


WRITERS: Final[dict[type, Writer]] = {
    int: _write_int,
    float: _write_float,
    str: _write_text,
    complex: _write_complex,
    Decimal: _write_decimal,
    Fraction: _write_fraction,
    bytes: lambda value, _: {"$bytes": _base64(value)},
    bytearray: lambda value, _: {"$bytearray": _base64(value)},
    set: lambda value, part: {"$set": _sorted(value, part)},
    frozenset: lambda value, part: {"$frozenset": _sorted(value, part)},
    range: _write_range,
    datetime: _time_writer("$datetime"),
    time: _time_writer("$time"),
    date: lambda value, _: {"$date": value.isoformat()},
    timedelta: lambda value, _: {"$timedelta": _seconds(value)},
    uuid.UUID: lambda value, _: {"$uuid": str(value)},
    **{kind: _path_writer(tag) for kind, tag in _PATHS.items()},
}
"""By the exact type."""

READERS: Final[dict[str, Reader]] = {
    "$float": _read_float,
    "$str": _read_text,
    "$complex": _read_complex,
    "$decimal": _read_decimal,
    "$fraction": _read_fraction,
    "$bytes": _read_bytes,
    "$bytearray": lambda body, part: bytearray(_read_bytes(body, part)),
    "$set": _set_reader(set),
    "$frozenset": _set_reader(frozenset),
    "$range": _read_range,
    "$datetime": _time_reader(datetime),
    "$time": _time_reader(time),
    "$date": lambda body, _: date.fromisoformat(text_of(body)),
    "$timedelta": lambda body, _: _delta(body),
    "$uuid": lambda body, _: uuid.UUID(text_of(body)),
    **{tag: _path_reader(kind) for kind, tag in _PATHS.items()},
}
