"""Helpers that declare the subcommands of ``pyoco-client`` and their arguments."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyoco_server.cli.client.connection import add_connection_options

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 argparse has no other name for it

Run = Callable[[argparse.Namespace], int]


def add_command(
    subcommands: "Subcommands", name: str, run: Run, *, summary: str, example: str, more: str = ""
) -> argparse.ArgumentParser:
    """Add a subcommand that sends requests to a gateway; return its parser."""
    parser = subcommands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.\n{more}".rstrip(),
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_connection_options(parser)
    parser.set_defaults(run=run, example=example)
    return parser


def add_id(parser: argparse.ArgumentParser, name: str, help_text: str) -> None:
    """Add a required id: as a positional argument, or by name as in ``--run-id``."""
    add_either(parser, name, help_text, metavar=name.upper(), value="ID")


def add_either(
    parser: argparse.ArgumentParser,
    name: str,
    help_text: str,
    *,
    metavar: str,
    value: str,
    option: str = "",
    kind: Callable[[str], str] = str,
) -> None:
    """Add a required value: as a positional argument or by its option (default ``--name``), but not both."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument(name, metavar=metavar, nargs="?", default=argparse.SUPPRESS, type=kind, help=help_text)
    either.add_argument(
        option or f"--{name.replace('_', '-')}",
        dest=name,
        metavar=value,
        default=argparse.SUPPRESS,
        type=kind,
        help="the same by name",
    )
