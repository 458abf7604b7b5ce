"""The ``pyoco-server`` command: the gateway, alone or with all that it needs.

Without a subcommand it is ``pyoco-server up``, as it was in 0.5.1: ``pyoco-server --port 9000`` starts the gateway.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

try:
    from pyoco_server.cli.server import dev_command, keys_command, migrate_command, replicas_command, up_command
    from pyoco_server.cli.shared.parsing import Parser, add_version, run_command_line
except KeyboardInterrupt:  # after sys.exit, CPython still ends by the signal if it interrupted exec() of a string
    os._exit(130)

_DESCRIPTION: Final = "Serve runs over HTTP. Without a command it is 'up'."
_EXAMPLE: Final = "pyoco-server up --port 8000"
_ELSEWHERE: Final = {name: f"pyoco-client {name}" for name in ("run", "submit", "list", "watch", "get", "cancel")}
_UP: Final = "pyoco-server up, or pyoco-server dev FILE with a worker for your flows"
_SUBCOMMANDS: Final = (up_command, dev_command, keys_command, migrate_command, replicas_command)
_OF_THE_PROGRAM: Final = frozenset({"-h", "--help", "--version"})
_LANGUAGE: Final = "--dashboard-lang"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command_line(_parser, _with_subcommand(sys.argv[1:] if argv is None else argv))


def _with_subcommand(typed: Sequence[str]) -> list[str]:
    """Insert ``up`` where no subcommand was typed; the language may stand before it."""
    at = 0
    while at < len(typed) and typed[at].partition("=")[0] == _LANGUAGE:
        at += 1 if "=" in typed[at] else 2
    rest = typed[at:]
    if rest and (not rest[0].startswith("-") or rest[0] in _OF_THE_PROGRAM):
        return [*typed]
    return [*typed[:at], "up", *rest]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="pyoco-server", description=_DESCRIPTION, allow_abbrev=False)
    parser.elsewhere = {**_ELSEWHERE, "worker": "pyoco-worker", "start": _UP, "serve": _UP}
    add_version(parser)
    parser.add_argument(_LANGUAGE, metavar="LANG", help="of up and dev: auto, ja or en (auto)")
    parser.set_defaults(example=_EXAMPLE)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser
