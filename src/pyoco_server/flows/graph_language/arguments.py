"""The meaning of the words in a block's parentheses: expressions, numbers and the values of cases.

They mean the same as in pyoco. An expression is returned in pyoco's own syntax, and has been checked, so that what is
accepted here can be evaluated later, as far as this is known in advance.
"""

import re
from collections.abc import Collection

from pyoco_server.flows.errors import FlowSyntaxError, OutOfBoundsError
from pyoco_server.flows.expressions import check_expression
from pyoco_server.flows.graph_language.ast import Word
from pyoco_server.flows.positions import shown

MAX_EXPRESSION = 2_000
LARGEST_NUMBER = 2**63 - 1

_PATH = re.compile(r"[A-Za-z_][\w.]*")
_ROOT = re.compile(r"(?<![\w.$'\"])(params|results|scratch|artifacts|loop|loops)\.(?=\w)")
_EXAMPLE = "write a path like {{ params.n }}, or an expression like {{ $ctx.params.n > 3 }}"


def expression(word: Word, *, default_to_params: bool, env: Collection[str] | None = None) -> str:
    """Return the expression that a word stands for.

    A text with ``$ctx.`` or ``$env.`` is an expression already. Otherwise it must be a path: ``env.X`` is an
    environment variable, anything else with a dot a path in the context; a single name is a parameter if
    ``default_to_params``, else a name in the context. ``env`` are the variables it may name; None means any.
    """
    bare = word.text.strip()
    if bare.startswith("{{") and bare.endswith("}}"):
        bare = bare[2:-2].strip()
    if not bare:
        raise FlowSyntaxError(*word.mark, "an empty expression", _EXAMPLE)
    if len(bare) > MAX_EXPRESSION:
        raise FlowSyntaxError(
            *word.mark, f"an expression of more than {MAX_EXPRESSION} characters", "compute the value in a task"
        )
    return _checked(_reference(bare, word, default_to_params=default_to_params), word, env)


def case_value(word: Word) -> str | int | bool:
    """Return the value that a case compares with: a truth value, a whole number, or else the text itself."""
    if word.text in {"true", "false"}:
        return word.text == "true"
    return whole_number(word) if word.text.isdigit() else word.text


def repeat_count(word: Word, *, env: Collection[str] | None = None) -> int | str:
    """Return how often to repeat: a whole number, or an expression."""
    return whole_number(word) if word.text.isdigit() else expression(word, default_to_params=True, env=env)


def whole_number(word: Word, *, least: int = 0) -> int:
    """Return a number written in digits, from ``least`` to LARGEST_NUMBER."""
    wanted = f"write a whole number from {least} to {LARGEST_NUMBER}"
    if not word.text.isdecimal() or len(word.text) > 4_000:  # Python converts no more digits than that
        raise FlowSyntaxError(*word.mark, f"{shown(word.text)} is not a whole number", wanted)
    number = int(word.text)
    if not least <= number <= LARGEST_NUMBER:
        raise FlowSyntaxError(*word.mark, f"{shown(word.text)} is too {'small' if number < least else 'large'}", wanted)
    return number


def _reference(bare: str, word: Word, *, default_to_params: bool) -> str:
    if "$ctx." in bare or "$env." in bare:
        return bare
    if not _PATH.fullmatch(bare):
        raise FlowSyntaxError(*word.mark, f"{shown(bare)} is neither a path nor an expression", _meant(bare))
    root, dot, rest = bare.partition(".")
    if dot and root in {"env", "ctx"}:
        return f"${root}.{rest}"
    if dot or root in {"params", "results", "scratch", "artifacts", "loop", "loops"} or not default_to_params:
        return f"$ctx.{bare}"
    return f"$ctx.params.{bare}"


def _meant(bare: str) -> str:
    """Return the remedy: the same with ``$ctx.`` before its names, if that is a valid expression."""
    meant = _ROOT.sub(r"$ctx.\g<0>", bare)
    try:
        check_expression(meant)
    except ValueError:
        return _EXAMPLE
    return f"write {{{{ {meant} }}}}" if len(meant) <= 80 and meant != bare else _EXAMPLE


def _checked(source: str, word: Word, env: Collection[str] | None) -> str:
    try:
        check_expression(source, env=env)
    except OutOfBoundsError as error:
        raise FlowSyntaxError(*word.mark, error.problem, error.remedy) from error
    except ValueError as error:
        raise FlowSyntaxError(*word.mark, f"the expression {shown(source)} is not valid: {error}", _EXAMPLE) from error
    return source
