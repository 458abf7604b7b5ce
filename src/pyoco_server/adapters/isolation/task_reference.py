"""A task's function on its way to another process.

``@task`` puts a wrapper where the function was, so the function cannot be found by its name as pickling wants it. What
is sent instead says where the wrapper is, and the function is taken out of it over there.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.adapters.isolation.main_module import ALIAS, MainModule, describe_main, import_main
from pyoco_server.app.fencing import InTime


class TaskReference:
    """Calls the function of a task, found by the name of its wrapper."""

    def __init__(self, module: str, name: str, main: MainModule | None) -> None:
        self._module = module
        self._name = name
        self._main = main

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 whatever the function takes and returns
        """Find the function and call it."""
        if self._module in ("__main__", ALIAS):
            import_main(self._main)
        function = _unwrapped(getattr(importlib.import_module(self._module), self._name))
        return function(*args, **kwargs)


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or a reference to it if a task's wrapper stands in its place."""
    if isinstance(function, InTime):
        return InTime.make(sendable(function.func), function.deadline)
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    there = getattr(sys.modules.get(module), name, None)
    if there is function or _unwrapped(there) is not function:
        return function
    return TaskReference(module, name, describe_main() if module == "__main__" else None)


def _unwrapped(found: Any) -> Any:  # noqa: ANN401 anything a module holds
    task = getattr(found, "task", found)
    return task.func if isinstance(task, Task) else found
