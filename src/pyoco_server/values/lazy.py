"""Values that are there only when they are read: loaded at the first look, or known to be lost.

To load a value may run code of users, which may block or end the process. So the event loop never does it: it works
with the entries as they are (``LazyDict.raw``, ``is_deferred``), and the task that needs a value loads it.

A run's results, parameters and scratch are :class:`LazyDict`: a task that does not read a deferred value is not
disturbed by it. The task executor sends the same classes to child processes.
"""

import copy
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import override

from pyoco_server.values.errors import USER_CODE_ERRORS, ResultLostError, text_of

Load = Callable[[bytes], Any]
"""Loads a pickle."""


def load_pickle(pickled: bytes) -> Any:  # noqa: ANN401 any value
    """Load a pickle as most processes do."""
    return pickle.loads(pickled)  # noqa: S301 signed by a worker


class Deferred(ABC):
    """Stands for a value in a :class:`LazyDict`."""

    @abstractmethod
    def get(self) -> Any:  # noqa: ANN401 any value
        """Return the value, or raise an error that says why there is none."""

    def loaded_by(self, load: Load) -> "Deferred":  # noqa: ARG002 for those that load a pickle
        """The same value, with pickles loaded in another way."""
        return self


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


class LoadableValue(Deferred):
    """A value that is here in a form that must be loaded; loaded once, when it is read."""

    def __init__(self, lost: LostValue) -> None:
        """``lost`` says what the value is, for the case that it cannot be loaded."""
        self.lost = lost
        self._loaded: list[Any] = []
        self._problem: ResultLostError | None = None

    @abstractmethod
    def _load(self) -> Any:  # noqa: ANN401 any value
        """Load the value; may run code of users."""

    @override
    def get(self) -> Any:
        if self._problem is not None:
            raise self._problem
        if not self._loaded:
            try:
                value = self._load()
            except USER_CODE_ERRORS as error:
                lost, reason = self.lost, f"it cannot be loaded here: {type(error).__name__}: {text_of(error)}"
                self._problem = ResultLostError(lost.what, reason, task=lost.task, node_id=lost.node_id)
                raise self._problem from error
            if not self._loaded:  # else another thread was faster: all tasks see one object
                self._loaded = [value]
        return self._loaded[0]

    @property
    def is_loaded(self) -> bool:
        """Was it read? Then a task may have changed the object."""
        return bool(self._loaded)

    @property
    def is_read(self) -> bool:
        """Whether reading it runs no code of users any more: it is loaded, or cannot be."""
        return self.is_loaded or self._problem is not None

    @override
    def __repr__(self) -> str:
        return f"<{self.lost.what}, not loaded yet>"


class PickledValue(LoadableValue):
    """A value whose pickle is here and is known to be genuine."""

    def __init__(self, data: bytes, lost: LostValue, load: Load = load_pickle) -> None:
        """``load`` loads the pickle."""
        super().__init__(lost)
        self.data = data
        self._load_pickle = load

    @override
    def _load(self) -> Any:
        return self._load_pickle(self.data)

    @override
    def loaded_by(self, load: Load) -> "PickledValue":
        return self if load is self._load_pickle else PickledValue(self.data, self.lost, load)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return PickledValue, (self.data, self.lost)


class PartOfValue(Deferred):
    """An attribute or entry, any number of levels inside a value, that needs code of users to be found."""

    def __init__(self, value: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401 any value
        self.value = value
        self.path = path

    @override
    def get(self) -> Any:
        found = value_of(self.value)
        for name in self.path:
            found = found[name] if isinstance(found, dict) else getattr(found, name)
        return found

    @override
    def loaded_by(self, load: Load) -> "PartOfValue":
        return PartOfValue(self.value.loaded_by(load) if is_deferred(self.value) else self.value, self.path)


def is_deferred(value: Any) -> bool:  # noqa: ANN401 any value
    """Is it a deferred value? Runs no code of users, as ``isinstance`` does for an object with a ``__class__``."""
    return issubclass(type(value), Deferred)


def value_of(value: Any) -> Any:  # noqa: ANN401 any value
    """Return the value itself, or what a deferred one stands for."""
    return value.get() if is_deferred(value) else value


def unread_in(values: Mapping[str, Any]) -> Iterator[LoadableValue]:
    """Return the values that must be loaded, in a dictionary and in those inside it."""
    entries = values.raw() if type(values) is LazyDict else values
    for value in entries.values():
        if type(value) is LazyDict:
            yield from unread_in(value)
        elif issubclass(type(value), LoadableValue) and not value.is_read:
            yield value


class LazyDict(dict[str, Any]):
    """A dictionary that may hold deferred values: their keys are there, reading one loads it or is an error."""

    def raw(self) -> dict[str, Any]:
        """Return the entries as they are: deferred values are not read."""
        return {key: super(LazyDict, self).__getitem__(key) for key in self}

    def entry(self, key: str) -> Any:  # noqa: ANN401 any value
        """Return one entry as it is: a deferred value is not read."""
        return super().__getitem__(key)

    @override
    def __getitem__(self, key: str) -> Any:
        return value_of(super().__getitem__(key))

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
