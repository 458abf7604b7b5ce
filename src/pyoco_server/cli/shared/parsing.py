"""The base of all commands: parses arguments, suggests corrections, and turns errors into texts and exit codes."""

import argparse
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from typing_extensions import override

from pyoco_server.cli.shared.errors import UsageError, error_text, suggestion
from pyoco_server.errors import PyocoServerError
from pyoco_server.messages import Language, language_of_locale

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that :func:`run_command_line` alone prints errors and exits.

    An error suggests what may have been meant.
    """

    elsewhere: Mapping[str, str] = {}
    """Commands that users may try here, and the right ones."""
    _given: Sequence[str] = ()

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{message}{self._remedy(message)} (see {self.prog} --help)", example=self.get_default("example")
        )

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here, where the subcommand is known, so that its options are suggested."""
        self._given = sys.argv[1:] if args is None else list(args)
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return known, rest

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Add the choice that may have been meant to the error."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            remedy = self._near_choice(str(value), [*map(str, action.choices or ())])
            text, choose, choices = error.message.partition(" (choose from")
            error.message = f"{text}{remedy}{choose}{choices}"  # before the choices, which may be many
            raise

    def _near_choice(self, typed: str, choices: Sequence[str]) -> str:
        if typed in self.elsewhere:
            return f"; it is {self.elsewhere[typed]}"
        takes_files = [command for command in ("dev", "run") if command in choices]
        if typed.endswith((".py", ".yaml", ".yml")) and takes_files:
            return f"; did you mean '{takes_files[0]} {typed}'?"
        return suggestion(typed, choices)

    def _remedy(self, message: str) -> str:
        """Return suggestions for unknown arguments, also if the error is about a missing one."""
        if self._subparsers is not None or ("unrecognized" not in message and "required" not in message):
            return ""  # the parser of the subcommand checks its arguments
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
        return f"; did you mean '{begun[0]}'?" if begun else suggestion(word, shown)

    def _missing_option(self, word: str) -> str:
        """Suggest the option that a word without one may belong to."""
        option = "--param" if "=" in word else "--flows" if word.endswith(".py") else ""
        is_meant = not word.startswith("-") and option in self._option_string_actions and option not in self._given
        return f"; did you mean '{option} {word}'?" if is_meant else ""


class _ShowVersion(argparse.Action):
    """Prints the installed version, which is looked up only then."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"{parser.prog} {importlib.metadata.version('pyoco-server')}")  # noqa: T201 the output of the command
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``."""
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")


def run_command_line(
    new_parser: Callable[[], argparse.ArgumentParser], argv: Sequence[str] | None, language: Language | None = None
) -> int:
    """Run a command and return its exit code; errors, and a Ctrl-C at any time, end it without a traceback.

    Errors are printed to stderr, in the language of the locale unless ``language`` is given. ``run`` of the parsed
    arguments takes them and returns the exit code.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character that the terminal lacks must not fail a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = new_parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except PyocoServerError as error:
        text = error_text(error, language or language_of_locale())
        print(text, file=sys.stderr)  # noqa: T201 the output of the command
        return FAILED
    except KeyboardInterrupt:  # before the command installed its signal handlers
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it, for example `head`
        _discard_stdout()
        return FAILED


def _discard_stdout() -> None:
    """Replace stdout: Python flushes it once more at exit, which would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
