"""Reads deferred arguments of a task where its function is called: in its thread or process, not on the event loop.

To load a value runs code of users, which may block for ever or end the process. A crash while an argument is loaded
counts as a crash of the task that takes it, since its attempt has started in the log.
"""

import contextlib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from pyoco_server.errors import PyocoServerError
from pyoco_server.values.errors import ResultLostError
from pyoco_server.values.lazy import Deferred, Load, LoadableValue, is_deferred, load_pickle

BoundArguments = tuple[tuple[Any, ...], dict[str, Any]]


class UnfitFunctionError(PyocoServerError, TypeError):
    """The function, or what it is to be given, does not fit a task; says what to change."""


class ArgumentLostError(ResultLostError):
    """A result that a task takes as an argument cannot be loaded; its function was not called."""

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _argument_lost, (self.what, self.reason, self.task, self.node_id)


def _argument_lost(what: str, reason: str, task: str | None, node_id: str | None) -> ArgumentLostError:
    return ArgumentLostError(what, reason, task=task, node_id=node_id)


class LoadingCall(functools.partial[Any]):
    """A function whose deferred arguments are read where it is called; it can be sent to another process."""

    load = staticmethod(load_pickle)

    @override
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments, then call the function."""
        args, kwargs = loaded(args, kwargs, self.load)
        return super().__call__(*args, **kwargs)


def loaded(args: tuple[Any, ...], kwargs: Mapping[str, Any], load: Load) -> BoundArguments:
    """Read the deferred values among the arguments; ArgumentLostError for one that cannot be loaded."""

    def read(value: Any) -> Any:  # noqa: ANN401 any argument
        return value.loaded_by(load).get() if is_deferred(value) else value

    try:
        given = [read(value) for value in args]
        named = {name: read(value) for name, value in kwargs.items()}
    except ResultLostError as lost:
        raise ArgumentLostError(lost.what, lost.reason, task=lost.task, node_id=lost.node_id) from lost
    if args and type(args[-1]) is RestOfArguments:
        given[-1:] = given[-1]
    return tuple(given), named


def read_all(values: Iterable[LoadableValue]) -> None:
    """Load values that a coroutine may read; it meets the errors of those that it reads."""
    for value in values:
        with contextlib.suppress(ResultLostError):
            value.get()


class RestOfArguments(Deferred):
    """The last positional argument of a :class:`LoadingCall`: a deferred list, which stands for ``*args``."""

    def __init__(self, value: Deferred, function: str, name: str) -> None:
        self.value = value
        self.function = function
        self.name = name

    @override
    def get(self) -> tuple[Any, ...]:
        return as_rest(self.value.get(), self.function, self.name)

    @override
    def loaded_by(self, load: Load) -> "RestOfArguments":
        return RestOfArguments(self.value.loaded_by(load), self.function, self.name)


def as_rest(value: object, function: str, name: str) -> tuple[Any, ...]:
    """Return what the inputs give for ``*args``; UnfitFunctionError if it is no list."""
    if not isinstance(value, list | tuple):
        raise UnfitFunctionError(f"{function} takes '*{name}': give it a list, not a {type(value).__name__}")
    return tuple(value)
