"""Checks the names in expressions, inputs and prompts against the flow before it runs.

A name can be a result of one of the flow's tasks or of their ``outputs``, a variable of an enclosing loop, a field of a
loop, or a parameter, if all parameters are known. A task that takes ``ctx`` can set more results and variables. So if
the functions are known, a name is refused only if it is nearly a known one and no such function contains it; a
flow.yaml is checked without its functions, and there a result must be one of the file's.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher
from types import CodeType
from typing import Any, Final, NamedTuple

from pyoco_server.flows.errors import UnknownNameError
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Network,
    Program,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
    tasks_of,
)
from pyoco_server.flows.positions import close_to, instead_of, shown
from pyoco_server.flows.prompts import ROOTS, references_in

_NODE: Final = re.compile(r"\$node\.([^.]+)\.output")
_CONTEXT: Final = re.compile(r"\$ctx\.([A-Za-z_][\w.]*)")
_TEMPLATE_PATH: Final = re.compile(r"(?:ctx\.)?([A-Za-z_][\w.]*)")
_LOOP_FIELDS: Final = ("name", "type", "index", "iteration", "count", "item", "condition", "path")
_NEAR: Final = 0.75
"""How similar to a known name an unknown one must be to count as a misspelling."""


class _Reference(NamedTuple):
    """A path in the context, its place, and the loop variables in scope."""

    where: str
    path: tuple[str, ...]
    variables: tuple[str, ...]
    task: str | None
    """The task it belongs to; for a block, the first one inside."""
    is_of_node: bool = False
    """Is it written ``$node.name.output``?"""


def check_names(
    model: FlowModel,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    params: Collection[str] | None = None,
) -> None:
    """Refuse a name that nothing in the flow has: UnknownNameError, with the nearest known name.

    ``functions`` are those of the tasks, ``params`` all parameters that the run will have; None if they are not known.
    """
    known = _Known(model, functions, params)
    for reference in _references(model):
        known.check(reference)


class _Known:
    """The names that a flow has."""

    def __init__(
        self, model: FlowModel, functions: Mapping[str, Callable[..., Any]] | None, params: Collection[str] | None
    ) -> None:
        outputs = [path.split(".") for task in tasks_of(model) for path in task.outputs]
        kept = {root: [path[1] for path in outputs if path[0] == root and len(path) > 1] for root in ROOTS}
        self._results = [*dict.fromkeys([task.name for task in tasks_of(model)] + kept["results"])]
        self._params = None if params is None else [*dict.fromkeys([*params, *kept["params"]])]
        self._is_strict = functions is None
        self._functions = functions or {}

    def _may_be_set(self, name: str) -> bool:
        """Does a function contain the name? One that takes ``ctx`` may set a result or a variable of this name."""
        return any(name in _names_in(function) for function in self._functions.values())

    def check(self, reference: _Reference) -> None:
        root, *rest = reference.path
        if root == "results" and rest:
            self._check(reference, "result", rest[0], self._results, strict=self._is_strict)
        elif root == "params" and rest and self._params is not None:
            self._check(reference, "parameter", rest[0], self._params, strict=False)
        elif root == "loop" and rest and "loop" not in reference.variables:
            self._check(reference, "field of a loop", rest[0], _LOOP_FIELDS, strict=True)
        elif root not in ROOTS:
            self._check(reference, "name", root, [*reference.variables, *ROOTS], strict=False)

    def _check(self, reference: _Reference, kind: str, name: str, known: Collection[str], *, strict: bool) -> None:
        """Refuse an unknown ``name``; if not ``strict``, only if it is a misspelling and no function may set it."""
        if name in known:
            return
        near = close_to(name, [*known])
        is_slip = near is not None and SequenceMatcher(None, name, near).ratio() >= _NEAR
        if strict or (is_slip and not self._may_be_set(name)):
            problem = f"{reference.where}: the flow has no {kind} {shown(name)}"
            otherwise = f"write one of {', '.join(list(known)[:20])}" if known else "remove it"
            if reference.is_of_node:
                problem = f"{reference.where} is of {shown(name)}, which the graph does not have"
                otherwise = "name a task of the graph"
            raise UnknownNameError(problem, instead_of(name, [*known], otherwise), reference.task)


def _references(model: FlowModel) -> Iterator[_Reference]:
    if isinstance(model.body, Network):
        for task in model.body.tasks:
            yield from _in_task(task, ())
    else:
        yield from _in_steps(model.body.steps, ())


def _in_steps(steps: Steps, variables: tuple[str, ...]) -> Iterator[_Reference]:
    for step in steps:
        yield from _in_step(step, variables)


def _in_step(step: Step, variables: tuple[str, ...]) -> Iterator[_Reference]:
    first = next((task.name for task in tasks_of(FlowModel(name="", body=Program((step,))))), None)
    match step:
        case TaskStep(task):
            yield from _in_task(task, variables)
        case Switch(on, cases, default):
            yield from _in_expression("switch on", on, variables, first)
            for body in (*(case.body for case in cases), default or ()):
                yield from _in_steps(body, variables)
        case Repeat(count, body):
            yield from _in_expression("repeat count", str(count), variables, first)
            yield from _in_steps(body, variables)
        case ForEach(over, body):
            yield from _in_expression("foreach over", over, variables, first)
            yield from _in_steps(body, (*variables, *(name for name in (step.item, step.index) if name)))
        case Until(condition, body):
            yield from _in_expression("until cond", condition, variables, first)
            yield from _in_steps(body, variables)
        case _:
            for branch in step.branches:
                yield from _in_steps(branch, variables)


def _in_task(task: TaskSpec, variables: tuple[str, ...]) -> Iterator[_Reference]:
    for name, value in task.inputs.items():
        if not isinstance(value, str):
            continue
        where = f"the input {shown(name)} of the task {shown(task.name)}"
        if found := _NODE.match(value):
            yield _Reference(where, ("results", found[1]), variables, task.name, is_of_node=True)
        elif value.startswith("$ctx.params."):
            yield _Reference(where, ("params", value.removeprefix("$ctx.params.")), variables, task.name)
    for place, template, root in references_in(task.wait.prompt) if task.wait else ():
        where = f"{place} of the wait {shown(task.name)}"
        if "$ctx." in template:
            yield from _in_expression(where, template, variables, task.name)
        elif (root in (*ROOTS, *variables) or "." in template) and (found := _TEMPLATE_PATH.fullmatch(template)):
            yield _Reference(where, tuple(found[1].split(".")), variables, task.name)


def _in_expression(where: str, source: str, variables: tuple[str, ...], task: str | None) -> Iterator[_Reference]:
    for path in _CONTEXT.findall(source):
        yield _Reference(f"{where} {shown(source)}", tuple(path.rstrip(".").split(".")), variables, task)


def _names_in(function: Callable[..., Any]) -> set[str]:
    """Return the names and texts in a function's code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return set()
    return set(_texts_in(code))


def _texts_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts_in(constant)
        elif isinstance(constant, str):
            yield constant
