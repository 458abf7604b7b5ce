"""The cost of every operation in an expression, checked before the operation is done.

A :class:`Cost` is a number of steps, about one for each element that an operation has to look at. On the event loop an
expression has few steps, and its operands must be values of Python's own types: to compare or to load any other value
runs code of users. :class:`ElsewhereError` asks for another evaluation in a thread, which has more steps.
"""

import ast
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from zoneinfo import ZoneInfo

from pyoco.core.context import LoopFrame  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.expressions import ExpressionEvaluationError, resolve_path  # type: ignore[import-untyped]

from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.errors import OutOfBoundsError
from pyoco_server.values.lazy import LazyDict, LoadableValue, is_deferred, value_of
from pyoco_server.values.tags import MAX_INT_BITS, is_bounded

STEPS_ON_LOOP: Final = 10_000
"""A few milliseconds."""
STEPS_IN_THREAD: Final = 2_000_000
MAX_EXPONENT: Final = 64
"""For an unknown base."""
MAX_LENGTH: Final = 1_000_000
"""Of a text or list that is made."""
_LETTERS_A_STEP: Final = 64

_SCALARS: Final = frozenset({type(None), bool, float, complex, date, timedelta, uuid.UUID, range, type(...)})
_SIZED: Final = frozenset({int, Decimal})
_TEXTS: Final = frozenset({str, bytes, bytearray})
_LISTS: Final = frozenset({list, tuple, set, frozenset})
_DICTS: Final = frozenset[type[Any]]((dict, LazyDict))
_TIMES: Final = frozenset({datetime, time})
_ZONES: Final = frozenset({type(None), timezone, ZoneInfo})
_PATHS: Final = frozenset({type(Path()), PurePosixPath, PureWindowsPath})
_OWN: Final = _SCALARS | _SIZED | _TEXTS | _LISTS | _TIMES | _PATHS | _DICTS | {Fraction, LoopFrame}
"""The types whose attributes run no code of users."""
_SEQUENCES: Final = (str, bytes, bytearray, list, tuple)
_WIDE_FORMAT: Final = re.compile(r"%(\([^)]*\))?[^a-zA-Z%]*(\*|\d{5})")


class ElsewhereError(PyocoServerError):
    """The expression must be evaluated in a thread: it is expensive, or needs code of users."""


class Cost:
    """The steps that one evaluation may still take; use once."""

    def __init__(self, steps: int = STEPS_IN_THREAD, *, is_on_loop: bool = False) -> None:
        """``is_on_loop``: no code of users may run."""
        self.is_on_loop = is_on_loop
        self._left = steps

    @classmethod
    def on_loop(cls) -> "Cost":
        """The cost that the event loop can bear."""
        return cls(STEPS_ON_LOOP, is_on_loop=True)

    def spend(self, steps: int) -> None:
        """Take some of the steps that are left."""
        self._left -= steps
        if self._left < 0:
            if self.is_on_loop:
                raise ElsewhereError("the expression takes too many steps for the event loop")
            raise OutOfBoundsError(f"an expression that takes more than {STEPS_IN_THREAD:,} steps")

    def take(self, value: Any) -> None:  # noqa: ANN401 any value
        """Spend the steps of an operation that looks at all of a value."""
        left: list[Any] = [value]
        while left:
            item = left.pop()
            kind = type(item)
            self.spend(1)
            if kind in _SCALARS:
                continue
            if kind in _SIZED:
                _check_number(item)
            elif kind in _TEXTS:
                self.spend(len(item) // _LETTERS_A_STEP)
            elif kind in _LISTS:
                self.spend(len(item))
                left.extend(item)
            elif kind in _DICTS:
                self.spend(2 * len(item))
                left.extend(item)
                left.extend(item.raw().values() if kind is LazyDict else item.values())
            elif kind is Fraction:
                left += (item.numerator, item.denominator)
            elif kind in _PATHS:
                left.append(str(item))
            elif not (kind in _TIMES and type(item.tzinfo) in _ZONES):
                self._foreign(item)

    def read(self, value: Any) -> Any:  # noqa: ANN401 any value
        """Return a value, or what a deferred one stands for, if it may be loaded here."""
        if is_deferred(value) and isinstance(value, LoadableValue) and not value.is_read:
            self._foreign(value)
        return value_of(value)

    def resolve(self, data: Mapping[str, Any], path: str, root: str) -> Any:  # noqa: ANN401 any value
        """Return the value at a path, as pyoco does."""
        if not self.is_on_loop:
            return resolve_path(data, path, root)
        found: Any = data
        for name in path.split("."):
            kind = type(found)
            if kind not in _OWN:
                self._foreign(found)
            if not (name in found if kind is dict or kind is LazyDict else hasattr(found, name)):
                raise ExpressionEvaluationError(f"{root}.{path} not found.")
            if kind is dict or kind is LazyDict:
                found = self.read(found.entry(name) if kind is LazyDict else found[name])
            else:
                found = getattr(found, name)
        return found

    def truth(self, value: Any) -> bool:  # noqa: ANN401 any value
        """Return whether a value is true."""
        if type(value) not in _OWN:
            self._foreign(value)
        return bool(value)

    def place_of(self, value: Any, among: Sequence[Any]) -> int | None:  # noqa: ANN401 any value
        """Return the place of the first value that equals this one; None if there is none."""
        for place, other in enumerate(among):
            self.before_comparison(ast.Eq, other, value)
            if other == value:
                return place
        return None

    def count(self, value: Any) -> Any:  # noqa: ANN401 any value
        """Return an integer as one of Python's own; anything else as it is."""
        return int.__index__(value) if issubclass(type(value), int) and type(value) is not bool else value

    def items(self, value: Any) -> Any:  # noqa: ANN401 any value
        """Return a list or tuple as one of Python's own; anything else as it is."""
        if type(value) in {list, tuple} or not issubclass(type(value), list | tuple):
            return value
        self._foreign(value)
        return list(value)

    def _foreign(self, value: object) -> None:
        if self.is_on_loop:
            raise ElsewhereError(f"a {type(value).__name__} runs code of users")

    # --- Operations --------------------------------------------------------------------------------------------------

    def before_unary(self, operand: Any) -> None:  # noqa: ANN401 any value
        """Spend what an operation on one operand takes."""
        if type(operand) in _LISTS | _DICTS:
            self.spend(1)  # only ``not``, which does not look inside
        else:
            self.take(operand)

    def before_comparison(self, op: type[ast.cmpop], left: Any, right: Any) -> None:  # noqa: ANN401 any value
        """Spend what a comparison takes: ``in`` compares the item with every element of a range."""
        self.take(left)
        self.take(right)
        if op in {ast.In, ast.NotIn} and type(right) is range and type(left) not in {int, bool}:
            self.spend(_length(right))

    def before_binary(self, op: type[ast.operator], left: Any, right: Any) -> None:  # noqa: ANN401 any value
        """Spend what an operation takes; OutOfBoundsError if its result would be a very large number, text or list."""
        self.take(left)
        self.take(right)
        if isinstance(left, int) and isinstance(right, int):
            _check_integers(op, left, right)
        elif isinstance(left, Fraction | int) and isinstance(right, Fraction | int):
            _check_fractions(op, left, right)
        elif op is ast.Mult:
            items, times = (right, left) if isinstance(left, int) else (left, right)
            if isinstance(items, _SEQUENCES) and isinstance(times, int) and len(items) * times > MAX_LENGTH:
                raise OutOfBoundsError("a text or list repeated too often")
        elif op is ast.Add and isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
            if len(left) + len(right) > MAX_LENGTH:
                raise OutOfBoundsError("texts or lists that are too long together")
        elif op is ast.Mod and isinstance(left, str | bytes | bytearray):
            self._check_format(left if isinstance(left, str) else left.decode("latin-1"), right)

    def _check_format(self, pattern: str, values: Any) -> None:  # noqa: ANN401 any value
        if len(pattern) > MAX_EXPONENT or _WIDE_FORMAT.search(pattern):
            raise OutOfBoundsError("a text with values put in that is too long, or too wide")
        shown = Cost(MAX_LENGTH // (_LETTERS_A_STEP * max(1, pattern.count("%"))))
        try:
            shown.take(values)
        except OutOfBoundsError as error:
            raise OutOfBoundsError("a text with values put in that are too large") from error


def _length(numbers: range) -> int:
    try:
        return len(numbers)
    except OverflowError:
        return STEPS_IN_THREAD + 1


def _check_number(number: int | Decimal) -> None:
    if not is_bounded(number):
        raise OutOfBoundsError("a number with too many digits")


def _check_integers(op: type[ast.operator], left: int, right: int) -> None:
    if op is ast.Pow and right > 0 and abs(left) > 1 and left.bit_length() * right > MAX_INT_BITS:
        raise OutOfBoundsError("a power that is too large a number")
    if op is ast.Mult and left.bit_length() + right.bit_length() > MAX_INT_BITS:
        raise OutOfBoundsError("a product that is too large a number")


def _check_fractions(op: type[ast.operator], left: Fraction | int, right: Fraction | int) -> None:
    """Refuse what would be a fraction with many digits: numerators and denominators are multiplied."""
    bits = sum(part.bit_length() for one in (left, right) for part in (one.numerator, one.denominator))
    times = abs(right.numerator) if op is ast.Pow and right.denominator == 1 else 1
    if bits * times > MAX_INT_BITS:
        raise OutOfBoundsError("a fraction of numbers that are too large")
