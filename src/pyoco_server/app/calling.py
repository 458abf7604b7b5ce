"""How a task's function is called: its arguments, as pyoco binds them."""

import inspect
from collections.abc import Callable
from typing import Any

from pyoco_server.app.context import TaskContext
from pyoco_server.flows.model import TaskSpec


def arguments(task: TaskSpec, function: Callable[..., Any], context: TaskContext) -> dict[str, Any]:
    """The keyword arguments: declared inputs first, then ``ctx``, then parameters and results of the same name."""
    bound = {name: context.resolve(value) for name, value in task.inputs.items()}
    for name in inspect.signature(function).parameters:
        if name == "ctx":
            bound["ctx"] = context
        elif name in bound:
            continue
        elif name in context.params:
            bound[name] = context.params[name]
        elif name in context.results:
            bound[name] = context.results[name]
    return bound
