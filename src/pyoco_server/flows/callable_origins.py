"""Where the code comes from that a call of an object runs.

The name by which an object is reached says nothing: a module has every name that it imported, a bound method hides the
object that it belongs to, ``functools.partial`` hides a function, and a class hides the constructor that it inherits.
"""

import functools
import sys
from collections.abc import Iterator, Mapping
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

import msgspec

_CACHED: Final = type(functools.cache(repr))
_DEEPEST: Final = 32
_SLOTS: Final = (WrapperDescriptorType, MethodDescriptorType, ClassMethodDescriptorType)
_UNKNOWN: Final = "builtins"


class ObjectOrigin(msgspec.Struct, frozen=True):
    """Where one object that takes part in a call was made."""

    found: object
    modules: tuple[str, ...]
    """The module that it names as its own, and the one whose globals its code uses."""
    name: str
    file: str | None = None
    """The file of that code; None for code that is not in a Python file or an extension module."""
    is_wrapper: bool = False
    """Whether it only wraps another object, whose origin is in the list, too; a decorator may come from anywhere."""

    @property
    def shown(self) -> str:
        """The object as a path."""
        return f"'{self.modules[0]}:{self.name}'"


def callable_origins(found: object) -> list[ObjectOrigin]:
    """Return the origins of a callable object and of all functions that a call of it runs first."""
    origins: list[ObjectOrigin] = []
    _follow(found, origins, _DEEPEST)
    return origins


def _follow(found: object, origins: list[ObjectOrigin], depth: int) -> None:
    inner = _wrapped(found)
    if depth == 0:  # wrappers that wrap each other
        origins.append(ObjectOrigin(found, (_UNKNOWN,), type(found).__name__))
    elif inner is not None:
        origins.append(_origin(found, is_wrapper=True))
        _follow(inner[0], origins, depth - 1)
    elif isinstance(found, MethodType):
        _follow(found.__func__, origins, depth - 1)
    elif isinstance(found, type):
        origins.append(_origin(found))
        for part in _constructors(found):
            _follow(part, origins, depth - 1)
    elif isinstance(found, (FunctionType, BuiltinFunctionType, MethodWrapperType, *_SLOTS)):
        origins.append(_origin(found))
    else:
        origins.append(_origin(type(found)))
        _follow(_attribute(type(found), "__call__"), origins, depth - 1)


def _wrapped(found: object) -> tuple[object] | None:
    """Return what a wrapper calls, if the object is one of a known kind; other objects may lie about it."""
    if isinstance(found, functools.partial):
        return (found.func,)
    if isinstance(found, staticmethod | classmethod):
        return (found.__func__,)
    if isinstance(found, (FunctionType, _CACHED)) and "__wrapped__" in vars(found):
        return (vars(found)["__wrapped__"],)
    return None


def _constructors(cls: type) -> Iterator[object]:
    """Yield what a call of a class runs, without what every class has."""
    parts = [_attribute(type(cls), "__call__"), _attribute(cls, "__new__"), _attribute(cls, "__init__")]
    plain = (_attribute(type, "__call__"), _attribute(object, "__new__"), _attribute(object, "__init__"))
    yield from (part for part in parts if not any(part is each for each in plain))


def _attribute(cls: type, name: str) -> Any:  # noqa: ANN401 whatever a class has
    """Return an attribute of a class as it was written, without binding it."""
    return next((vars(each)[name] for each in cls.__mro__ if name in vars(each)), None)


def _origin(found: object, *, is_wrapper: bool = False) -> ObjectOrigin:
    owner = _owner(found)
    name = str(getattr(found, "__qualname__", None) or getattr(found, "__name__", None) or type(found).__name__)
    modules = [str(getattr(owner, "__module__", None) or _UNKNOWN)]
    if isinstance(owner, FunctionType):
        space: Mapping[str, Any] = owner.__globals__
        modules.append(str(space.get("__name__") or _UNKNOWN))
        file = space.get("__file__")
    else:
        file = getattr(sys.modules.get(modules[0]), "__file__", None)
    file = file if isinstance(file, str) else None
    return ObjectOrigin(found, tuple(dict.fromkeys(modules)), name, file, is_wrapper)


def _owner(found: object) -> object:
    """Return the object whose ``__module__`` says where this one was made."""
    if isinstance(found, BuiltinFunctionType | MethodWrapperType):
        held = found.__self__
        return found if held is None or isinstance(held, ModuleType) else held if isinstance(held, type) else type(held)
    if isinstance(found, _SLOTS):
        return found.__objclass__
    if isinstance(found, FunctionType | type):
        return found
    return type(found)
