"""Parameters a run was given and nothing in its flow takes: found, and named in the log and in warnings.

Most of them were mistyped, but that is never certain. A task that takes ``ctx`` may read any name, so where there is
one, only a name that is nearly that of a known parameter is reported. Where there is none, a parameter is reported if
no task has an argument for it and no expression names it.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyoco_server.app.runtime.argument_binding import Function, shape_of
from pyoco_server.flows.model import FlowModel, ForEach, Network, Repeat, Step, Steps, Switch, TaskStep, Until, tasks_of

UNUSED: Final = "unusedParams"
"""The field of NODE_STARTED with the parameters: each with what may have been meant, or null."""

MOST: Final = 50

Unused = dict[str, str | None]


def read_unused(said: object) -> Unused | None:
    """Read the field of an event; None if it is missing or of another form: any client may give a node extra fields."""
    if not isinstance(said, Mapping) or len(said) > MOST:
        return None
    if all(isinstance(name, str) and (near is None or isinstance(near, str)) for name, near in said.items()):
        return dict(said)
    return None


def warnings_of(unused: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each parameter that nothing takes."""
    return [
        f"nothing in the flow takes the parameter '{name}'{f'; did you mean {near!r}?' if near else ''}"
        for name, near in unused.items()
    ]


_REFERENCE: Final = re.compile(r"params\b(?:\.(\w+))?")
_LONGEST: Final = 100
"""Longer names are not compared: that takes time, which any client's flow.yaml could make us spend."""
_MOST_KNOWN: Final = 200


def unused_params(model: FlowModel, functions: Mapping[str, Function], given: Mapping[str, Any]) -> Unused:
    """Return the given parameters that nothing takes, as far as can be known."""
    if not given:
        return {}
    taken, is_all_seen = {*model.defaults}, False
    for task in tasks_of(model):
        function = functions.get(task.function or task.name)
        if function is not None:
            shape = shape_of(function)
            is_all_seen = is_all_seen or shape.wants_context
            taken |= {name for name in shape.names if name not in task.inputs}
    for text in _texts(model):
        for name in _REFERENCE.findall(text):
            is_all_seen = is_all_seen or not name
            taken.add(name)
    missed: Unused = {}
    free = sorted(name for name in taken if name not in given and len(name) <= _LONGEST)[:_MOST_KNOWN]
    for name in [name for name in given if name not in taken and len(name) <= _LONGEST][:MOST]:
        near = difflib.get_close_matches(name, free, n=1, cutoff=0.7)
        if near or not is_all_seen:
            missed[name] = near[0] if near else None
    return missed


def _texts(model: FlowModel) -> Iterator[str]:
    """All that may refer to a parameter by its name."""
    for task in tasks_of(model):
        yield from _in_value(task.inputs)
        yield from task.outputs
    if not isinstance(model.body, Network):
        yield from _in_steps(model.body.steps)


def _in_value(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _in_value(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _in_value(item)


def _in_steps(steps: Steps) -> Iterator[str]:
    for step in steps:
        yield from _in_step(step)


def _in_step(step: Step) -> Iterator[str]:
    match step:
        case TaskStep():
            return
        case Switch(on, cases, default):
            yield on
            for case in cases:
                yield from _in_steps(case.body)
            yield from _in_steps(default or ())
        case Repeat(count, body):
            yield str(count)
            yield from _in_steps(body)
        case ForEach(over, body):
            yield over
            yield from _in_steps(body)
        case Until(condition, body):
            yield condition
            yield from _in_steps(body)
        case _:
            for branch in step.branches:
                yield from _in_steps(branch)
