"""Checked access to the keys of a mapping in a flow.yaml: known keys only, each of the kind it must be.

A key without a value (null) counts as not given, as it does in pyoco.
"""

from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence as AnySequence
from enum import StrEnum
from typing import Any, TypeVar

from pyoco_server.flows.errors import FlowSyntaxError
from pyoco_server.flows.option_checks import LARGEST
from pyoco_server.flows.positions import instead_of, shown
from pyoco_server.flows.yaml_reader import Entry, Mapping, Node, Scalar, Sequence, plain

"""No number in a flow.yaml that steers something (seconds, retries) may be larger: 31 years are enough."""

_E = TypeVar("_E", bound=StrEnum)


def kind(node: Node) -> str:
    """What a node is, in words."""
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
    """What to say of a value of the wrong kind."""
    return FlowSyntaxError(*node.mark, f"{what} must be {wanted}, but is {kind(node)}", remedy)


def is_nothing(node: Node) -> bool:
    """Whether a key was written without a value."""
    return isinstance(node, Scalar) and node.value is None


def text_node(
    node: Node, what: str, remedy: str = "write text; put it in quotes if it looks like something else"
) -> Scalar:
    """A node that holds a text that is not empty."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise wrong(node, what, "text", remedy)
    if not node.value.strip():
        raise FlowSyntaxError(*node.mark, f"{what} is empty", "write something, or remove the key")
    return node


def text_of(node: Node, what: str) -> str:
    """A text that is not empty."""
    return str(text_node(node, what).value)


def number_of(node: Node, what: str, least: float, most: float) -> float:
    """A number between two others; true and false are none."""
    remedy = f"write a number from {least:.0f} to {most:.0f}, without quotes"
    if not isinstance(node, Scalar) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise wrong(node, what, "a number", remedy)
    if not least <= node.value <= most:
        raise FlowSyntaxError(*node.mark, f"{what} is too {'small' if node.value < least else 'large'}", remedy)
    return float(node.value)


def _blank_missing(text: str, known: AnySequence[str]) -> str | None:
    """What to say if a key was meant, but a blank is missing, or is one of those that only look like one."""
    key, colon, _ = text.partition(":")
    if colon and key in known:
        return f"write a blank after the colon: {key}: …"
    if any(character.isspace() and character not in " \t\n" for character in text[:60]):
        return "there is a blank in it that is none to YAML; type it again with the space bar"
    return None


class Fields:
    """A mapping and what it is called in messages; made only if all its keys are known."""

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

    def entry(self, key: str) -> Entry | None:
        """The key and its value, if it was given one."""
        found = self._entries.get(key)
        return None if found is None or is_nothing(found.node) else found

    def node(self, key: str) -> Node | None:
        """The value of a key, if it has one."""
        found = self.entry(key)
        return found.node if found else None

    def written(self, key: str) -> Entry | None:
        """The key and its value, also when the value is null."""
        return self._entries.get(key)

    def name(self, key: str) -> str:
        """How messages speak of a key."""
        return f"{self._what}: '{key}'"

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        node = self.node(key)
        return None if node is None else text_of(node, self.name(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Sequence):
            raise wrong(node, self.name(key), "a list of texts", "write [one, two]")
        return tuple(text_of(item, f"{self.name(key)}, item {number}") for number, item in enumerate(node.items, 1))

    def mapping(self, key: str) -> Mapping | None:
        """A mapping with any keys."""
        node = self.node(key)
        if node is None or isinstance(node, Mapping):
            return node
        raise wrong(node, self.name(key), "a mapping", "write keys and values: { name: value }")

    def values(self, key: str) -> dict[str, Any]:
        """A mapping with any keys and any plain values."""
        node = self.mapping(key)
        return {} if node is None else plain(node)

    def number(self, key: str, *, least: float = 0, most: float = LARGEST) -> float | None:
        """A number."""
        node = self.node(key)
        return None if node is None else number_of(node, self.name(key), least, most)

    def seconds(self, key: str) -> float | None:
        """A length of time that is not zero."""
        node = self.node(key)
        seconds = self.number(key)
        if node is not None and seconds == 0:
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} is zero", "write more than 0, or remove the key")
        return seconds

    def integer(self, key: str) -> int | None:
        """A whole number."""
        number = self.number(key)
        node = self.node(key)
        if node is None or number is None:
            return None
        if not isinstance(plain(node), int):
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} must be a whole number", f"write {number:.0f}")
        return int(number)

    def truth(self, key: str) -> bool | None:
        """True or false."""
        node = self.node(key)
        if node is None:
            return None
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            raise wrong(node, self.name(key), "true or false", "write true or false, without quotes")
        return node.value

    def choice(self, key: str, options: type[_E]) -> _E | None:
        """One of a few words."""
        word = self.text(key)
        node = self.node(key)
        if word is None or node is None:
            return None
        if word not in [*options]:
            raise FlowSyntaxError(*node.mark, f"{self.name(key)} cannot be {shown(word)}", instead_of(word, [*options]))
        return options(word)
