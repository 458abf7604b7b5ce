"""Positions in a flow.yaml, also inside a text that YAML has folded, quoted or indented; and words for its messages.

A graph is written inside a YAML scalar. The parser gets the scalar's value; the author sees the file. YAML changes
blanks but keeps all other characters in order, so the n-th visible character of the value is the n-th visible character
of what was written (after undoing quotes and escapes).
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from yaml.scanner import Scanner

_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_BLANK = frozenset(" \t\r\n\x85\u2028\u2029")
_LONGEST_SHOWN = 60


class SourcePosition(NamedTuple):
    """A place in the file; both count from 1."""

    line: int
    column: int


class SourceFile:
    """The text of a file, and its lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(found.end() for found in _BREAK.finditer(text))]

    def mark(self, offset: int) -> SourcePosition:
        """Return line and column of the character at ``offset``."""
        line = bisect_right(self._starts, offset)
        return SourcePosition(line, offset - self._starts[line - 1] + 1)


class Located:
    """A text with the offset in the file of each of its characters.

    ``offsets`` has one entry more than the text: the place just after its last visible character.
    """

    def __init__(self, text: str, offsets: Sequence[int], file: SourceFile) -> None:
        self.text = text
        self._offsets = offsets
        self._file = file

    @classmethod
    def whole(cls, text: str) -> "Located":
        """Return a text that is the whole file."""
        return cls(text, range(len(text) + 1), SourceFile(text))

    def mark(self, index: int) -> SourcePosition:
        """Return the position in the file of the character at ``index``."""
        return self._file.mark(self._offsets[index])

    def pick(self, indices: Sequence[int], end: int) -> "Located":
        """Return the text of only these characters; ``end`` is where it ends."""
        text = "".join(map(self.text.__getitem__, indices))
        return Located(text, [self._offsets[index] for index in (*indices, end)], self._file)


class Span(NamedTuple):
    """Where a scalar was written, and in which of YAML's five styles."""

    start: int
    end: int
    style: str


def locate(value: str, span: Span, file: SourceFile) -> Located:
    """Return the value of a scalar with the offsets of its characters."""
    written = iter([*_visible_characters(file.text, span)])
    offsets: list[int] = []
    last = span.start
    for character in value:
        if character in _BLANK:
            offsets.append(last + 1)
        else:
            last = next(written, last)
            offsets.append(last)
    return Located(value, [*offsets, last + 1], file)


def _visible_characters(text: str, span: Span) -> Iterator[int]:
    """Return the offsets of the value's visible characters, in order."""
    match span.style:
        case '"':
            return _double_quoted(text, span)
        case "'":
            return _single_quoted(text, span)
        case "|" | ">":
            header = _BREAK.search(text, span.start)
            return _as_it_stands(text, header.end() if header else span.end, span.end)
        case _:
            return _as_it_stands(text, span.start, span.end)


def _as_it_stands(text: str, start: int, end: int) -> Iterator[int]:
    return (offset for offset in range(start, end) if text[offset] not in _BLANK)


def _single_quoted(text: str, span: Span) -> Iterator[int]:
    offset = span.start + 1
    while offset < span.end - 1:
        if text[offset] not in _BLANK:
            yield offset
        offset += 2 if text.startswith("''", offset) else 1


def _double_quoted(text: str, span: Span) -> Iterator[int]:
    offset = span.start + 1
    while offset < span.end - 1:
        meant, length = _unescape(text, offset)
        if meant not in _BLANK:
            yield offset
        offset += length


def _unescape(text: str, offset: int) -> tuple[str, int]:
    """Return the character that begins here, and how many characters it is written with."""
    if text[offset] != "\\":
        return text[offset], 1
    code = text[offset + 1]
    if code in Scanner.ESCAPE_CODES:
        digits = Scanner.ESCAPE_CODES[code]
        return chr(int(text[offset + 2 : offset + 2 + digits], 16)), 2 + digits
    # Not in the table: a line break, which a backslash removes; the caller skips blanks.
    return Scanner.ESCAPE_REPLACEMENTS.get(code, " "), 2


# --- Words for messages ----------------------------------------------------------------------------------------------


def shown(text: object) -> str:
    """Return a text for a message: in quotes, on one line, and shortened."""
    full = repr(str(text)[: _LONGEST_SHOWN + 1])
    return full if len(str(text)) <= _LONGEST_SHOWN else f"{full[:-2]}…'"


def instead_of(word: str, known: Sequence[str], otherwise: str | None = None) -> str:
    """Return the remedy for an unknown word: the nearest known one, or else a list of all of them."""
    if close := close_to(word, known):
        return f"did you mean '{close}'?"
    return otherwise or f"write one of {', '.join(known)}"


def close_to(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that this one is probably a misspelling of, or None."""
    # Comparing long texts, or with thousands of words, would take too long.
    short = [candidate for candidate in known[:1000] if max(len(candidate), len(word)) <= _LONGEST_SHOWN]
    return next(iter(get_close_matches(word, short, n=1)), None)
