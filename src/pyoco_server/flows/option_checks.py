"""Checks of options that are given in Python; flow.yaml has checks of its own, which know the place in the file.

Each returns the value in its final type, or raises FlowError, which names the option, the value and the remedy.
"""

from enum import StrEnum
from typing import Any, Final, TypeVar

from pyoco_server.flows.errors import FlowError

_E = TypeVar("_E", bound=StrEnum)
LARGEST: Final = 1_000_000_000
"""Of any number in an option, here and in flow.yaml."""


def number(name: str, value: Any, *, least: float = 0, most: float = LARGEST) -> float:  # noqa: ANN401 checked here
    """A finite number from ``least`` to ``most``; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise FlowError(f"{name} cannot be {value!r:.80}: give a number from {least:g} to {most:g}")
    return float(value)


def seconds(name: str, value: Any, *, most: float = LARGEST) -> float:  # noqa: ANN401 checked here
    """A length of time that is more than 0."""
    checked = number(name, value, most=most)
    if checked == 0:
        raise FlowError(f"{name} cannot be 0: give more than 0 seconds, or leave it out")
    return checked


def whole(name: str, value: Any, *, least: int = 0) -> int:  # noqa: ANN401 checked here
    """A whole number that is not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise FlowError(f"{name} cannot be {value!r:.80}: give a whole number, {least} or more")
    return value


def truth(name: str, value: Any) -> bool:  # noqa: ANN401 checked here
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise FlowError(f"{name} cannot be {value!r:.80}: give True or False")
    return value


def choice(name: str, value: Any, kind: type[_E]) -> _E:  # noqa: ANN401 checked here
    """One of a few words, given as such or as a text."""
    if isinstance(value, str) and value in set(kind):
        return kind(value)
    words = ", ".join(f"'{word.value}'" for word in kind)
    raise FlowError(f"{name} cannot be {value!r:.80}: give one of {words}")


def text(name: str, value: Any) -> str:  # noqa: ANN401 checked here
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise FlowError(f"{name} cannot be {value!r:.80}: give a text that is not empty")
    return value
