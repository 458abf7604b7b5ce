"""Writes answers: tables on a terminal, JSON in a pipe."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyoco_server.cli.shared.descriptions import one_line, shown

PIPED_WIDTH: Final = 240
_GAP: Final = 2
_PROSE: Final = 24
"""The widest column of prose in a table; longer texts are folded."""
_NOTHING: Final = "-"
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
    """A column of a table: its title, and the value in each row."""

    title: str
    value: Callable[[Mapping[str, Any]], object]
    is_prose: bool = False
    """It may take several lines: a sentence, not something to copy."""


def add_output_option(parser: argparse.ArgumentParser, *forms: str) -> None:
    """Add ``--output``, with JSON and tables unless other forms are given."""
    choices = list(forms or ("json", "table"))
    parser.add_argument(
        "--output", choices=choices, help=f"{' or '.join(choices)} ({choices[-1]} on a terminal, else json)"
    )


def wants_json(arguments: argparse.Namespace) -> bool:
    """Whether to write JSON: as ``--output`` says, else if stdout is not a terminal."""
    output: str | None = arguments.output
    return output == "json" if output is not None else not is_terminal()


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """Print JSON: on one line in a pipe, indented on a terminal."""
    indent = 2 if is_terminal() else None
    print(json.dumps(value, ensure_ascii=False, indent=indent), flush=True)  # noqa: T201 the output of the command


def print_json_line(value: object) -> None:
    """Print JSON on one line, without buffering."""
    print(json.dumps(value, ensure_ascii=False), flush=True)  # noqa: T201


def note(text: str) -> None:
    """Print a text for the user to stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def console() -> Console:
    """Return a console on stdout; in a pipe or a file it has a fixed width."""
    return Console(highlight=False) if is_terminal() else Console(highlight=False, width=PIPED_WIDTH)


def print_table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str) -> None:
    """Print a table, or ``empty``; on a narrow terminal a row takes several lines, and nothing is cut."""
    found = [[cell(column.value(row)) for column in columns] for row in rows]
    if not found:
        note(empty)
        return
    where = console()
    if _least_width(columns, found) <= where.width:
        where.print(_as_table(columns, found))
    else:
        _print_stacked(where, columns, found)


def _as_table(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.title, overflow="fold", min_width=_width(column, columns, rows))
    for row in rows:
        table.add_row(*row)
    return table


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> int:
    """Return the least width of a legible table."""
    return sum(_width(column, columns, rows) + _GAP for column in columns) - _GAP


def _width(column: Column, columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> int:
    at = columns.index(column)
    widest = max(cell_len(column.title), *(row[at].cell_len for row in rows))
    return min(widest, _PROSE) if column.is_prose else widest


def _print_stacked(where: Console, columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    """Print each row as lines: in the first as many columns as fit, below it the others by name, without empty ones.

    A value that is wider than the terminal is wrapped by the terminal, so that it can be copied in one piece.
    """
    heads = 1
    while _least_width(columns[: heads + 1], rows) <= where.width:
        heads += 1
    widths = [_width(column, columns, rows) for column in columns[:heads]]
    titles = [Text(column.title, style="bold") for column in columns[:heads]]
    where.print(_side_by_side(titles, widths), soft_wrap=True)
    for row in rows:
        where.print(_side_by_side(row[:heads], widths), soft_wrap=True)
        others = zip(columns[heads:], row[heads:], strict=True)
        for line in _filled(
            [_named(column, value) for column, value in others if value.plain != _NOTHING], where.width
        ):
            where.print(line, soft_wrap=True)


def _named(column: Column, value: Text) -> Text:
    return Text.assemble((f"{column.title.lower()}: ", "dim"), value)


def _filled(parts: Iterable[Text], width: int) -> list[Text]:
    """Arrange parts in lines, as many as fit in each."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + _GAP + part.cell_len <= width:
            lines[-1].append(" " * _GAP).append_text(part)
        else:
            lines.append(Text(" " * _GAP).append_text(part))
    return lines


def _side_by_side(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text()
    for value, width in zip(cells, widths, strict=True):
        line.append_text(value)
        line.append(" " * (width - value.cell_len + _GAP))
    line.rstrip()
    return line


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one a line, without empty ones."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            table.add_row(name, cell(value))
    console().print(table)


def cell(value: object) -> Text:
    """Format a value for a table: one line without control characters."""
    if value is None:
        return Text(_NOTHING, style="dim")
    text = one_line(value) if isinstance(value, str) else shown(value)
    return Text(text, style=STYLES.get(text, ""))


def moment(value: object) -> str | None:
    """Format Unix seconds as local date and time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(value)


def joined(value: object) -> str | None:
    """Format a list of words."""
    return ", ".join(str(part) for part in value) or None if isinstance(value, list) else None
