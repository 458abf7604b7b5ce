"""How a task's function is called: its arguments, as pyoco binds them, for every kind of callable there is.

pyoco passes everything by keyword. So do we wherever that works; what takes its arguments by position only gets them by
position. Looking at a signature costs more than many a call, so what was found is kept as long as the function lives.
"""

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final, NamedTuple

from pyoco_server.app.runtime.context import TaskContext
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import TaskSpec
from pyoco_server.values.errors import ResultLostError, lost_behind

Function = Callable[..., Any]
_CONTEXT: Final = "ctx"


class UnfitFunctionError(PyocoServerError, TypeError):
    """The function, or what it is to be given, does not fit a task; says what to change."""


class Shape(NamedTuple):
    """What a function takes and what calling it leads to."""

    names: tuple[str, ...]
    """The parameters that are looked up among the run's parameters and results if no input says what they are."""
    wants_context: bool
    by_position: tuple[inspect.Parameter, ...]
    """Those that cannot be given by keyword, in order; with ``*args``, all that stand before it too."""
    rest: str | None
    """The name of ``*args``, if there is one."""
    is_async: bool
    """Does calling it make a coroutine?"""
    is_async_generator: bool


def arguments(task: TaskSpec, function: Function, context: TaskContext) -> dict[str, Any]:
    """Bind the function's arguments by name: declared inputs, ``ctx``, then parameters and results of the same name.

    A function without a signature, as some builtins are, gets the declared inputs only.
    """
    bound = {name: context.resolve(value) for name, value in task.inputs.items()}
    shape = shape_of(function)
    if shape.wants_context:
        bound[_CONTEXT] = context
    for name in shape.names:
        if name in bound:
            continue
        if name in context.params:
            bound[name] = context.params[name]
        elif name in context.results:
            bound[name] = context.results[name]
    return bound


def lost_arguments(task: TaskSpec, function: Function, context: TaskContext) -> Iterator[ResultLostError]:
    """Yield the error of each argument that cannot be bound since a result is lost."""
    names = [name for name in shape_of(function).names if name not in task.inputs and name not in context.params]
    reads = [functools.partial(context.resolve, value) for value in task.inputs.values()]
    reads += [functools.partial(context.results.get, name) for name in names]
    for read in reads:
        try:
            read()
        except Exception as error:  # noqa: BLE001 whatever else is wrong with it, the attempt meets it and reports it
            lost = lost_behind(error)
            if lost is not None:
                yield lost


def by_position(function: Function, bound: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Part what must be given by position from what is given by keyword."""
    shape = shape_of(function)
    if not shape.by_position and shape.rest is None:
        return (), bound
    named = dict(bound)
    rest = _rest_of(function, shape, named)
    args: list[Any] = []
    for parameter in _needed(shape, named, has_rest=bool(rest)):
        if parameter.name in named:
            args.append(named.pop(parameter.name))
        elif parameter.default is not inspect.Parameter.empty:
            args.append(parameter.default)
        else:
            raise UnfitFunctionError(f"{_name(function)} needs '{parameter.name}': declare it under the task's inputs")
    return (*args, *rest), named


def refuse_unfit(task: TaskSpec, function: Function) -> None:
    """Raise ``UnfitFunctionError`` for what can be called but never leads to a result."""
    if shape_of(function).is_async_generator:
        raise UnfitFunctionError(
            f"task '{task.name}': {_name(function)} is an async generator, which yields and does not return; "
            "make it an 'async def' without 'yield' that returns a list of what it has to give"
        )


def is_async(function: Function) -> bool:
    """Does calling the function make a coroutine? Cheap for one made for a single call."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    known = _known.get(id(function))
    if known is not None and known[0]() is function:
        return known[1].is_async
    return inspect.iscoroutinefunction(_what_runs(function))


def shape_of(function: Function) -> Shape:
    """What is known of the function; looked at once, as long as it lives."""
    key = id(function)  # not the function itself: an object with a __call__ may have an __eq__ and no hash
    known = _known.get(key)
    if known is not None and known[0]() is function:
        return known[1]
    shape = _look_at(function)
    try:
        _known[key] = (weakref.ref(function, lambda _: _known.pop(key, None)), shape)
    except TypeError:  # an object that cannot be referred to weakly is looked at again each time
        return shape
    return shape


_known: dict[int, tuple[weakref.ref[Function], Shape]] = {}


def _look_at(function: Function) -> Shape:
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        parameters = {}
    kinds = {parameter.kind: name for name, parameter in parameters.items()}
    rest = kinds.get(inspect.Parameter.VAR_POSITIONAL)
    positional = {inspect.Parameter.POSITIONAL_ONLY} | (
        {inspect.Parameter.POSITIONAL_OR_KEYWORD} if rest is not None else set()
    )
    code = _what_runs(function)
    return Shape(
        names=tuple(name for name in parameters if name not in {_CONTEXT, rest}),
        wants_context=_CONTEXT in parameters and rest != _CONTEXT,
        by_position=tuple(one for one in parameters.values() if one.kind in positional),
        rest=rest,
        is_async=inspect.iscoroutinefunction(code),
        is_async_generator=inspect.isasyncgenfunction(code),
    )


def _what_runs(function: Any) -> Any:  # noqa: ANN401 any callable
    """The function whose code a call runs: behind ``partial``, and the ``__call__`` of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__


def _rest_of(function: Function, shape: Shape, named: dict[str, Any]) -> tuple[Any, ...]:
    """What the inputs give for ``*args``, taken out of the names."""
    if shape.rest is None or shape.rest not in named:
        return ()
    rest = named.pop(shape.rest)
    if not isinstance(rest, list | tuple):
        raise UnfitFunctionError(
            f"{_name(function)} takes '*{shape.rest}': give it a list, not a {type(rest).__name__}"
        )
    return tuple(rest)


def _needed(shape: Shape, named: Mapping[str, Any], *, has_rest: bool) -> list[inspect.Parameter]:
    """Those that are given by position: as many as must be so that the last one given finds its place."""
    if has_rest:
        return list(shape.by_position)
    only = [one for one in shape.by_position if one.kind is inspect.Parameter.POSITIONAL_ONLY]
    while only and only[-1].name not in named and only[-1].default is not inspect.Parameter.empty:
        only.pop()
    return only


def _name(function: Function) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
