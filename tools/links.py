"""Check that links in the repository's Markdown have a target: an existing file, and a heading in it.

Links to other hosts are not followed. Paths of documents in the texts of the code are checked, too.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.pages import ROOT

NOT_OURS: Final = frozenset({"build", "dist", "mutants", "node_modules", "artifacts"})
"""Folders of generated files; hidden folders are skipped, too."""
CODE: Final = ("src", "tools", "chaos", "bench", "examples")
_NAMED: Final = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|toml)\b")
_ANCHOR: Final = re.compile(r"""<a\s[^>]*?(?:id|name)=["']([^"']+)["']""")
_MARKDOWN: Final = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def problems(root: Path = ROOT) -> Iterator[str]:
    """Return all broken links, with their place."""
    for path in sorted(_files(root, "*.md")):
        for line, target in _links(path):
            wrong = _wrong(root, path, target)
            if wrong:
                yield f"{path.relative_to(root)}:{line}: {target}: {wrong}"
    for folder in CODE:
        for path in sorted(_files(root / folder, "*.py")):
            for name in sorted(set(_NAMED.findall(path.read_text(encoding="utf-8")))):
                if not (root / name).exists():
                    yield f"{path.relative_to(root)}: {name}: there is no such file"


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for path in root.rglob(pattern):
        parts = path.relative_to(root).parts
        if not any(part.startswith(".") or part in NOT_OURS for part in parts):
            yield path


def _links(path: Path) -> Iterator[tuple[int, str]]:
    for token in _tokens(path):
        line = (token.map or [0])[0] + 1
        for child in token.children or ():
            target = child.attrGet("href" if child.type == "link_open" else "src")
            if target is not None:
                yield line, str(target)


def _wrong(root: Path, path: Path, target: str) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    if parts.path.startswith("/"):
        return "write a path of this repository relative to the file with the link"
    found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not found.is_relative_to(root.resolve()):
        return "it leads out of the repository"
    if not found.exists():
        return "there is no such file"
    if parts.fragment and found.suffix == ".md" and unquote(parts.fragment) not in anchors(found):
        return "there is no such heading"
    return None


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a file: of all headings, as Markdown viewers make them, and those set by hand."""
    tokens, found, seen = _tokens(path), set[str](), Counter[str]()
    for heading, inline in pairwise(tokens):
        found.update(_ANCHOR.findall(heading.content))
        if heading.type == "heading_open":
            name = slug(_text(inline))
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return frozenset(found)


def slug(heading: str) -> str:
    """Return the anchor of a heading: lower-case letters, digits, and hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _text(inline: Token) -> str:
    shown = [child.content for child in inline.children or () if child.type in {"text", "code_inline"}]
    return "".join(shown)


@cache
def _tokens(path: Path) -> list[Token]:
    return _MARKDOWN.parse(path.read_text(encoding="utf-8"))


def main() -> int:
    """Print the broken links; return the exit code."""
    found = [*problems()]
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
