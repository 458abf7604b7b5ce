"""Functions for flows that are written as models: a task calls whatever the test has put here under its name."""

import itertools
from collections.abc import Callable
from typing import Any

from pyoco_server.flows.model import FlowModel, Program, Step, TaskSpec, TaskStep, WaitSpec

_tests = itertools.count()
_hooks: dict[str, dict[str, Callable[[Any], Any]]] = {}


def play(ctx: Any, name: str) -> Any:
    """The function of every task: call the hook of its name."""
    return _hooks[ctx.params["test"]][name](ctx)


def hooked(hooks: dict[str, Callable[[Any], Any]]) -> dict[str, str]:
    """Return parameters for a run whose tasks call these hooks."""
    test = f"test{next(_tests)}"
    _hooks[test] = hooks
    return {"test": test}


def replace_hooks(params: dict[str, str], hooks: dict[str, Callable[[Any], Any]]) -> None:
    """Replace the hooks that runs with these parameters call."""
    _hooks[params["test"]] = hooks


def run(name: str, **fields: Any) -> TaskStep:
    """A step that calls the hook of its name."""
    return TaskStep(TaskSpec(name=name, callable="tests.app.runtime.hooks:play", inputs={"name": name}, **fields))


def pause(name: str) -> TaskStep:
    """A step that waits for an answer."""
    return TaskStep(TaskSpec(name=name, wait=WaitSpec(key=name)))


def program(*steps: Step, name: str = "program") -> FlowModel:
    """A flow of these steps."""
    return FlowModel(name=name, body=Program(steps))
