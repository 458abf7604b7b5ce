"""A call on its way to the child: pickled, or refused with a reason and a remedy."""

import functools
import inspect
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyoco_server.adapters.isolation.errors import NotPicklableError
from pyoco_server.adapters.isolation.main_module import ALIAS, describe_main

_MOVE = "Define the function at the top level of a module and pass that."
_PLAIN_ARGUMENT = "Pass plain data (numbers, text, lists, dicts, dataclasses) and build the rest inside the function."
_PLAIN_RESULT = "Return plain data (numbers, text, lists, dicts, dataclasses), or write a file and return its name."
_GUARD = (
    "The child imports the module anew: it must be importable by its name, and a script must keep what it starts "
    "under: if __name__ == '__main__'."
)


def pack_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The payload of a call. Raises ``NotPicklableError`` naming the function or the argument that cannot travel."""
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
    """The error for what the child could not load or pickle."""
    return NotPicklableError(what, reason, _PLAIN_RESULT if what.startswith("the result") else _GUARD)


def load_result(payload: bytes) -> Any:  # noqa: ANN401 (a result can be anything)
    """The result of a call. Raises ``NotPicklableError`` if it cannot be loaded in this process."""
    try:
        return pickle.loads(payload)  # noqa: S301 (from our own child)
    except Exception as error:
        raise NotPicklableError("the result", _reason(error), _PLAIN_RESULT) from error


def _check_importable(function: Callable[..., Any]) -> None:
    """Refuse what is known not to be found by its name in another process, with the words that fit the case."""
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
    except (TypeError, ValueError):  # a builtin that does not tell
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
