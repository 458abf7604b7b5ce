"""Reads the pages of the documentation block by block."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
_FENCE: Final = re.compile(r"^```(\S*)\s*$")
_FILE: Final = re.compile(r"# ([\w./-]+)")
_SKIPPED: Final = re.compile(r"<!-- not run: (.+) -->")
_FILES: Final = frozenset({"python", "yaml", "ini", "text"})


class Block(NamedTuple):
    """A fenced block: what it is, what stands in it, and why it is not run, if so."""

    where: str
    kind: str
    text: str
    not_run: str | None

    @property
    def file(self) -> str | None:
        """The file that the reader is asked to write: it is named by a comment in the first line."""
        named = _FILE.fullmatch(self.text.partition("\n")[0])
        return named[1] if named and self.kind in _FILES else None


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    return list(_blocks(page.name, page.read_text(encoding="utf-8").splitlines()))


def _blocks(name: str, lines: Sequence[str]) -> Iterator[Block]:
    begun: int | None = None
    kind = ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and begun is None:
            begun, kind = number, fence[1]
        elif fence and begun is not None:
            skipped = _SKIPPED.fullmatch(lines[begun - 1]) if begun else None
            text = "\n".join(lines[begun + 1 : number]) + "\n"
            yield Block(f"{name}:{begun + 1}", kind, text, skipped[1] if skipped else None)
            begun = None
    assert begun is None, f"{name}: the block at line {(begun or 0) + 1} has no end"
