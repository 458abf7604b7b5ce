"""Untrusted expressions: each is evaluated quickly, or refused."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoco.dsl.expressions import (  # type: ignore[import-untyped]  # pyoco ships no type information
    Expression,
    ExpressionEvaluationError,
)

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.expressions import MAX_LEVELS, check_expression, evaluate
from pyoco_server.flows.model import Program, Until
from pyoco_server.flows.operations import MAX_LENGTH
from pyoco_server.flows.yaml.document import read_flow_yaml

PATIENCE = 2.0
"""Seconds of processor time; the slowest takes a few hundredths."""

CONTEXT = {
    "params": {"n": 7, "x": 1.5, "big": 10**300, "text": "abc", "items": [1, [2]], "none": None, "_own": 1},
    "results": {"a": {"b": {"c": 3}}},
    "loop": None,
}


def condition(source: str) -> str:
    """What the expression becomes as the condition of a flow.yaml's loop."""
    text = f"flow:\n  graph: |\n    until(cond={{{{ {source} }}}}, max_iter=1){{ a }}\n"
    body = read_flow_yaml(text, name="nasty").body
    assert isinstance(body, Program)
    (loop,) = body.steps
    assert isinstance(loop, Until)
    return loop.condition


def refused_or_evaluated(source: str) -> FlowSyntaxError | None:
    """Evaluate on pyoco's own evaluator and on ours; both must be quick, and agree."""
    refused = None
    try:
        checked = condition(source)
    except FlowSyntaxError as error:
        refused = error
    if refused is not None:
        assert (refused.line, refused.column) == (3, 16)
        assert len(str(refused)) < 400
        assert refused.remedy
        return refused
    assert outcome(lambda: evaluate(checked, ctx=CONTEXT, env={})) == outcome(
        lambda: Expression(checked).evaluate(ctx=CONTEXT, env={})
    )
    return None


def outcome(work: Any) -> str:
    try:
        return repr(work())[:10_000]
    except ExpressionEvaluationError as error:
        return str(error)


# --- Attacks ---------------------------------------------------------------------------------------------------------

POWERS = [
    "9**9**9",
    "9**9**9**9**9",
    "2**100000000",
    "-2**99999999999",
    "(-2)**99999999999",
    "10**10**10 > 1",
    "(9**9)**(9**9)",
    "((10**60)**60)**60",
    "(((9**64)**64)**64)**64",
    "2**(2**(2**(2**(2**2))))",
    "1 + 9**(9*9*9*9*9*9*9)",
    "9**$ctx.params.n",
    "$ctx.params.n**$ctx.params.n",
    "$ctx.params.n**9999999999",
    "$ctx.params.n**-9999999999",
    "$ctx.params.n**'a'",
    "$ctx.params.n**(1j)",
    "$ctx.params.n**9**9",
    "($ctx.params.n**60)**60",
    "(($ctx.params.big**60) + 1)**60",
    "(-($ctx.params.big**60))**60",
    "False and 9**9**9",
    "True or 9**9**9",
    "1 < 0 < 9**9**9",
    "not 9**9**9",
    "0xffffffffffffffff**0xffffffff",
    "True**9999999999 + 9**9999999999",
    "9**True**9 + 9**9**True**9**9",
    "9 ** 9. ** 99",
    "9.9 ** 9999",
    "9e999 ** 9e999",
    "(9**9999) * (9**9999) * (9**9999) * (9**9999) * (9**9999)",
    "(9**20000) * (9**20000)",
]
REPETITIONS = [
    "'a' * 10**10",
    "10**10 * 'a'",
    "'a' * 99999 * 99999",
    "b'a' * 99999999999",
    "('a' * 999999) * 999999",
    "('a' + 'b') * 9999999999",
    "'a' * $ctx.params.n",
    "$ctx.params.n * 'a'",
    "'a' * ($ctx.params.n * 1000000)",
    "('a' * 900000) + ('a' * 900000)",
    "('' * 10**18) == ''",
    "'a' * True * 10**12",
    "'a' * -10**12",
    "'' * 10**30",
    "'%9999999999d' % 1",
    "'%*d' % 1",
    "'%.9999999999f' % 1.0",
    "'%(a)9999999999d' % 1",
    "'%s' % $ctx.params.n",
    "'%s' * 9 % 1",
    "b'%9999999999d' % 1",
    "('%' + '9999999999d') % 1",
    "('%9' * 30 + 'd') % 1",
    "'a' * 500000 in 'a' * 999999",
    "('a' * 499999 + 'b') in ('a' * 999999)",
    "$ctx.params.text * 10**3 == ''",
]
DEEP = [
    "-" * 1900 + "$ctx.params.n",
    "+-" * 900 + "$ctx.params.n",
    "not " * 450 + "$ctx.params.n",
    "(" * 150 + "$ctx.params.n" + ")" * 150,
    "(" * 900 + "$ctx.params.n" + ")" * 900,
    "(" * 1900 + "$ctx.params.n",
    "$ctx.params.n" + "+1" * 900,
    "$ctx.params.n" + "**1" * 600,
    "$ctx.params.n" + " if 1 else 2" * 100,
    "1<" * 900 + "$ctx.params.n",
    "$ctx.params.n" + " and 1" * 300,
    "[" * 90 + "$ctx.params.n" + "]" * 90,
    "$ctx" + ".a" * 900,
    "$ctx.params.n " * 100,
    "'" + "x" * 1900 + "' == $ctx.params.n",
    "x" * 2001,
]
ESCAPES = [
    "$ctx.loop.__class__",
    "$ctx.loop.__init__.__globals__.threading",
    "$ctx.params.__class__.__mro__",
    "$ctx.results.a.__class__.__base__.__subclasses__",
    "$ctx.params.text.__len__",
    "$ctx.results.a.gi_frame.f_globals",
    "$ctx.results.a.tb_frame.f_back",
    "$ctx.results.a.cr_frame.f_builtins",
    "$ctx.__builtins__",
    "$env.__class__",
    "$ctx.params.n.real.__init__ == 1",
    "__import__('os').system('true')",
    "$ctx.params.n.__class__('9')",
    "$ctx.params.text.upper()",
    "_ctx('params.n')",
    "$ctx.params.n or _env('HOME')",
    "(lambda: $ctx.params.n)()",
    "[$ctx.params.n for _ in range(9)]",
    "{$ctx.params.n: 1}",
    "f'{$ctx.params.n:9999999999}'",
    "$ctx.params.text[0]",
    "$ctx.params.items[0:9]",
    "(x := $ctx.params.n)",
    "$ctx.params.n if 1 else 2",
    "yield $ctx.params.n",
    "await $ctx.params.n",
    "*$ctx.params.items",
    "$ctx.params.n; import os",
    "$ctx.params.n # $",
    "$ctx.params.n << 99999999999",
    "$ctx.params.n // 1",
    "~$ctx.params.n",
    "$ctx.params.n @ 1",
    "$ctx.params.n is None",
    "$ctx.params.n, 1",
    "$ctx",
    "$ctx.",
    "$ctx..n",
    "$ctx.params.n.",
    "$os.environ == $ctx.params.n",
    "$ctx.params.n $ctx.params.n",
    "$$ctx.params.n",
    "\\$ctx.params.n",
    "'$ctx.params.n",
    "'$ctx.params.n'",
    "$ctx.params.n == '\\x00'",
    "$ctx.params.n == '\\N{BULLET}'",
    "$ctx.params.n == ...",
    "()",
]
HARMLESS = [
    "$ctx.params.n > 3",
    "$ctx.params.n ** 2 > 9 and not $ctx.params.text in 'abc'",
    "$ctx.params.n * 1000000 / 3 % 7 - 1 <= 2 != 3",
    "1 < $ctx.params.n < 9",
    "$ctx.params.none or $ctx.params.text + 'def'",
    "'b' not in $ctx.params.text",
    "2 ** 64 > $ctx.params.n",
    "$ctx.params.text * 3 == 'abcabcabc'",
    "3 * $ctx.params.items",
    "-$ctx.params.x + +1",
    "$ctx.params.n / 0",
    "$ctx.params.nothing",
    "$ctx.params._own",
    "$ctx.results.a.b.c == 3",
    "$ctx.params.text + 1",
    "1 < 'a' or $ctx.params.n",
    "'7' == $ctx.params.text or '%d items' % 3 == 'no'",
    "(1 - 1) ** -1 or $ctx.params.n",
]


def with_a_reference(source: str) -> str:
    """Without a reference a template is not an expression at all."""
    return source if "$" in source else f"$ctx.params.n == ({source})"


@pytest.mark.parametrize("source", [*POWERS, *REPETITIONS, *DEEP, *ESCAPES, *HARMLESS], ids=lambda text: text[:40])
def test_an_expression_is_evaluated_quickly_or_refused(source: str) -> None:
    started = time.process_time()
    refused_or_evaluated(source)
    refused_or_evaluated(with_a_reference(source))
    assert time.process_time() - started < PATIENCE


@pytest.mark.parametrize("source", HARMLESS)
def test_usual_expressions_are_accepted(source: str) -> None:
    assert refused_or_evaluated(source) is None


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("$ctx.params.n > 9**9**9", "a power that is too large a number; compute the value in a task"),
        ("9 ** $ctx.params.n", "a power whose exponent is not a number up to 64"),
        ("($ctx.params.n ** 9) ** 9", "a power of a power"),
        ("$ctx.params.n == 'a' * 10**10", "a text or list repeated too often"),
        ("'a' * $ctx.params.n", "a text repeated a number of times that is not known"),
        ("'%9999999d' % 1 == $ctx.params.n", "too wide"),
        ("'%d' % $ctx.params.n", "a text with values put in"),
        ("$ctx.params.n" + "+1" * 100, f"more than {MAX_LEVELS} levels"),
        ("$ctx.loop.__init__.__globals__", "a path through '__init__', which is Python's own; name data only"),
        ("$ctx.params.n +", "is not valid: invalid syntax"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(source: str, said: str) -> None:
    refused = refused_or_evaluated(source)
    assert refused is not None
    assert said in str(refused)


# --- Values only a run has -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "a", "b"),
    [
        ("$ctx.a ** $ctx.b", 9, 10**9),
        ("$ctx.a * $ctx.b", "a", 10**11),
        ("$ctx.a * $ctx.b", 10**11, [1]),
        ("$ctx.a * $ctx.b", 1 << 9_000, 1 << 9_000),
        ("$ctx.a + $ctx.b", "a" * MAX_LENGTH, "b"),
        ("$ctx.a % $ctx.b", "%99999999999d", 1),
        ("$ctx.a % $ctx.b", "%*d", (10**10, 1)),
        ("$ctx.a % $ctx.b", "%s" * 1000, ("x" * 1000,) * 1000),
    ],
)
def test_a_value_that_would_be_too_large_fails_the_evaluation(source: str, a: Any, b: Any) -> None:
    check_expression("$ctx.a * $ctx.b")
    started = time.process_time()
    with pytest.raises(
        ExpressionEvaluationError, match=r"Failed to evaluate expression .* compute the value in a task"
    ):
        evaluate(source, ctx={"a": a, "b": b}, env={})
    assert time.process_time() - started < PATIENCE


def test_what_is_not_reached_is_not_evaluated() -> None:
    assert evaluate("$ctx.a or 9 ** $ctx.a ** 9 ** 9", ctx={"a": 1}, env={}) == 1
    assert evaluate("$env.B == 'x' and 1", ctx={}, env={"B": "x"}) == 1


OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "**", "==", "!=", "<", ">=", "in", "not in", "and", "or"])
LEAVES = st.sampled_from(
    [
        *("0", "1", "2", "3.5", "-1", "'a'", "'%d'", "None", "True"),
        *(f"$ctx.params.{name}" for name in ("n", "x", "text", "items", "none", "missing")),
    ]
)
SOURCES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("{} {} {}".format, inner, OPERATORS, inner),
        st.builds("(not {})".format, inner),
        st.builds("-{}".format, inner),
    ),
    max_leaves=8,
)


@given(SOURCES)
@settings(max_examples=500, deadline=None)
def test_evaluation_equals_that_of_pyoco(source: str) -> None:
    """On everything that passes the check; what does not may cost pyoco too much to be asked."""
    try:
        check_expression(source)
    except ValueError:
        return
    ours = outcome(lambda: evaluate(source, ctx=CONTEXT, env={}))
    assert ours == outcome(lambda: Expression(source).evaluate(ctx=CONTEXT, env={})) or "in a task" in ours
