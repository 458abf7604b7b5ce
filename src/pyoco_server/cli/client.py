"""The ``pyoco-client`` command: reads the arguments and hands over to the subcommand.

A subcommand is a module with ``add_to(subcommands)``, which describes its arguments and sets ``run``: a function that
takes the parsed arguments and returns the exit code.
"""

import argparse
import io
import os
import sys
from typing import NoReturn

from typing_extensions import override

from pyoco_server.cli import run_command
from pyoco_server.cli.usage import UsageError, told
from pyoco_server.errors import PyocoServerError

_SUBCOMMANDS = (run_command,)
_EXAMPLE = "pyoco-client run flow.py --param name=Ada"
FAILED = 1
INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving: one place decides how mistakes are told and with which code the command ends."""

    @override
    def error(self, message: str) -> NoReturn:
        example = self.get_default("example") or _EXAMPLE
        raise UsageError(f"{message} (see {self.prog} --help)", example=example)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; what the user did wrong is told on stderr, without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a character must not fail a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
    except PyocoServerError as error:
        print(told(error), file=sys.stderr)  # noqa: T201 the command line speaks by printing
        return FAILED
    except KeyboardInterrupt:  # before the run began; a run has handlers of its own
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left, for example `head`
        _discard_stdout()
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pyoco-client", description="Run flows.", allow_abbrev=False)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser


def _discard_stdout() -> None:
    """Python flushes stdout once more at its end, and would complain there."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
