"""How answers are written: tables for people at a terminal, JSON for programs behind a pipe."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyoco_server.cli.descriptions import one_line, shown

PIPED_WIDTH: Final = 240
STYLES: Final = {
    "PENDING": "dim",
    "RUNNING": "cyan",
    "COMPLETED": "green",
    "SUCCEEDED": "green",
    "FAILED": "bold red",
    "CANCELLING": "yellow",
    "CANCELLED": "yellow",
    "CANCELED": "yellow",
    "WAITING": "magenta",
    "IDLE": "green",
    "STOPPED_GRACEFUL": "dim",
    "DISCONNECTED": "bold red",
}


class Column(NamedTuple):
    """A column of a table: its title, and what stands in it."""

    title: str
    value: Callable[[Mapping[str, Any]], object]


def add_output_option(parser: argparse.ArgumentParser, *forms: str) -> None:
    """``--output``, with JSON and tables unless other forms are named."""
    choices = list(forms or ("json", "table"))
    parser.add_argument(
        "--output", choices=choices, help=f"{' or '.join(choices)} ({choices[-1]} on a terminal, else json)"
    )


def wants_json(arguments: argparse.Namespace) -> bool:
    """Is JSON wanted? What was asked for counts, then whether a person reads it."""
    output: str | None = arguments.output
    return output == "json" if output is not None else not is_terminal()


def is_terminal() -> bool:
    """Is a person reading?"""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """One line for a pipe; several for a person."""
    indent = 2 if is_terminal() else None
    print(json.dumps(value, ensure_ascii=False, indent=indent), flush=True)  # noqa: T201 how the command line speaks


def print_json_line(value: object) -> None:
    """Always one line, at once: somebody may be reading along."""
    print(json.dumps(value, ensure_ascii=False), flush=True)  # noqa: T201


def note(text: str) -> None:
    """Something for people, beside the output."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def console() -> Console:
    """Where people read; a table in a pipe or a file is not cut to the width of nothing."""
    return Console(highlight=False) if is_terminal() else Console(highlight=False, width=PIPED_WIDTH)


def print_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str) -> None:
    """A table, or a word on why there is none."""
    found = list(rows)
    if not found:
        note(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, overflow="fold" if column.title.endswith("ID") else "ellipsis")
    for row in found:
        table.add_row(*(cell(column.value(row)) for column in columns))
    console().print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Names and values, one a line; what is empty is left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            table.add_row(name, cell(value))
    console().print(table)


def cell(value: object) -> Text:
    """A value in a table: one line that cannot drive the terminal."""
    if value is None:
        return Text("-", style="dim")
    text = one_line(value) if isinstance(value, str) else shown(value)
    return Text(text, style=STYLES.get(text, ""))


def moment(value: object) -> str | None:
    """Unix seconds as date and time where the reader is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(value)


def joined(value: object) -> str | None:
    """A list of words."""
    return ", ".join(str(part) for part in value) or None if isinstance(value, list) else None
