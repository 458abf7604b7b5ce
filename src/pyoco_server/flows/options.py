"""The kinds of option that a task, a backoff or a wait can have, and how a value given in Python is checked.

``model.TASK_OPTIONS`` and ``model.BACKOFF_OPTIONS`` are the tables of all options; ``authoring`` (Python) and
``yaml.tasks`` (flow.yaml) both read them. A value in a flow.yaml is checked by ``yaml.fields`` by the same limits, with
the place in the file in its errors.

Each check returns the value in its final type, or raises FlowError, which names the option, the value and the remedy.
"""

from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from pyoco_server.flows.errors import FlowError

LARGEST: Final = 1_000_000_000
"""The limit of every number in an option, in seconds 31 years."""


class Number(msgspec.Struct, frozen=True):
    """A number from ``least`` to ``most``."""

    least: float = 0
    most: float = LARGEST

    def checked(self, name: str, value: Any) -> float:  # noqa: ANN401 checked here
        """Return the number; FlowError otherwise."""
        return number(name, value, least=self.least, most=self.most)


class Seconds(msgspec.Struct, frozen=True):
    """A length of time that is more than 0."""

    def checked(self, name: str, value: Any) -> float:  # noqa: ANN401 checked here
        """Return the seconds; FlowError otherwise."""
        return seconds(name, value)


class Whole(msgspec.Struct, frozen=True):
    """A whole number that is not below ``least``."""

    least: int = 0

    def checked(self, name: str, value: Any) -> int:  # noqa: ANN401 checked here
        """Return the number; FlowError otherwise."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= LARGEST:
            raise FlowError(f"{name} cannot be {value!r:.80}: give a whole number, {self.least} or more")
        return value


class Truth(msgspec.Struct, frozen=True):
    """True or False."""

    def checked(self, name: str, value: Any) -> bool:  # noqa: ANN401 checked here
        """Return the value; FlowError for anything else, also if it only counts as true or false."""
        if not isinstance(value, bool):
            raise FlowError(f"{name} cannot be {value!r:.80}: give True or False")
        return value


class Choice(msgspec.Struct, frozen=True):
    """One of the words of an enumeration, given as its member or as a text."""

    words: type[StrEnum]

    def checked(self, name: str, value: Any) -> StrEnum:  # noqa: ANN401 checked here
        """Return the member; FlowError otherwise."""
        if isinstance(value, str) and value in set(self.words):
            return self.words(value)
        words = ", ".join(f"'{word.value}'" for word in self.words)
        raise FlowError(f"{name} cannot be {value!r:.80}: give one of {words}")


Option: TypeAlias = Number | Seconds | Whole | Truth | Choice


def number(name: str, value: Any, *, least: float = 0, most: float = LARGEST) -> float:  # noqa: ANN401 checked here
    """Return a finite number from ``least`` to ``most``; True and False are refused."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise FlowError(f"{name} cannot be {value!r:.80}: give a number from {least:g} to {most:g}")
    return float(value)


def seconds(name: str, value: Any, *, most: float = LARGEST) -> float:  # noqa: ANN401 checked here
    """Return a length of time that is more than 0."""
    checked = number(name, value, most=most)
    if checked == 0:
        raise FlowError(f"{name} cannot be 0: give more than 0 seconds, or leave it out")
    return checked


def text(name: str, value: Any) -> str:  # noqa: ANN401 checked here
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise FlowError(f"{name} cannot be {value!r:.80}: give a text that is not empty")
    return value
