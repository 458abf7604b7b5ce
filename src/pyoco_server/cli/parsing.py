"""What all commands have in common: how arguments are read, and how mistakes are told."""

import argparse
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from typing_extensions import override

from pyoco_server.cli.usage import UsageError, told
from pyoco_server.errors import PyocoServerError
from pyoco_server.messages import Language

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130


class Parser(argparse.ArgumentParser):
    """Raises instead of leaving: one place decides how mistakes are told and with which code the command ends."""

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)", example=self.get_default("example"))


class _TellVersion(argparse.Action):
    """Looked up only when somebody asks, among what is installed: the version is written in pyproject.toml alone."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"{parser.prog} {importlib.metadata.version('pyoco-server')}")  # noqa: T201 how the command line speaks
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Let a program say which version it is."""
    parser.add_argument("--version", action=_TellVersion, nargs=0, help="show the version and exit")


def run_command_line(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, language: Language = Language.EN
) -> int:
    """Run a command and return its exit code; what went wrong is told on stderr, without a traceback.

    The parsed arguments' ``run`` takes them and returns the exit code.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a character must not fail a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = parser.parse_args(argv)
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except PyocoServerError as error:
        print(told(error, language), file=sys.stderr)  # noqa: T201 the command line speaks by printing
        return FAILED
    except KeyboardInterrupt:  # before the run began; a run has handlers of its own
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left, for example `head`
        _discard_stdout()
        return FAILED


def _discard_stdout() -> None:
    """Python flushes stdout once more at its end, and would complain there."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
