"""What all commands have in common: how arguments are read, and how mistakes are told."""

import argparse
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from typing_extensions import override

from pyoco_server.cli.near import meant
from pyoco_server.cli.usage import UsageError, told
from pyoco_server.errors import PyocoServerError
from pyoco_server.messages import Language, language_of_locale

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130


class Parser(argparse.ArgumentParser):
    """Raises instead of leaving: one place decides how mistakes are told and with which code the command ends.

    What was nearly right is told what it may have been meant to be.
    """

    elsewhere: Mapping[str, str] = {}
    """Commands somebody may look for here, and where they are."""
    _given: Sequence[str] = ()

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{message}{self._remedy(message)} (see {self.prog} --help)", example=self.get_default("example")
        )

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here, where it is known which command was meant."""
        self._given = sys.argv[1:] if args is None else list(args)
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Among choices, say which one may have been meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            remedy = self._near_choice(str(value), [*map(str, action.choices or ())])
            said, choose, choices = error.message.partition(" (choose from")
            error.message = f"{said}{remedy}{choose}{choices}"  # before the choices, which may be many
            raise

    def _near_choice(self, typed: str, choices: Sequence[str]) -> str:
        if typed in self.elsewhere:
            return f"; it is {self.elsewhere[typed]}"
        takes_files = [command for command in ("dev", "run") if command in choices]
        if typed.endswith((".py", ".yaml", ".yml")) and takes_files:
            return f"; did you mean '{takes_files[0]} {typed}'?"
        return meant(typed, choices)

    def _remedy(self, message: str) -> str:
        """For what is not known here: how it is said, whatever else its absence led to."""
        if self._subparsers is not None or ("unrecognized" not in message and "required" not in message):
            return ""  # what stands behind a command is for that command to judge
        typed = dict.fromkeys(word.partition("=")[0] for word in self._given if word.startswith("--") and word != "--")
        unknown = [word for word in typed if word not in self._option_string_actions]
        if unknown:
            return "".join(map(self._near_option, unknown))
        return "".join(map(self._missing_option, message.split())) if "unrecognized" in message else ""

    def _near_option(self, word: str) -> str:
        positional = next(
            (to for to in self._get_positional_actions() if f"--{to.dest.replace('_', '-')}" == word), None
        )
        if positional is not None:
            return f"; leave {word} out: {positional.metavar} stands alone"
        shown = [
            option
            for option, action in self._option_string_actions.items()
            if option.startswith("--") and action.help is not argparse.SUPPRESS
        ]
        begun = sorted((option for option in shown if option.startswith(word)), key=len)
        return f"; did you mean '{begun[0]}'?" if begun else meant(word, shown)

    def _missing_option(self, word: str) -> str:
        """For a word that would have a meaning behind an option."""
        option = "--param" if "=" in word else "--flows" if word.endswith(".py") else ""
        is_meant = not word.startswith("-") and option in self._option_string_actions and option not in self._given
        return f"; did you mean '{option} {word}'?" if is_meant else ""


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
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, language: Language | None = None
) -> int:
    """Run a command and return its exit code; what went wrong is told on stderr, without a traceback.

    It is told in the language of the locale, unless another was chosen. The parsed arguments' ``run`` takes them and
    returns the exit code.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a character must not fail a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = parser.parse_args(argv)
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except PyocoServerError as error:
        text = told(error, language or language_of_locale())
        print(text, file=sys.stderr)  # noqa: T201 the command line speaks by printing
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
