"""Settings that can be typed as options: a mistake in one is told by the option, with an example."""

import argparse
from collections.abc import Iterable, Mapping

from pyoco_server.cli.usage import UsageError
from pyoco_server.settings import Loaded, SettingsError, load_settings


def load_with_flags(
    environ: Mapping[str, str], arguments: argparse.Namespace, variables: Mapping[str, str], *, example: str
) -> Loaded:
    """The settings; UsageError if they are not valid.

    ``variables`` names the variable of each argument; an option that was typed wins over the environment. A wrong level
    of the log in the environment keeps nobody from starting, but whoever typed one is there to correct it.
    """
    flags = {
        variable: f"--{name.replace('_', '-')}"
        for name, variable in variables.items()
        if getattr(arguments, name) is not None
    }
    typed = {variable: str(getattr(arguments, name)) for name, variable in variables.items() if variable in flags}
    for variable, text in typed.items():
        if not text.strip():  # in the environment that counts as not set; whoever typed it meant to say something
            raise UsageError(f"{flags[variable]}: there is nothing in it", example=example)
    try:
        loaded = load_settings({**environ, **typed})
    except SettingsError as error:
        raise UsageError(_told(error.problems, flags), example=example) from error
    mistyped = [warning.text for warning in loaded.warnings if warning.err_id and _variable(warning.text) in flags]
    if mistyped:
        raise UsageError(_told([text.partition(";")[0] for text in mistyped], flags), example=example)
    return loaded


def _variable(problem: str) -> str:
    """The variable a problem is about; each begins with it."""
    return problem.partition("=")[0]


def _told(problems: Iterable[str], flags: Mapping[str, str]) -> str:
    """Each problem on its line, by the option it was typed with, if it was."""
    named = [(flags.get(_variable(problem)), problem) for problem in problems]
    lines = [problem if flag is None else f"{flag}: {problem}" for flag, problem in named]
    return "the settings are not valid:" + "".join(f"\n  {line}" for line in lines)
