"""Finds the functions of a flow's tasks: by ``module:function``, by plug-in name, or by the name of the task itself.

Only this module imports user code; reading a flow never does.
"""

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.discovery.plugins import PluginRegistry, iter_entry_points  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.flows.callables import CallablePolicy, CallableRefusal
from pyoco_server.flows.errors import CallableNotAllowedError, FlowError, FlowSyntaxError
from pyoco_server.flows.model import FlowModel, Origin, TaskSpec, tasks_of
from pyoco_server.flows.positions import close_to, instead_of

Function = Callable[..., Any]

_log = logging.getLogger(__name__)


_NOWHERE = Origin(1, 1)


def bind(
    model: FlowModel, known: Mapping[str, Function] | None = None, *, policy: CallablePolicy | None = None
) -> dict[str, Function]:
    """Return the function of every task, or raise FlowError; ``known`` are functions that are loaded, by task name.

    ``policy`` says what a flow.yaml of a client may name; without it, all that can be imported.
    """
    finder = _FunctionFinder(model, known or {}, policy)
    return {task.name: finder.find(task) for task in tasks_of(model) if task.wait is None}


def bind_available(model: FlowModel, *, policy: CallablePolicy | None = None) -> dict[str, Function]:
    """Return the functions of those tasks whose function can be found and imported, for a run that has started."""
    finder, found = _FunctionFinder(model, {}, policy), dict[str, Function]()
    for task in tasks_of(model):
        if task.wait is not None:
            continue
        try:
            found[task.name] = finder.find(task)
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's modules raise when imported
            _log.warning("task '%s' has no function here: %s", task.name, error, extra={"action": "task_not_bound"})
    return found


class _FunctionFinder:
    """Finds the functions of one flow."""

    def __init__(self, model: FlowModel, known: Mapping[str, Function], policy: CallablePolicy | None) -> None:
        self._model = model
        self._known = known
        self._policy = policy
        self._plugins = _Plugins()

    def find(self, task: TaskSpec) -> Function:
        """Return the function of a task, or raise FlowError."""
        origin = self._model.origins.get(task.name)
        if task.callable is not None:
            return self._import(task.name, task.callable, origin)
        name = task.use or task.name
        function = self._known.get(name) or self._plugins.get(name)
        if function is None:
            meant = close_to(name, [other for other in origin.described if other != name]) if origin else None
            remedy = "give it a callable 'module:function', or install the plug-in that has it"
            remedy = f"did you mean '{meant}'? Otherwise {remedy}" if meant else remedy
            raise _missing(task.name, f"there is no task named '{name}' here", remedy, origin)
        return function

    def _import(self, name: str, path: str, origin: Origin | None) -> Function:
        module_name, _, attribute = path.partition(":")
        try:
            refusal = self._policy.refusal_to_import(path) if self._policy is not None else None
            if refusal is not None:
                raise refused(name, refusal, origin)
            module = importlib.import_module(module_name)
        except ImportError as error:
            remedy = "write module.path:function of a module that is installed or beside the flow"
            raise _missing(name, f"cannot import '{path}': {error}", remedy, origin) from error
        found = getattr(module, attribute, None)
        task = found.task if isinstance(found, TaskWrapper) else found
        function = task.func if isinstance(task, Task) else task
        if not callable(function):
            problem = "is not a function" if hasattr(module, attribute) else "does not exist"
            others = [word for word, value in vars(module).items() if callable(value)]
            remedy = instead_of(attribute, others, f"name a function of {module_name}")
            raise _missing(name, f"cannot import '{path}': '{attribute}' {problem}", remedy, origin)
        refusal = self._policy.refusal_to_call(path, function) if self._policy is not None else None
        if refusal is not None:
            raise refused(name, refusal, origin)
        return _checked(function)


def refused(task: str, refusal: CallableRefusal, origin: Origin | None) -> CallableNotAllowedError:
    """Return the error for a task whose function may not be called, with its place."""
    place = origin or _NOWHERE
    return CallableNotAllowedError(place.line, place.column, f"task '{task}': {refusal.problem}", refusal.remedy)


def _missing(name: str, problem: str, remedy: str, origin: Origin | None) -> FlowError:
    """Return the error for a task without a function, with its place if the flow was read from a file."""
    if origin is None:
        return FlowError(f"task '{name}': {problem}; {remedy}")
    return FlowSyntaxError(origin.line, origin.column, f"task '{name}': {problem}", remedy)


def _checked(function: Any) -> Function:  # noqa: ANN401 known to be callable, of whatever kind
    found: Function = function
    return found


class _Plugins:
    """Tasks that installed packages offer under pyoco's entry point; loaded once, at the first lookup."""

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
        """Add a task; pyoco's registry calls this."""
        if self._tasks is not None:
            self._tasks[name] = task

    def _register_task_info(self, info: object) -> None:
        """Ignore the description of a task; pyoco's registry calls this."""
