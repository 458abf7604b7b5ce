"""Expressions of a flow, checked and evaluated with limits on their cost.

pyoco compiles an expression to Python and evaluates it without limits. Its grammar is harmless (no calls but
references, no indexing, no comprehensions), its cost is not: ``9**9**9`` never ends, ``'a' * 10**10`` takes all memory,
and a path can lead through Python's own attributes to any object. :func:`check_expression` refuses such expressions
before anything runs, as far as the text shows it; :func:`evaluate` also checks the values that only a run has. What an
operation costs is decided in ``operations.py``.

Both walk the same tree in the same way; in the check, a reference is an unknown value.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final

from pyoco.dsl.expressions import (  # type: ignore[import-untyped]  # pyoco ships no type information
    Expression,
    ExpressionEvaluationError,
    translate,
)
from typing_extensions import override

from pyoco_server.flows.errors import OutOfBoundsError
from pyoco_server.flows.operations import MAX_EXPONENT, Cost, ElsewhereError
from pyoco_server.values.errors import USER_CODE_ERRORS, text_of

MAX_LEVELS = 64

Resolve = Callable[[str, str], Any]
"""Returns the value of a reference, given its root (``_ctx`` or ``_env``) and its path."""

_INTERNAL = re.compile(r"__\w+__|(gi|cr|ag|tb)_frame|f_(back|builtins|globals|locals)")

_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


def check_expression(source: str, *, env: Collection[str] | None = None) -> None:
    """Refuse an expression that is invalid, or whose text shows that it exceeds the limits.

    ``env`` are the environment variables it may name; None means any. Raises ValueError if pyoco cannot read it, and
    :class:`OutOfBoundsError` (a ValueError) if it costs too much or its path is not allowed.
    """

    def unknown(root: str, path: str) -> _Unknown:
        check_path(path)
        if root == "_env":
            check_variable(path.partition(".")[0], env)
        return _Unknown()

    _Check(unknown, Cost()).value(_parsed(source))


def check_path(path: str) -> None:
    """Refuse a path through the attributes that lead from Python's objects to its internals."""
    if internal := next((part for part in path.split(".") if _INTERNAL.fullmatch(part)), None):
        raise OutOfBoundsError(f"a path through '{internal[:60]}', which is Python's own", "name data only")


def check_variable(name: str, env: Collection[str] | None) -> None:
    """Refuse an environment variable that was not exposed."""
    if env is not None and name not in env:
        short = name[:60]
        raise OutOfBoundsError(
            f"the environment variable '{short}' is not exposed", f"write runtime: {{ expose_env: [{short}] }}"
        )


def evaluate(source: str, *, ctx: Mapping[str, Any], env: Mapping[str, Any], cost: Cost | None = None) -> Any:  # noqa: ANN401 any value
    """Evaluate as pyoco does, with the same errors, and refuse what would cost too much.

    ElsewhereError if it costs too much, or needs code of users, where ``cost`` does not allow that.
    """
    cost = cost or Cost()
    roots = {"_ctx": (ctx, "$ctx"), "_env": (env, "$env")}

    def resolve(root: str, path: str) -> Any:  # noqa: ANN401 any value
        data, name = roots[root]
        return cost.resolve(data, path, name)

    tree = _parsed(source)
    try:
        return _Walk(resolve, cost).value(tree)
    except ElsewhereError:
        raise
    except USER_CODE_ERRORS as error:
        raise ExpressionEvaluationError(f"Failed to evaluate expression '{source}': {text_of(error)}") from error


@lru_cache(maxsize=256)
def _parsed(source: str) -> ast.expr:
    """Return the tree of an expression that pyoco accepts; its levels are counted before any code recurses into it."""
    try:
        tree: ast.expr = ast.parse(translate(source), mode="eval").body
    except SyntaxError as error:
        raise ValueError(error.msg) from error
    except (RecursionError, MemoryError) as error:
        raise _too_deep() from error
    level: list[ast.AST] = [tree]
    for _ in range(MAX_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise _too_deep()
    Expression(source)  # pyoco's own checks
    return tree


def _too_deep() -> OutOfBoundsError:
    return OutOfBoundsError(f"an expression of more than {MAX_LEVELS} levels")


class _Walk:
    """Evaluates a tree in Python's order; the cost of each operation is checked before it is done."""

    def __init__(self, resolve: Resolve, cost: Cost) -> None:
        self._resolve = resolve
        self._cost = cost

    def value(self, node: ast.AST) -> Any:  # noqa: ANN401 any value
        match node:
            case ast.Constant(value):
                return value
            case ast.Call(ast.Name(root), [ast.Constant(str() as path)]):
                return self._resolve(root, path)
            case ast.UnaryOp(op, operand):
                return self.unary(type(op), self.value(operand))
            case ast.BinOp(left, op, right):
                return self.binary(type(op), self.value(left), self.value(right))
            case ast.BoolOp(op, operands):
                return self.either(operands, wanted=isinstance(op, ast.Or))
            case ast.Compare(left, ops, others):
                return self.comparison(left, ops, others)
            case _:  # a name that is not called; no reference is translated to one
                raise ValueError(f"Unsupported syntax: {type(node).__name__}")

    def apply(self, function: Callable[..., Any], *operands: Any) -> Any:  # noqa: ANN401 any value
        return function(*operands)

    def unary(self, op: type[ast.unaryop], operand: Any) -> Any:  # noqa: ANN401 any value
        self._cost.before_unary(operand)
        return self.apply(_UNARY[op], operand)

    def binary(self, op: type[ast.operator], left: Any, right: Any) -> Any:  # noqa: ANN401 any value
        self._cost.before_binary(op, left, right)
        return self.apply(_BINARY[op], left, right)

    def either(self, operands: list[ast.expr], *, wanted: bool) -> Any:  # noqa: ANN401 any value
        result = None
        for operand in operands:
            result = self.value(operand)
            if self._cost.truth(result) is wanted:
                break
        return result

    def comparison(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> Any:  # noqa: ANN401 any value
        result, one = None, self.value(left)
        for op, node in zip(ops, others, strict=True):
            other = self.value(node)
            self._cost.before_comparison(type(op), one, other)
            result = self.apply(_COMPARISONS[type(op)], one, other)
            if not self._cost.truth(result):
                break
            one = other
        return result


class _Unknown:
    """A value that only a run has; ``power`` if a power was part of it."""

    def __init__(self, *, power: bool = False) -> None:
        self.power = power


class _Check(_Walk):
    """Evaluates what is known without a run; visits all operands, also those that a run might skip."""

    @override
    def value(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.BoolOp | ast.Compare):
            return super().value(node)
        for operand in ast.iter_child_nodes(node):
            if isinstance(operand, ast.expr):
                self.value(operand)
        return _Unknown()

    @override
    def apply(self, function: Callable[..., Any], *operands: Any) -> Any:
        unknown = [operand for operand in operands if isinstance(operand, _Unknown)]
        if unknown:
            return _Unknown(power=any(operand.power for operand in unknown))
        try:
            return function(*operands)
        except (ArithmeticError, TypeError, ValueError):  # the run has the error, if it evaluates this at all
            return _Unknown()

    @override
    def unary(self, op: type[ast.unaryop], operand: Any) -> Any:
        return operand if isinstance(operand, _Unknown) else super().unary(op, operand)

    @override
    def binary(self, op: type[ast.operator], left: Any, right: Any) -> Any:
        if not isinstance(left, _Unknown) and not isinstance(right, _Unknown):
            return super().binary(op, left, right)
        _check_unknown(op, left, right)
        return _Unknown(power=True) if op is ast.Pow else self.apply(_BINARY[op], left, right)


def _check_unknown(op: type[ast.operator], left: object, right: object) -> None:
    """Refuse an operation with one or two unknown operands that can have a large result."""
    if op is ast.Pow:
        if isinstance(right, _Unknown) or not isinstance(right, int | float) or abs(right) > MAX_EXPONENT:
            raise OutOfBoundsError(f"a power whose exponent is not a number up to {MAX_EXPONENT}")
        if isinstance(left, _Unknown) and left.power:
            raise OutOfBoundsError("a power of a power")
    if op is ast.Mult and (isinstance(left, str | bytes) or isinstance(right, str | bytes)):
        raise OutOfBoundsError("a text repeated a number of times that is not known")
    if op is ast.Mod and isinstance(left, str | bytes):
        raise OutOfBoundsError("a text with values put in")
