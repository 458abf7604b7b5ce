"""The ``pyoco-server`` command: the gateway, alone or with all it needs."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

try:
    from pyoco_server.cli import dev_command, keys_command, replicas_command, up_command
    from pyoco_server.cli.parsing import Parser, add_version, run_command_line
except KeyboardInterrupt:  # there is much to import, and nothing has begun that would have to end
    sys.exit(130)

_EXAMPLE: Final = "pyoco-server up --port 8000"
_ELSEWHERE: Final = {name: f"pyoco-client {name}" for name in ("run", "submit", "list", "watch", "get", "cancel")}
_UP: Final = "pyoco-server up, or pyoco-server dev FILE with a worker for your flows"
_SUBCOMMANDS: Final = (up_command, dev_command, keys_command, replicas_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command_line(_parser(), argv)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="pyoco-server", description="Serve runs over HTTP.", allow_abbrev=False)
    parser.elsewhere = {**_ELSEWHERE, "worker": "pyoco-worker", "start": _UP, "serve": _UP}
    add_version(parser)
    parser.add_argument("--dashboard-lang", metavar="LANG", help="of up and dev: auto, ja or en (auto)")
    parser.set_defaults(example=_EXAMPLE)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
