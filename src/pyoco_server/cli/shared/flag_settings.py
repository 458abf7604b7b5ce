"""Loads settings that may also be options; an error names the option, with an example."""

import argparse
from collections.abc import Iterable, Mapping

from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.settings import Loaded, SettingsError, load_settings


def load_with_flags(
    environ: Mapping[str, str], arguments: argparse.Namespace, variables: Mapping[str, str], *, example: str
) -> Loaded:
    """Return the settings; UsageError if they are not valid.

    ``variables`` maps arguments to variables; an option wins over the environment. A wrong log level in the environment
    is only a warning, so that the process starts; a wrong option is an error, as the user is there to correct it.
    """
    flags = {
        variable: f"--{name.replace('_', '-')}"
        for name, variable in variables.items()
        if getattr(arguments, name) is not None
    }
    typed = {variable: str(getattr(arguments, name)) for name, variable in variables.items() if variable in flags}
    for variable, text in typed.items():
        if not text.strip():  # an empty variable counts as not set; an empty option is a mistake
            raise UsageError(f"{flags[variable]}: is empty", example=example)
    try:
        loaded = load_settings({**environ, **typed})
    except SettingsError as error:
        raise UsageError(_error_text(error.problems, flags), example=example) from error
    mistyped = [warning.text for warning in loaded.warnings if warning.err_id and _variable(warning.text) in flags]
    if mistyped:
        raise UsageError(_error_text([text.partition(";")[0] for text in mistyped], flags), example=example)
    return loaded


def _variable(problem: str) -> str:
    """Return the variable of a problem, which begins with it."""
    return problem.partition("=")[0]


def _error_text(problems: Iterable[str], flags: Mapping[str, str]) -> str:
    """List each problem on a line, with its option if there is one."""
    named = [(flags.get(_variable(problem)), problem) for problem in problems]
    lines = [problem if flag is None else f"{flag}: {problem}" for flag, problem in named]
    return "the settings are not valid:" + "".join(f"\n  {line}" for line in lines)
