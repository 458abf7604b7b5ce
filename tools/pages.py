"""Shared code of the tools that write pages of the documentation."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
REFERENCE: Final = DOCS / "reference"

Pages = Mapping[Path, Callable[[], str]]


def run(description: str | None, pages: Pages) -> int:
    """Write the pages, or with ``--check`` print those that are not current; return the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a page is not current")
    if not parser.parse_args().check:
        for path, page in pages.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page(), encoding="utf-8")
        return 0
    stale = [path for path, page in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != page()]
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not current: run 'make docs'")
    return 1 if stale else 0


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table with escaped cells."""
    lines = [[*head], *([*row] for row in rows)]
    width = len(lines[0])
    written = ["| " + " | ".join(cell.replace("\n", " ").replace("|", r"\|") for cell in line) + " |" for line in lines]
    return "\n".join([written[0], "|" + "---|" * width, *written[1:]])


def code(names: Iterable[object]) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def json_block(value: object) -> str:
    """Return a value as a block of JSON; short lists and objects stay on one line."""
    return f"```json\n{_written(value, 0)}\n```"


_WIDTH: Final = 110


def _written(value: object, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + 2 * depth <= _WIDTH and (depth > 0 or not isinstance(value, dict)):
        return flat
    indent, end = "  " * (depth + 1), "  " * depth
    match value:
        case dict() if value:
            inner = [f"{indent}{json.dumps(key)}: {_written(item, depth + 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(inner) + f"\n{end}}}"
        case list() if value:
            return "[\n" + ",\n".join(indent + _written(item, depth + 1) for item in value) + f"\n{end}]"
        case _:
            return flat
