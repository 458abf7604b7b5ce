"""Reads an untrusted YAML file into plain values, each with its place in the file.

Only what a flow needs is accepted: one document of mappings with text keys, sequences, text, numbers, true/false and
null. Anchors, aliases, tags and merge keys are refused, and so is a file that is too large, too deep or has too many
nodes. The parser's events are read one by one, so that reading a hostile file ends at the first problem; PyYAML's
composer would recurse, and build everything before a limit could be checked.
"""

from typing import Any, TypeAlias

import msgspec
import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import ScalarNode
from yaml.reader import Reader
from yaml.resolver import Resolver

from pyoco_server.flows.errors import FlowSyntaxError, FlowTooLargeError
from pyoco_server.flows.positions import Located, SourceFile, SourcePosition, Span, locate, shown

MAX_BYTES = 262_144
MAX_DEPTH = 32
MAX_NODES = 10_000
MAX_DIGITS = 300

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({"null", "bool", "int", "float", "str"})
_RESOLVER = Resolver()
_CHECK = "check indentation, colons and quotes in this line and above it"
_YAML_REMEDIES = {
    "mapping values are not allowed": (
        "put a text with ': ' in it in quotes, or write '|' and the text on lines of its own; "
        "or does the key above lack its colon?"
    ),
    "could not find expected ':'": "write a colon after the key; indent the lines of a text after '|'",
    "expected key": "indent this line as its neighbours; close quotes and brackets above it",
    "<block end>": "indent this line as its neighbours; close quotes and brackets above it",
}


class Scalar(msgspec.Struct, frozen=True):
    """A single value."""

    value: str | int | float | bool | None
    mark: SourcePosition
    span: Span
    file: SourceFile

    def located(self) -> Located:
        """The text of the value, each character with its place in the file."""
        return locate(str(self.value), self.span, self.file)


class Sequence(msgspec.Struct, frozen=True):
    """Values in order."""

    items: "list[Node]"
    mark: SourcePosition


class MappingEntry(msgspec.Struct, frozen=True):
    """A value of a mapping, and the place of its key."""

    key_mark: SourcePosition
    node: "Node"


class Mapping(msgspec.Struct, frozen=True):
    """Values by name, in the order in which they were written."""

    entries: dict[str, MappingEntry]
    mark: SourcePosition


Node: TypeAlias = Scalar | Sequence | Mapping


def plain(node: Node) -> Any:  # noqa: ANN401 a document can hold any plain value
    """Return the value without its places."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():  # last of a closed set
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def read_document(
    text: str | bytes,
    *,
    max_bytes: int = MAX_BYTES,
    if_empty: str = "write keys and values: { key: value }",
    loader: Any = _LOADER,  # noqa: ANN401 a class of PyYAML's, or one of its libyaml's
) -> Node:
    """Read the one document of a YAML file, or raise :class:`FlowSyntaxError`.

    :class:`FlowTooLargeError` is raised for more than ``max_bytes`` bytes of UTF-8. ``if_empty`` is the remedy in the
    error for an empty file. ``loader`` is the PyYAML loader whose parser is used; libyaml's if it is available.
    """
    source = SourceFile(_decode(text, max_bytes).removeprefix("\ufeff"))
    if found := Reader.NON_PRINTABLE.search(source.text):
        raise FlowSyntaxError(
            *source.mark(found.start()),
            f"the character {shown(found[0])} may not stand in a YAML file",
            "remove it, or write it as an escape in a text in double quotes",
        )
    composer = _Composer(source)
    try:
        for event in yaml.parse(source.text, Loader=loader):
            composer.feed(event)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(error, source) from error
    return composer.result(if_empty)


def _decode(text: str | bytes, max_bytes: int) -> str:
    """Check the size, and return the text as ``str``."""
    if len(text) > max_bytes:  # a text has at least as many bytes as characters
        raise _too_large(max_bytes)
    try:
        encoded = text.encode() if isinstance(text, str) else text
        if len(encoded) > max_bytes:
            raise _too_large(max_bytes)
        return encoded.decode()
    except UnicodeError as error:
        raise FlowSyntaxError(1, 1, "the file is not valid UTF-8", "save it in the encoding UTF-8") from error


def _too_large(max_bytes: int) -> FlowTooLargeError:
    return FlowTooLargeError(
        1, 1, f"the file has more than {max_bytes} bytes", "make it smaller; keep data in a file of its own"
    )


def _not_yaml(error: yaml.MarkedYAMLError, source: SourceFile) -> FlowSyntaxError:
    place = error.problem_mark or error.context_mark
    index = min(place.index, len(source.text)) if place else 0
    problem = str(error.problem)
    if "cannot start any token" in problem:
        tab = source.text[index : index + 1] == "\t"
        remedy = "indent with blanks, not with tabs" if tab else "put the text in quotes"
    else:
        remedy = next((known for part, known in _YAML_REMEDIES.items() if part in problem), _CHECK)
    return FlowSyntaxError(*source.mark(index), f"this is not YAML: {problem}", remedy)


class _OpenCollection:
    """A mapping or sequence whose end has not been read, and the key of the next value."""

    def __init__(self, node: Sequence | Mapping) -> None:
        self.node = node
        self.key = ""
        self.key_mark = node.mark
        self.has_key = False

    def add(self, node: Node) -> None:
        if isinstance(self.node, Sequence):
            self.node.items.append(node)
        else:
            self.node.entries[self.key] = MappingEntry(self.key_mark, node)
            self.has_key = False


class _Composer:
    """Builds the document from the parser's events."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._open: list[_OpenCollection] = []
        self._nodes = 0
        self._root: Node | None = None

    def feed(self, event: Any) -> None:  # noqa: ANN401 PyYAML's event classes say little about their attributes
        mark = SourcePosition(event.start_mark.line + 1, event.start_mark.column + 1)
        match event:
            case yaml.AliasEvent():
                raise FlowSyntaxError(*mark, f"alias '*{event.anchor}'", "write the value out; aliases are not read")
            case yaml.DocumentStartEvent() if self._root is not None:
                raise FlowSyntaxError(*mark, "a second document begins here", "keep one document to a file")
            case yaml.ScalarEvent():
                self._count(event, mark)
                self._scalar(event, mark)
            case yaml.SequenceStartEvent():
                self._count(event, mark)
                self._enter(Sequence([], mark), mark)
            case yaml.MappingStartEvent():
                self._count(event, mark)
                self._enter(Mapping({}, mark), mark)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._add(self._open.pop().node)
            case _:  # the begin and the end of the stream
                pass

    def result(self, if_empty: str) -> Node:
        if self._root is None:
            raise FlowSyntaxError(1, 1, "the file is empty", if_empty)
        return self._root

    def _count(self, event: Any, mark: SourcePosition) -> None:  # noqa: ANN401
        """Check the limits that apply to every node."""
        if event.anchor is not None:
            raise FlowSyntaxError(*mark, f"anchor '&{event.anchor}'", "remove it; anchors are not read")
        if event.tag is not None:
            raise FlowSyntaxError(*mark, f"tag {shown(event.tag)}", "remove it; tags are not read")
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise FlowSyntaxError(
                *mark, f"the file has more than {MAX_NODES} keys and values", "keep data in a file of its own"
            )

    def _mapping_awaiting_key(self) -> Mapping | None:
        """Return the mapping of which the next node is a key, or None if it is no key."""
        place = self._open[-1] if self._open else None
        return place.node if place and isinstance(place.node, Mapping) and not place.has_key else None

    def _enter(self, node: Sequence | Mapping, mark: SourcePosition) -> None:
        if self._mapping_awaiting_key() is not None:
            raise FlowSyntaxError(*mark, "a key that is not text", "write a name before the colon; put {{ }} in quotes")
        if len(self._open) >= MAX_DEPTH:
            raise FlowSyntaxError(*mark, f"more than {MAX_DEPTH} levels of nesting", "make the value flatter")
        self._open.append(_OpenCollection(node))

    def _scalar(self, event: Any, mark: SourcePosition) -> None:  # noqa: ANN401
        full_tag: str = _RESOLVER.resolve(ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        tag = full_tag.removeprefix(_TAG)
        mapping = self._mapping_awaiting_key()
        if mapping is not None:
            self._key(mapping, event.value, tag, mark)
            return
        span = Span(event.start_mark.index, event.end_mark.index, event.style or "")
        self._add(Scalar(_construct(event.value, tag, mark), mark, span, self._source))

    def _key(self, mapping: Mapping, key: str, tag: str, mark: SourcePosition) -> None:
        if tag == "merge":
            raise FlowSyntaxError(*mark, "merge key '<<'", "write the keys out; merge keys are not read")
        if tag != "str":
            raise FlowSyntaxError(*mark, f"the key {key[:60]} is not text", f"put it in quotes: '{key[:60]}'")
        if key in mapping.entries:
            first = mapping.entries[key].key_mark.line
            raise FlowSyntaxError(*mark, f"key {shown(key)} stands here twice (first in line {first})", "keep one")
        place = self._open[-1]
        place.key, place.key_mark, place.has_key = key, mark, True

    def _add(self, node: Node) -> None:
        """Add a complete node to its collection, or make it the root."""
        if self._open:
            self._open[-1].add(node)
        else:
            self._root = node


def _construct(text: str, tag: str, mark: SourcePosition) -> str | int | float | bool | None:
    """Return the value of a scalar as PyYAML's safe loader makes it; a value that JSON cannot hold is refused."""
    in_quotes = f"put it in quotes if it is meant as text: '{text[:60]}'"
    if tag == "str":
        return text
    if tag not in _PLAIN_TAGS:
        raise FlowSyntaxError(*mark, f"{shown(text)} is a {tag}, which a flow cannot hold", in_quotes)
    if len(text) > MAX_DIGITS:
        raise FlowSyntaxError(*mark, f"a number of more than {MAX_DIGITS} characters", in_quotes)
    try:
        value: Any = SafeConstructor().construct_object(ScalarNode(_TAG + tag, text))
    except ValueError as error:
        raise FlowSyntaxError(*mark, f"{shown(text)} is not a number", in_quotes) from error
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):  # noqa: PLR0124
        raise FlowSyntaxError(*mark, f"{shown(text)} is not a finite number", "write a finite number")
    return value  # type: ignore[no-any-return]
