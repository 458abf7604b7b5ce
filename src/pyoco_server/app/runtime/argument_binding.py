"""How a task's function is called: its arguments, as pyoco binds them, for every kind of callable there is.

pyoco passes everything by keyword. So do we wherever that works; what takes its arguments by position only gets them by
position. Looking at a signature costs more than many a call, so what was found is kept as long as the function lives.
"""

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, NamedTuple

from pyoco_server.app.runtime.argument_loading import BoundArguments, RestOfArguments, UnfitFunctionError, as_rest
from pyoco_server.app.runtime.context import TaskContext
from pyoco_server.flows.model import TaskSpec
from pyoco_server.values.lazy import LazyDict, LostValue, PartOfValue, is_deferred

Function = Callable[..., Any]
_CONTEXT: Final = "ctx"


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

    A function without a signature, as some builtins are, gets the declared inputs only. Deferred values are bound as
    they are: :class:`LoadingCall` reads them where the function is called. ResultLostError if one is lost.
    """
    bound = {name: _input(value, context) for name, value in task.inputs.items()}
    shape = shape_of(function)
    if shape.wants_context:
        bound[_CONTEXT] = context
    for name in shape.names:
        if name not in bound and name in context.params:
            bound[name] = _entry(context.params, name)
        elif name not in bound and name in context.results:
            bound[name] = _entry(context.results, name)
    for value in bound.values():
        if type(value) is LostValue:
            value.get()
    return bound


def lost_arguments(task: TaskSpec, function: Function, context: TaskContext) -> list[LostValue]:
    """Return the lost values among the arguments; reads no value."""
    names = [name for name in shape_of(function).names if name not in task.inputs and name not in context.params]
    found = [_entry(context.results, name) for name in names if name in context.results]
    for value in task.inputs.values():
        referred = _referred(value, context)
        if referred is not None:
            found.append(_entry(*referred[:2]))
    return [value for value in found if type(value) is LostValue]


def _entry(values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 any value
    """An entry of the run's results or parameters; a deferred one is not read."""
    return values.entry(name) if type(values) is LazyDict else values[name]


def _referred(value: object, context: TaskContext) -> tuple[Mapping[str, Any], str, list[str]] | None:
    """The dictionary, the key in it and the path inside that entry, which a declared input refers to."""
    if not isinstance(value, str):
        return None
    match value.split("."):
        case ["$node", name, "output", *path] if name in context.results:
            return context.results, name, path
        case ["$ctx", "params", *names] if ".".join(names) in context.params:
            return context.params, ".".join(names), []
        case _:
            return None


def _input(value: object, context: TaskContext) -> Any:  # noqa: ANN401 any value
    """Resolve a declared input as pyoco does; what needs code of users is left for the call."""
    referred = _referred(value, context)
    if referred is None:
        return context.resolve(value)
    values, name, path = referred
    found = _entry(values, name)
    while path and type(found) in _PLAIN:
        name = path.pop(0)
        found = _entry(found, name) if isinstance(found, dict) else getattr(found, name)
    return PartOfValue(found, tuple(path)) if path and type(found) is not LostValue else found


_PLAIN: Final = frozenset({dict, LazyDict, list, tuple, str, int, float, bool, type(None)})
"""What has no code of users."""


def by_position(function: Function, bound: dict[str, Any]) -> BoundArguments:
    """Separate the arguments that must be given by position from those given by keyword."""
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
    if is_deferred(rest):
        return (RestOfArguments(rest, _name(function), shape.rest),)
    return as_rest(rest, _name(function), shape.rest)


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
