"""The ``pyoco-client`` command: reads the arguments and hands over to the subcommand.

A subcommand is a module with ``add_to(subcommands)``, which describes its arguments and sets ``run``: a function that
takes the parsed arguments and returns the exit code.
"""

import argparse
import sys

from pyoco_server.cli import run_command
from pyoco_server.cli.parsing import Parser, run_command_line

_SUBCOMMANDS = (run_command,)
_EXAMPLE = "pyoco-client run flow.py --param name=Ada"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command_line(_parser(), argv)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="pyoco-client", description="Run flows.", allow_abbrev=False)
    parser.set_defaults(example=_EXAMPLE)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
