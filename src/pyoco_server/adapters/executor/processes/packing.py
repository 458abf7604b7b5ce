"""Pickle a call for the child and its result for the parent, or refuse with a reason and a remedy."""

import functools
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyoco.core.models import Task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.adapters.executor.errors import NotPicklableError
from pyoco_server.adapters.executor.processes.child import load
from pyoco_server.adapters.executor.processes.main_module import ALIAS, MainModule, describe_main, import_main
from pyoco_server.app.runtime.argument_loading import LoadingCall
from pyoco_server.app.runtime.start_fence import DeadlineCall

_MOVE = "Define the function at the top level of a module and pass that."
_PLAIN_ARGUMENT = "Pass plain data (numbers, text, lists, dicts, dataclasses) and build the rest inside the function."
_PLAIN_RESULT = "Return plain data (numbers, text, lists, dicts, dataclasses), or write a file and return its name."
_GUARD = (
    "The child imports the module again: it must be importable by its name, and a script must keep what it starts "
    "under: if __name__ == '__main__'."
)


def pack_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Pickle a call. Raises ``NotPicklableError``, which names the function or the argument that cannot travel."""
    _check_importable(function)
    try:
        packed_function = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise NotPicklableError(f"the function {_name(function)}", _reason(error), _MOVE) from error
    try:
        packed_arguments = pickle.dumps((tuple(args), dict(kwargs)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        what = _culprit(function, args, kwargs)
        raise NotPicklableError(what, _reason(error), _PLAIN_ARGUMENT) from error
    return packed_function + packed_arguments


def refused(what: str, reason: str) -> NotPicklableError:
    """Return the error for what the child could not load or pickle."""
    return NotPicklableError(what, reason, _PLAIN_RESULT if what.startswith("the result") else _GUARD)


def load_result(payload: bytes) -> Any:  # noqa: ANN401 (a result can be anything)
    """Load the result of a call. Raises ``NotPicklableError`` if this process cannot."""
    try:
        return pickle.loads(payload)  # noqa: S301 (from our own child)
    except Exception as error:
        raise NotPicklableError("the result", _reason(error), _PLAIN_RESULT) from error


def _check_importable(function: Callable[..., Any]) -> None:
    """Refuse a function that another process cannot find by its name, with a reason that fits the case."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    path: str = getattr(inner, "__qualname__", "")
    module: str = getattr(inner, "__module__", None) or ""
    if path.endswith("<lambda>"):
        raise NotPicklableError(f"the function {_name(inner)}", "it is a lambda", _MOVE)
    if "<locals>" in path:
        raise NotPicklableError(f"the function {_name(inner)}", "it is defined inside another function", _MOVE)
    is_main = module in ("__main__", ALIAS)
    if is_main and describe_main() is None:
        reason = "it is defined at a prompt, on stdin or with -c, where no other process can import it"
        raise NotPicklableError(f"the function {_name(inner)}", reason, _MOVE)
    loaded = sys.modules.get(module)
    if loaded is not None and not is_main and getattr(loaded, "__spec__", None) is None:
        reason = f"its module {module!r} was made at run time and cannot be imported"
        raise NotPicklableError(f"the function {_name(inner)}", reason, _MOVE)


def _culprit(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    names = _parameter_names(function)
    for index, value in enumerate(args):
        if not _is_picklable(value):
            name = f"argument {names[index]!r}" if index < len(names) else f"positional argument {index + 1}"
            return f"{name}, a {type(value).__qualname__}"
    for key, value in kwargs.items():
        if not _is_picklable(value):
            return f"argument {key!r}, a {type(value).__qualname__}"
    return "the arguments"


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def _is_picklable(value: object) -> bool:
    try:
        pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 (pickling runs the user's code, which may raise anything; the answer is no)
        return False
    return True


def _name(function: object) -> str:
    path = getattr(function, "__qualname__", None)
    return f"{getattr(function, '__module__', '?')}.{path}" if path else repr(function)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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


class LoadingCallInChild(LoadingCall):
    """Loads pickles as a child does, which imports the main module only when something from it is needed."""

    load = staticmethod(load)


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, or a reference to it if a task's wrapper has taken its name."""
    if isinstance(function, DeadlineCall):
        return DeadlineCall.make(sendable(function.func), function.deadline)
    if isinstance(function, LoadingCall):
        return LoadingCallInChild(sendable(function.func))
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    there = getattr(sys.modules.get(module), name, None)
    if there is function or _unwrapped(there) is not function:
        return function
    return TaskReference(module, name, describe_main() if module == "__main__" else None)


def _unwrapped(found: Any) -> Any:  # noqa: ANN401 anything a module holds
    task = getattr(found, "task", found)
    return task.func if isinstance(task, Task) else found
