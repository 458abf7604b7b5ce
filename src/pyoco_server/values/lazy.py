"""Values that are there only when they are read: loaded at the first look, or known to be lost.

A run's results, parameters and scratch are :class:`LazyDict`: a task that does not read a deferred value is not
disturbed by it. The isolation adapter sends the same classes to child processes.
"""

import copy
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import override

from pyoco_server.values.errors import ResultLostError

Load = Callable[[bytes], Any]
"""Loads a pickle."""


class Deferred(ABC):
    """Stands for a value in a :class:`LazyDict`."""

    @abstractmethod
    def get(self) -> Any:  # noqa: ANN401 any value
        """Return the value, or raise an error that says why there is none."""


class LostValue(Deferred):
    """A value that no longer exists, or that cannot be had in this process."""

    def __init__(self, what: str, reason: str, *, task: str | None = None, node_id: str | None = None) -> None:
        self.what = what
        self.reason = reason
        self.task = task
        self.node_id = node_id

    @override
    def get(self) -> Any:
        raise ResultLostError(self.what, self.reason, task=self.task, node_id=self.node_id)

    @override
    def __repr__(self) -> str:
        return f"<{self.what}, lost>"


class PickledValue(Deferred):
    """A value whose pickle is here and is known to be genuine; loaded once, when it is read."""

    def __init__(self, data: bytes, lost: LostValue, load: Load = pickle.loads) -> None:
        """``lost`` says what the value is, for the case that it cannot be loaded."""
        self.data = data
        self.lost = lost
        self._load = load
        self._loaded: list[Any] = []

    @override
    def get(self) -> Any:
        if not self._loaded:
            try:
                self._loaded = [self._load(self.data)]
            except Exception as error:
                lost, reason = self.lost, f"it cannot be loaded here: {type(error).__name__}: {error}"
                raise ResultLostError(lost.what, reason, task=lost.task, node_id=lost.node_id) from error
        return self._loaded[0]

    @property
    def is_loaded(self) -> bool:
        """Was it read? Then a task may have changed the object."""
        return bool(self._loaded)

    def loaded_by(self, load: Load) -> "PickledValue":
        """The same value, loaded in another way."""
        return PickledValue(self.data, self.lost, load)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return PickledValue, (self.data, self.lost)

    @override
    def __repr__(self) -> str:
        return f"<{self.lost.what}, not loaded yet>"


def value_of(value: Any) -> Any:  # noqa: ANN401 any value
    """Return the value itself, or what a deferred one stands for."""
    return value.get() if isinstance(value, Deferred) else value


class LazyDict(dict[str, Any]):
    """A dictionary that may hold deferred values: their keys are there, reading one loads it or is an error."""

    def raw(self) -> dict[str, Any]:
        """Return the entries as they are: deferred values are not read."""
        return {key: super(LazyDict, self).__getitem__(key) for key in self}

    @override
    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return value.get() if isinstance(value, Deferred) else value

    @override
    def __iter__(self) -> Iterator[str]:  # with an __iter__ of ours, dict() and ** ask for the values one by one
        return super().__iter__()

    @override
    def get(self, key: str, default: Any = None) -> Any:
        return value_of(super().get(key, default))

    @override
    def pop(self, key: str, *default: Any) -> Any:
        return value_of(super().pop(key, *default))

    @override
    def popitem(self) -> tuple[str, Any]:
        key, value = super().popitem()
        return key, value_of(value)

    @override
    def setdefault(self, key: str, default: Any = None) -> Any:
        return value_of(super().setdefault(key, default))

    @override
    def values(self) -> Any:  # a dictionary's own view, whose type has no public name
        return self._whole().values()

    @override
    def items(self) -> Any:
        return self._whole().items()

    @override
    def copy(self) -> dict[str, Any]:
        return LazyDict(super().items())

    @override
    def __eq__(self, other: object) -> bool:
        return self._whole() == (other._whole() if isinstance(other, LazyDict) else other)

    __hash__ = None  # as dict

    @override
    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return self._whole() | dict(other)

    @override
    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return dict(other) | self._whole()

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return LazyDict, (self.raw(),)

    @override
    def __reduce_ex__(self, protocol: Any, /) -> tuple[Any, ...]:
        return self.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> "LazyDict":
        return LazyDict({key: copy.deepcopy(value, memo) for key, value in self.raw().items()})

    def _whole(self) -> dict[str, Any]:
        """The entries, read: a plain view where nothing is deferred."""
        return {key: self[key] for key in self}
