"""Finding the functions of a flow's tasks: by ``module:function``, by plug-in name, or by the name of the task itself.

This is where user code is imported, and nowhere else; reading a flow never does.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.discovery.plugins import PluginRegistry, iter_entry_points  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.model import FlowModel, TaskSpec, tasks_of

Function = Callable[..., Any]


def bind(model: FlowModel, known: Mapping[str, Function] | None = None) -> dict[str, Function]:
    """Return the function of every task; ``known`` are functions already at hand, by task name. FlowError otherwise."""
    plugins = _Plugins()
    return {task.name: _find(task, known or {}, plugins) for task in tasks_of(model) if task.wait is None}


def _find(task: TaskSpec, known: Mapping[str, Function], plugins: "_Plugins") -> Function:
    if task.callable is not None:
        return _import(task.name, task.callable)
    name = task.use or task.name
    function = known.get(name) or plugins.get(name)
    if function is None:
        raise FlowError(
            f"task '{task.name}': there is no task named '{name}' here; "
            "give it a callable 'module:function', or install the plug-in that has it"
        )
    return function


def _import(name: str, path: str) -> Function:
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise FlowError(f"task '{name}': cannot import '{path}': {error}") from error
    function = found.task.func if isinstance(found, TaskWrapper) else found.func if isinstance(found, Task) else found
    if not callable(function):
        raise FlowError(f"task '{name}': '{path}' is not a function")
    return _checked(function)


def _checked(function: Any) -> Function:  # noqa: ANN401 known to be callable, of whatever kind
    found: Function = function
    return found


class _Plugins:
    """Tasks that installed packages offer under pyoco's entry point; looked up once, and only if asked for."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] | None = None

    def get(self, name: str) -> Function | None:
        if self._tasks is None:
            self._tasks = {}
            for entry_point in iter_entry_points():
                entry_point.load()(PluginRegistry(self, entry_point.name))
        task = self._tasks.get(name)
        return task.func if task is not None else None

    def _register_task(self, name: str, task: Task) -> None:
        """What pyoco's registry calls to add a task."""
        if self._tasks is not None:
            self._tasks[name] = task

    def _register_task_info(self, info: object) -> None:
        """What pyoco's registry calls to describe one; nobody asks for that here."""
