"""Functions for flows that are written as models: a task calls whatever the test has put here under its name."""

import itertools
from collections.abc import Callable
from typing import Any

from pyoco_server.flows.model import FlowModel, Program, Step, TaskSpec, TaskStep, WaitSpec

_tests = itertools.count()
_hooks: dict[str, dict[str, Callable[[Any], Any]]] = {}


def play(ctx: Any, name: str) -> Any:
    """What every task does."""
    return _hooks[ctx.params["test"]][name](ctx)


def hooked(hooks: dict[str, Callable[[Any], Any]]) -> dict[str, str]:
    """Parameters for a run whose tasks are to call these."""
    test = f"test{next(_tests)}"
    _hooks[test] = hooks
    return {"test": test}


def replace_hooks(params: dict[str, str], hooks: dict[str, Callable[[Any], Any]]) -> None:
    """Have runs with these parameters call others from now on."""
    _hooks[params["test"]] = hooks


def run(name: str, **fields: Any) -> TaskStep:
    """A step that calls the hook of its name."""
    return TaskStep(TaskSpec(name=name, callable="tests.engine.hooks:play", inputs={"name": name}, **fields))


def pause(name: str) -> TaskStep:
    """A step that waits for somebody."""
    return TaskStep(TaskSpec(name=name, wait=WaitSpec(key=name)))


def program(*steps: Step, name: str = "program") -> FlowModel:
    """A flow of these steps."""
    return FlowModel(name=name, body=Program(steps))
