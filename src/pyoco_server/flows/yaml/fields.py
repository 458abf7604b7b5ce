"""Checked access to the keys of a mapping in a flow.yaml: only known keys, each with a value of its kind.

Every error has the place in the file and the remedy. A key without a value (null) counts as not given, as in pyoco.
"""

from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence as AnySequence
from enum import StrEnum
from typing import Any, TypeVar

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.options import LARGEST, Choice, Number, Option, Seconds, Truth, Whole
from pyoco_server.flows.positions import instead_of, shown
from pyoco_server.flows.yaml.reader import Mapping, MappingEntry, Node, Scalar, Sequence, plain

_E = TypeVar("_E", bound=StrEnum)


def kind(node: Node) -> str:
    """Return in words what a node is."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar():  # last of a closed set
            value = node.value
            if value is None:
                return "empty"
            return {bool: "true/false", str: "text"}.get(type(value), "a number")


def wrong(node: Node, what: str, wanted: str, remedy: str) -> FlowSyntaxError:
    """Return the error for a value of the wrong kind."""
    return FlowSyntaxError(*node.mark, f"{what} must be {wanted}, but is {kind(node)}", remedy)


def is_nothing(node: Node) -> bool:
    """Was the key written without a value?"""
    return isinstance(node, Scalar) and node.value is None


def text_node(
    node: Node, what: str, remedy: str = "write text; put it in quotes if it looks like something else"
) -> Scalar:
    """Return the node, which must be a text that is not empty."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise wrong(node, what, "text", remedy)
    if not node.value.strip():
        raise FlowSyntaxError(*node.mark, f"{what} is empty", "write something, or remove the key")
    return node


def text_of(node: Node, what: str) -> str:
    """Return a text that is not empty."""
    return str(text_node(node, what).value)


def number_of(node: Node, what: str, least: float, most: float) -> float:
    """Return a number from ``least`` to ``most``; true and false are refused."""
    remedy = f"write a number from {least:.0f} to {most:.0f}, without quotes"
    if not isinstance(node, Scalar) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise wrong(node, what, "a number", remedy)
    if not least <= node.value <= most:
        raise FlowSyntaxError(*node.mark, f"{what} is too {'small' if node.value < least else 'large'}", remedy)
    return float(node.value)


def _blank_missing(text: str, known: AnySequence[str]) -> str | None:
    """Return the remedy if a key lacks the blank after its colon, or has a character that only looks like a blank."""
    key, colon, _ = text.partition(":")
    if colon and key in known:
        return f"write a blank after the colon: {key}: …"
    if any(character.isspace() and character not in " \t\n" for character in text[:60]):
        return "there is a blank in it that is none to YAML; type it again with the space bar"
    return None


class Fields:
    """A mapping with its name in messages; the constructor refuses unknown keys."""

    def __init__(
        self, node: Node, what: str, known: AnySequence[str], hints: AnyMapping[str, str] | None = None
    ) -> None:
        if not isinstance(node, Mapping):
            written = str(node.value) if isinstance(node, Scalar) else ""
            remedy = _blank_missing(written, known) or f"write keys and values: {{ {known[0]}: … }}"
            raise wrong(node, what, "a mapping", remedy)
        for key, entry in node.entries.items():
            if key not in known:
                remedy = (hints or {}).get(key) or _blank_missing(key, known) or instead_of(key, known)
                raise FlowSyntaxError(*entry.key_mark, f"{what} has no key {shown(key)}", remedy)
        self._entries = node.entries
        self._what = what
        self.mark = node.mark

    def entry(self, key: str) -> MappingEntry | None:
        """Return the key and its value, or None if it has no value."""
        found = self._entries.get(key)
        return None if found is None or is_nothing(found.node) else found

    def node(self, key: str) -> Node | None:
        """Return the value of a key, or None."""
        found = self.entry(key)
        return found.node if found else None

    def written(self, key: str) -> MappingEntry | None:
        """Return the key and its value, also if the value is null."""
        return self._entries.get(key)

    def name(self, key: str) -> str:
        """Return the name of a key in messages."""
        return f"{self._what}: '{key}'"

    def text(self, key: str) -> str | None:
        """Return a text that is not empty."""
        node = self.node(key)
        return None if node is None else text_of(node, self.name(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            raise wrong(node, self.name(key), "a list of texts", "write [one, two]")
        return tuple(text_of(item, f"{self.name(key)}, item {number}") for number, item in enumerate(node.items, 1))

    def mapping(self, key: str) -> Mapping | None:
        """Return a mapping with any keys."""
        node = self.node(key)
        if node is None or isinstance(node, Mapping):
            return node
        raise wrong(node, self.name(key), "a mapping", "write keys and values: { name: value }")

    def values(self, key: str) -> dict[str, Any]:
        """Return a mapping with any keys and any plain values."""
        node = self.mapping(key)
        return {} if node is None else plain(node)

    def option(self, key: str, option: Option) -> Any:  # noqa: ANN401 as the option's kind has it
        """Return the value of an option in its final type; None if it is not given."""
        match option:
            case Number(least, most):
                return self.number(key, least=least, most=most)
            case Seconds():
                return self.seconds(key)
            case Whole(least):
                return self.integer(key, least=least)
            case Truth():
                return self.truth(key)
            case Choice(words):  # last of a closed set
                return self.choice(key, words)

    def number(self, key: str, *, least: float = 0, most: float = LARGEST) -> float | None:
        """Return a number."""
        node = self.node(key)
        return None if node is None else number_of(node, self.name(key), least, most)

    def seconds(self, key: str) -> float | None:
        """Return a length of time that is not zero."""
        node = self.node(key)
        seconds = self.number(key)
        if node is not None and seconds == 0:
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} is zero", "write more than 0, or remove the key")
        return seconds

    def integer(self, key: str, *, least: int = 0) -> int | None:
        """Return a whole number; ``least`` is 0 or 1."""
        number = self.number(key)
        node = self.node(key)
        if node is None or number is None:
            return None
        if not isinstance(plain(node), int):
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} must be a whole number", f"write {number:.0f}")
        if number < least:
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} is zero", f"write {least} or more")
        return int(number)

    def truth(self, key: str) -> bool | None:
        """Return true or false."""
        node = self.node(key)
        if node is None:
            return None
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            raise wrong(node, self.name(key), "true or false", "write true or false, without quotes")
        return node.value

    def choice(self, key: str, options: type[_E]) -> _E | None:
        """Return one of the words of an enumeration."""
        word = self.text(key)
        node = self.node(key)
        if word is None or node is None:
            return None
        if word not in [*options]:
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} cannot be {shown(word)}", instead_of(word, [*options]))
        return options(word)
