"""Templates in the prompt of a wait: ``{{ results.aggregate.total }}``, rendered when the wait starts.

A template is what flow.yaml accepts in ``over`` and ``cond``: a path, or an expression with ``$ctx.``. A text that is
only one template becomes its value, of whatever type; in a longer text, the value is inserted. Braces around anything
else (``{{ your name }}``) are part of the text.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from pyoco_server.core import DecodeError
from pyoco_server.core.json_codec import JsonObject, parse_object
from pyoco_server.flows.errors import FlowSyntaxError, PromptError
from pyoco_server.flows.expressions import evaluate
from pyoco_server.flows.forms import check_form
from pyoco_server.flows.graph_language.arguments import expression
from pyoco_server.flows.graph_language.ast import Word
from pyoco_server.flows.operations import Cost
from pyoco_server.flows.positions import SourcePosition

ROOTS: Final = ("params", "results", "scratch", "artifacts", "loop", "loops")
"""The names that every context has; loop variables are added to them."""
_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_ROOT: Final = re.compile(r"\s*(?:\$(ctx|env)\.|ctx\.|env\.)?(\w+)")
_NOWHERE: Final = SourcePosition(1, 1)
_ValueOf = Callable[[str, str], Any]
"""Returns the value of a template, given its place in the prompt and the text between its braces."""
LARGEST_PROMPT: Final = 65_536
"""Bytes of a rendered prompt: the log and every snapshot of the waiting run contain it."""


def check_prompt(prompt: Mapping[str, Any]) -> None:
    """Refuse a prompt that is too large, has a template that cannot be evaluated, or an invalid schema: FlowError."""
    if len(msgspec.json.encode(prompt)) > LARGEST_PROMPT:
        raise PromptError(f"prompt: it has more than {LARGEST_PROMPT} bytes; ask with less text")
    for where, text in texts_of(prompt):
        for template in _TEMPLATE.findall(text):
            if root_of(template) in ROOTS or template.strip().startswith(("$", "env.")):
                _expression(where, template, None)
    if not has_templates({name: prompt.get(name) for name in ("schema", "fields")}):
        check_form(prompt)


def check_environment(prompt: Mapping[str, Any], env: Collection[str]) -> None:
    """Refuse a template with an environment variable that is not in ``env``: PromptError."""
    for where, text in texts_of(prompt):
        for template in _TEMPLATE.findall(text):
            if _is_of_environment(template):
                _expression(where, template, env)


def references_in(prompt: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return for each template its place, the text between its braces, and the name it begins with."""
    for where, text in texts_of(prompt):
        for template in _TEMPLATE.findall(text):
            root = root_of(template)
            if root is not None:
                yield where, template.strip(), root


def has_templates(prompt: Mapping[str, Any]) -> bool:
    """Does anything in the prompt look like a template?"""
    return any(_TEMPLATE.search(text) for _, text in texts_of(prompt))


def rendered(
    prompt: Mapping[str, Any], *, ctx: Mapping[str, Any], env: Mapping[str, Any], cost: Cost | None = None
) -> JsonObject:
    """Return the prompt with the values of its templates; PromptError names the template that has no value.

    ElsewhereError if that costs too much, or needs code of users, where ``cost`` does not allow it.
    """
    cost = cost or Cost()

    def value_of(where: str, template: str) -> Any:  # noqa: ANN401 any JSON value
        source = _expression(where, template, None)
        try:
            found = evaluate(source, ctx=ctx, env=env, cost=cost)
            cost.take(found)
            value = parse_object({"value": found})["value"]
            msgspec.json.encode(value)  # keys with half a surrogate pair and very large integers cannot be written
        except (ValueError, RuntimeError, DecodeError) as error:
            raise PromptError(f"{where}: {{{{ {template.strip()} }}}} cannot be shown: {error}") from error
        return value

    def is_known(template: str) -> bool:
        return template.strip().startswith(("$ctx.", "$env.", "env.")) or root_of(template) in ctx

    shown: JsonObject = _rendered("prompt", dict(prompt), value_of, is_known)
    if len(msgspec.json.encode(shown)) > LARGEST_PROMPT:
        raise PromptError(f"prompt: with its values it has more than {LARGEST_PROMPT} bytes; show less of the results")
    check_form(shown)
    return shown


def _rendered(where: str, value: object, value_of: _ValueOf, is_known: Callable[[str], bool]) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {name: _rendered(f"{where}.{name}", inner, value_of, is_known) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rendered(f"{where}.{index}", inner, value_of, is_known) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value
    whole = _TEMPLATE.fullmatch(value.strip())
    if whole is not None and "{{" not in whole[1] and is_known(whole[1]):
        return value_of(where, whole[1])
    return _TEMPLATE.sub(
        lambda found: _as_text(value_of(where, found[1])) if is_known(found[1]) else found[0],
        value,
    )


def _as_text(value: Any) -> str:  # noqa: ANN401 any JSON value
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def texts_of(value: object, where: str = "prompt") -> Iterator[tuple[str, str]]:
    """Return all texts in a value, each with its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from texts_of(inner, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from texts_of(inner, f"{where}.{index}")


def _is_of_environment(template: str) -> bool:
    return "$env." in template or template.strip().startswith("env.")


def root_of(template: str) -> str | None:
    """Return the name a template begins with, without ``ctx.``; None if there is none, or if it is ``env``."""
    found = _ROOT.match(template)
    if found is None or found[1] == "env" or template.strip().startswith("env."):
        return None
    return found[2]


def _expression(where: str, template: str, env: Collection[str] | None) -> str:
    try:
        return expression(Word(template.strip(), _NOWHERE), default_to_params=False, env=env)
    except FlowSyntaxError as error:
        raise PromptError(f"{where}: {{{{ {template.strip()[:80]} }}}}: {error.message}; {error.remedy}") from error
