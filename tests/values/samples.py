"""Values of every kind that results may have, and ``same``: whether two are equal and of the same type."""

import dataclasses
import enum
import math
import uuid
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic
from hypothesis import strategies as st
from typing_extensions import override


class Colour(enum.Enum):
    RED = "red"
    GREEN = ("green", 2)


class Word(enum.StrEnum):
    YES = "yes"


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


@dataclasses.dataclass
class Open:
    """With a default that is made for each object."""

    x: Any
    y: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Closed:
    """Frozen, without a __dict__, and with a constructor that must not run again."""

    x: Any
    doubled: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", self.doubled + 1)


@dataclasses.dataclass
class Derived(Open):
    z: Any = None


class Struct(msgspec.Struct, frozen=True):
    a: Any
    b: tuple[Any, ...] = ()


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    a: Any
    b: float = 2.0


class Picky(msgspec.Struct):
    """Checks itself: it is pickled."""

    a: Any

    def __post_init__(self) -> None:
        if self.a is None:
            raise ValueError("nothing")


class Plain:
    """An object like any other: it is pickled."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and same(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]


class Text(str):
    """Not quite a str: it is pickled."""

    __slots__ = ()


Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024 one without types is what is meant


def same(one: Any, other: Any) -> bool:
    """Are they equal, and of the same type, all the way down? NaN is the same as NaN here."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return (math.isnan(one) and math.isnan(other)) or (one == other and str(one) == str(other))
        case complex():
            return same(one.real, other.real) and same(one.imag, other.imag)
        case Decimal():
            return bool(one.as_tuple() == other.as_tuple())
        case datetime() | time():
            zones = one.tzinfo, other.tzinfo
            return (
                (one.replace(tzinfo=None), one.fold) == (other.replace(tzinfo=None), other.fold)
                and zones[0] == zones[1]
                and str(zones[0]) == str(zones[1])
            )
        case list() | tuple():
            return len(one) == len(other) and all(map(same, one, other))
        case dict():
            return (
                len(one) == len(other) and all(map(same, one, other)) and all(map(same, one.values(), other.values()))
            )
        case set() | frozenset():
            return len(one) == len(other) and sorted(map(shown, one)) == sorted(map(shown, other))
        case Open() | Closed():
            return same(
                [getattr(one, f.name) for f in dataclasses.fields(one)],
                [getattr(other, f.name) for f in dataclasses.fields(other)],
            )
        case msgspec.Struct():
            return same(msgspec.structs.astuple(one), msgspec.structs.astuple(other))
        case pydantic.BaseModel():
            return same(vars(one), vars(other)) and one.model_fields_set == other.model_fields_set
        case _:
            return bool(one == other)


def shown(value: Any) -> str:
    return f"{type(value)} {value!r}"


_zones = st.sampled_from(
    [
        None,
        UTC,
        timezone(timedelta(hours=-3, minutes=30)),
        timezone(timedelta(hours=1), "CET"),
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("Asia/Tokyo"),
    ]
)
_folds = st.integers(0, 1)
_texts = st.text(st.characters(), max_size=8) | st.text(
    st.sampled_from('a\ud800\udc00\\"\n$\x00\U0001f600'), max_size=5
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**5000), 2**5000),
    st.floats(),
    st.complex_numbers(),
    _texts,
    st.binary(max_size=8),
    st.binary(max_size=8).map(bytearray),
    st.decimals(),
    st.fractions(),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.datetimes(), _zones, _folds),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), st.times(), _zones, _folds),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([Path("a/b"), Path("/x\udcff"), PurePosixPath("p"), PureWindowsPath(r"c:\w"), range(3, 9, 2)]),
    st.sampled_from([*Colour, *Word, *Bits, Bits.ONE | Bits.TWO, Colour, Text("t"), Point(1, (2,)), Decimal("sNaN")]),
)
_hashable = scalars.filter(
    lambda value: not isinstance(value, bytearray) and not (isinstance(value, Decimal) and value.is_snan())
)
_keys = _texts | _hashable | st.sampled_from(["$tuple", "$x", (1, "a"), frozenset({1})])


def _larger(inner: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(_texts, inner, max_size=4),
        st.dictionaries(_keys, inner, max_size=3),
        st.sets(_hashable, max_size=4),
        st.frozensets(_hashable, max_size=4),
        st.builds(Open, inner, st.lists(inner, max_size=2)),
        st.builds(Closed, inner),
        st.builds(Derived, inner, st.just([]), inner),
        st.builds(Struct, inner, st.lists(inner, max_size=2).map(tuple)),
        st.builds(Model, a=inner) | st.builds(Model, a=inner, b=st.floats(allow_nan=False)),
        st.builds(Plain, inner),
        st.builds(Picky, inner.filter(lambda value: value is not None)),
        st.dictionaries(_texts, inner, max_size=2).map(OrderedDict),
    )


values = st.recursive(scalars, _larger, max_leaves=8)
"""Everything a result may be, mixed."""

EXAMPLES: list[Any] = [
    (1, (2,)),
    {1, 2},
    frozenset({"a"}),
    b"x",
    bytearray(b"y"),
    Decimal("1.10"),
    Fraction(1, 3),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    date(2024, 2, 29),
    time(1, 2, fold=1),
    timedelta(days=-1, microseconds=1),
    uuid.UUID(int=7),
    Path("a"),
    Colour.GREEN,
    Open(1, [(2,)]),
    Closed((1,)),
    Struct(1, (2,)),
    Model(a=(1,)),
    float("nan"),
    float("-inf"),
    {1: "a", (2,): {3}},
    1j,
    2**70,
    "\ud800",
    {"$tuple": [1]},
    Plain({1}),
    OrderedDict(a=(1,)),
    {"plain": [1, 2.5, None, "text"]},
]
