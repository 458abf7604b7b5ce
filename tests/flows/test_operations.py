"""Every operator with every kind of hostile operand: it takes few steps and little memory, or is refused.

The operations are made in a process of its own with limits on its time and memory: one that is not bounded takes hours.
"""

import ast
import itertools
import operator
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyoco.dsl.expressions import (  # type: ignore[import-untyped]  # pyoco ships no type information
    ALLOWED_NODES,
    ExpressionEvaluationError,
)

from pyoco_server.flows.expressions import evaluate
from pyoco_server.flows.operations import (
    MAX_LENGTH,
    STEPS_IN_THREAD,
    STEPS_ON_LOOP,
    Cost,
    ElsewhereError,
)
from pyoco_server.values.lazy import LazyDict, LostValue, PickledValue
from pyoco_server.values.tags import MAX_DIGITS, MAX_EXPONENT, MAX_INT_BITS

SOME_STEPS = 2 * STEPS_ON_LOOP
"""Fewer than a thread has, so that all operations together do not take long."""
BINARY = ["+", "-", "*", "/", "%", "**", "==", "!=", ">", ">=", "<", "<=", "in", "not in", "and", "or"]
UNARY = ["-", "+", "not "]


def doubled(value: Any, times: int) -> Any:
    """A list of few objects in which there are many paths."""
    for _ in range(times):
        value = [value, value]
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


OPERANDS: dict[str, Callable[[], Any]] = {
    "range": lambda: range(10**15),
    "longest range": lambda: range(2**63 - 1),
    "too long range": lambda: range(10**30),
    "large int": lambda: (1 << MAX_INT_BITS) - 1,
    "negative int": lambda: -(1 << MAX_INT_BITS - 1),
    "largest int": lambda: 1 << 10_000_000,
    "int": lambda: 10**9,
    "small int": lambda: 63,
    "true": lambda: True,
    "float": lambda: 1e308,
    "nan": lambda: float("nan"),
    "complex": lambda: complex(1e308, 1e308),
    "decimal": lambda: Decimal(f"1E{MAX_EXPONENT}"),
    "small decimal": lambda: Decimal(f"1E-{MAX_EXPONENT}"),
    "long decimal": lambda: Decimal("9" * MAX_DIGITS),
    "infinite decimal": lambda: Decimal("Infinity"),
    "signalling nan": lambda: Decimal("sNaN"),
    "huge decimal": lambda: Decimal("1E999999"),
    "usual decimal": lambda: Decimal("1.5"),
    "fraction": lambda: Fraction((1 << MAX_INT_BITS - 1) - 1, (1 << MAX_INT_BITS - 2) + 1),
    "usual fraction": lambda: Fraction(2, 3),
    "text": lambda: "a" * MAX_LENGTH,
    "other text": lambda: "a" * (MAX_LENGTH // 2) + "b",
    "letter": lambda: "a",
    "bytes": lambda: b"a" * MAX_LENGTH,
    "bytearray": lambda: bytearray(b"a" * MAX_LENGTH),
    "format": lambda: "%d%s%f%x" * 7,
    "wide format": lambda: "%9999d" * 10,
    "widest format": lambda: "%99999999d",
    "starred format": lambda: "%*d",
    "bytes format": lambda: b"%b" * 30,
    "named format": lambda: "%(a)s" * 12,
    "list": lambda: [1.5] * MAX_LENGTH,
    "equal list": lambda: [1.5] * MAX_LENGTH,
    "list of texts": lambda: ["a" * 1000 + str(n) for n in range(1000)],
    "list of large ints": lambda: [(1 << MAX_INT_BITS) - 1] * 100_000,
    "doubled": lambda: doubled(1, 200),
    "equal doubled": lambda: doubled(1, 200),
    "doubled tuple": lambda: (doubled(2, 200),),
    "nested": lambda: nested(100_000),
    "set": lambda: set(range(MAX_LENGTH)),
    "frozenset": lambda: frozenset(range(MAX_LENGTH)),
    "set of colliding": lambda: {n * (2**61 - 1) for n in range(50)},
    "dict": lambda: dict.fromkeys(range(MAX_LENGTH)),
    "dict of a": lambda: {"a": "a" * MAX_LENGTH},
    "lazy": lambda: LazyDict({"a": "a" * MAX_LENGTH}),
    "datetime": lambda: datetime.max.replace(tzinfo=UTC),
    "time": lambda: time.max.replace(tzinfo=timezone(timedelta(hours=23))),
    "timedelta": lambda: timedelta.max,
    "path": lambda: Path("a/" * 10_000),
    "none": lambda: None,
}


PARTNERS = ["large int", "small int", "usual decimal", "text", "letter", "list", "doubled", "named format"]
"""The operands that all others meet."""


class Foreign:
    """Anything it is asked for runs code of the user."""

    def _fail(self, *_: object) -> Any:
        raise AssertionError("code of the user ran on the event loop")

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __add__ = __radd__ = __mul__ = __rmul__ = _fail
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = (
        _fail
    )
    __bool__ = __len__ = __getattr__ = __iter__ = __repr__ = _fail
    __hash__ = object.__hash__
    __class__ = property(_fail)


def expressions() -> list[tuple[str, str, str]]:
    """Every operation, with the names of its operands."""
    ways = (pair for one, other in itertools.product(OPERANDS, PARTNERS) for pair in ((one, other), (other, one)))
    binary = [(f"$ctx.a {op} $ctx.b", *pair) for op, pair in itertools.product(BINARY, dict.fromkeys(ways))]
    return binary + [(f"{op}$ctx.a", name, name) for op, name in itertools.product(UNARY, OPERANDS)]


def check_all() -> None:
    """Make all operations; what this process may take is limited from outside."""
    made = {name: make() for name, make in OPERANDS.items()}
    done = 0
    for source, left, right in expressions():
        try:
            found = evaluate(source, ctx={"a": made[left], "b": made[right]}, env={}, cost=Cost(SOME_STEPS))
        except ExpressionEvaluationError:
            continue
        done += 1
        if source not in {"$ctx.a and $ctx.b", "$ctx.a or $ctx.b"}:
            check_size(found, source, left, right)
    assert done > 1_000, done


def check_size(found: Any, *what: str) -> None:
    assert not isinstance(found, int) or found.bit_length() <= 2 * MAX_INT_BITS, what
    assert not isinstance(found, str | bytes | bytearray | list | tuple) or len(found) <= 2 * MAX_LENGTH, what
    assert not isinstance(found, Fraction) or found.denominator.bit_length() <= 2 * MAX_INT_BITS, what


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


def test_no_operation_takes_long_or_makes_a_large_value() -> None:
    program = f"from {__name__} import check_all; check_all()"
    made = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-c", program], preexec_fn=_limit, capture_output=True, text=True, timeout=110, check=False
    )
    assert made.returncode == 0, made.stderr[-2_000:]


def test_the_operators_are_all_there_are() -> None:
    signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**", ast.Eq: "=="}
    signs |= {
        ast.NotEq: "!=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.In: "in",
        ast.NotIn: "not in",
    }
    signs |= {ast.And: "and", ast.Or: "or"}
    kinds = (ast.operator, ast.cmpop, ast.boolop)
    assert {signs[node] for node in ALLOWED_NODES if issubclass(node, kinds)} == {*BINARY}
    assert {node for node in ALLOWED_NODES if issubclass(node, ast.unaryop)} == {ast.USub, ast.UAdd, ast.Not}


@pytest.mark.parametrize("place", ["a", "b"])
@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [one], lambda one: {"k": one}], ids=["", "list", "dict"])
@pytest.mark.parametrize("op", BINARY[:-2])
def test_code_of_users_runs_only_where_it_may(op: str, wrap: Callable[[Any], Any], place: str) -> None:
    ctx = {"a": [1], "b": [1], place: wrap(Foreign())}
    with pytest.raises(ElsewhereError):
        evaluate(f"$ctx.a {op} $ctx.b", ctx=ctx, env={}, cost=Cost.on_loop())


@pytest.mark.parametrize("source", ["not $ctx.a", "-$ctx.a", "$ctx.a and 1", "$ctx.a or 1", "$ctx.a.b", "$ctx.a.b.c"])
def test_code_of_users_runs_only_where_it_may_for_one_operand(source: str) -> None:
    with pytest.raises(ElsewhereError):
        evaluate(source, ctx={"a": Foreign()}, env={}, cost=Cost.on_loop())


def test_an_object_that_is_only_named_runs_no_code() -> None:
    found = Foreign()
    assert evaluate("$ctx.a", ctx={"a": found}, env={}, cost=Cost.on_loop()) is found


def test_a_pickle_is_loaded_only_where_it_may_be() -> None:
    ctx = {"a": LazyDict({"b": PickledValue(b"I7\n.", LostValue("b", "gone"))})}
    with pytest.raises(ElsewhereError):
        evaluate("$ctx.a.b", ctx=ctx, env={}, cost=Cost.on_loop())
    assert evaluate("$ctx.a.b + 1", ctx=ctx, env={}) == 8
    assert evaluate("$ctx.a.b + 2", ctx=ctx, env={}, cost=Cost.on_loop()) == 9


def test_the_steps_of_an_evaluation_are_counted_over_all_its_operations() -> None:
    items = [1.5] * (STEPS_ON_LOOP // 10)
    evaluate("2 in $ctx.a", ctx={"a": items}, env={}, cost=Cost.on_loop())
    with pytest.raises(ElsewhereError):
        evaluate(" or ".join(["2 in $ctx.a"] * 20), ctx={"a": items}, env={}, cost=Cost.on_loop())
    with pytest.raises(ExpressionEvaluationError, match=f"more than {STEPS_IN_THREAD:,} steps"):
        evaluate(" or ".join(["2 in $ctx.a"] * 20), ctx={"a": items * 120}, env={})


def test_a_loop_takes_the_items_and_the_count_as_values_of_its_own() -> None:
    point = operator.itemgetter(0)([type("Point", (tuple,), {})((1, 2))])
    with pytest.raises(ElsewhereError):
        Cost.on_loop().items(point)
    assert (Cost().items(point), type(Cost().count(True))) == ([1, 2], bool)
    assert type(Cost.on_loop().count(type("Number", (int,), {})(3))) is int
