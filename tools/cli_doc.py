"""Write docs/reference/cli.md from the parsers of the programs, or check that it is current."""

import argparse
import sys
from collections.abc import Iterator
from typing import Final

from pyoco_server import admin_cli
from pyoco_server.cli.client import main as client
from pyoco_server.cli.server import main as server
from pyoco_server.cli.shared.parsing import DONE, FAILED, INTERRUPTED
from pyoco_server.cli.worker import main as worker
from tools.pages import REFERENCE, run, table

PAGE: Final = REFERENCE / "cli.md"
PROGRAMS: Final = {
    "pyoco-server": (server._parser, "The gateway: alone, with all it needs, or for development; and API keys."),  # noqa: SLF001
    "pyoco-worker": (worker._parser, "Takes jobs and runs their flows."),  # noqa: SLF001
    "pyoco-client": (client._parser, "Runs flows in its own process, or submits, watches and steers runs."),  # noqa: SLF001
    "pyoco-server-admin": (admin_cli._parser, "API keys, as in 0.5.1: the same as pyoco-server keys."),  # noqa: SLF001
}

INTRODUCTION: Final = f"""\
# Command lines

Written by `make docs` from the parsers of the programs, in `src/pyoco_server/cli/`.

`--help` after any command prints the same. Options cannot be abbreviated. A mistake is printed on stderr in one line,
with its id ([errors](../errors.md)), the remedy and, where possible, a correct example.

| exit code | meaning |
|---|---|
| {DONE} | done; for a server or worker: stopped by SIGTERM, in good order |
| {FAILED} | refused, failed or not understood: stderr has the reason; some commands below add other meanings |
| {INTERRUPTED} | stopped by Ctrl-C |
"""

Subcommands = dict[str, argparse.ArgumentParser]


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION.rstrip()]
    for name, (parser, summary) in PROGRAMS.items():
        parts += [f"## {name}", summary, *_described(parser(), level=3)]
    return "\n\n".join(parts) + "\n"


def _described(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Describe a command and its subcommands."""
    yield f"```text\n{_synopsis(parser)}\n```"
    if parser.description:
        yield _prose(parser.description)
    if arguments := [*_arguments(parser)]:
        yield table(("argument", "value", "default", "meaning"), arguments)
    example = str(parser.get_default("example") or "")
    below = _subcommands(parser)
    if not below and example.startswith(parser.prog):
        yield f"```sh\n{example}\n```"
    for subcommand in below.values():
        yield f"{'#' * level} {subcommand.prog}"
        yield from _described(subcommand, level + 1)


def _synopsis(parser: argparse.ArgumentParser) -> str:
    """Return the synopsis: the arguments, the required ones by name."""
    words = [parser.prog]
    if any(action.option_strings for action in _shown(parser)):
        words.append("[options]")
    alternatives = [action for group in parser._mutually_exclusive_groups for action in group._group_actions]  # noqa: SLF001
    words += [
        "(" + " | ".join(_word(action) for action in group._group_actions) + ")"  # noqa: SLF001
        for group in parser._mutually_exclusive_groups  # noqa: SLF001
        if group.required
    ]
    for action in _shown(parser):
        if action in alternatives:
            continue
        if action.option_strings and action.required:
            words.append(_word(action))
        elif not action.option_strings:
            words.append(_positional(action))
    if _subcommands(parser):
        words.append("COMMAND …")
    return " ".join(words)


def _word(action: argparse.Action) -> str:
    if not action.option_strings:
        return _value(action)
    value = _value(action)
    return f"{action.option_strings[-1]} {value}".rstrip()


def _positional(action: argparse.Action) -> str:
    value = _value(action)
    match action.nargs:
        case "?":
            return f"[{value}]"
        case "*":
            return f"[{value} …]"
        case "+":
            return f"{value} …"
        case _:
            return value


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str, str]]:
    for action in _shown(parser):
        name = ", ".join(f"`{option}`" for option in action.option_strings) or f"`{_value(action)}`"
        value = f"`{_value(action)}`" if action.option_strings and _value(action) else ""
        text = " ".join((action.help or "").replace("%%", "%").split())
        if isinstance(action, argparse._AppendAction) and "repeat" not in text:  # noqa: SLF001 it has no other name
            text += "; may be given several times"
        yield name, value, _default(action, text), text


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and not action.metavar:
        return "|".join(map(str, action.choices))
    shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    return shown if isinstance(shown, str) else " ".join(shown)


def _default(action: argparse.Action, text: str) -> str:
    """Return the default, unless the text has it."""
    if action.required and action.nargs != "*":
        return "required"
    if action.default in (None, argparse.SUPPRESS, False, []) or action.nargs == 0 or f"({action.default})" in text:
        return ""
    return "" if isinstance(action.default, float) and f"({action.default:g})" in text else f"`{action.default}`"


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)  # noqa: SLF001
    return [one for one in parser._actions if not isinstance(one, hidden) and one.help != argparse.SUPPRESS]  # noqa: SLF001


def _subcommands(parser: argparse.ArgumentParser) -> Subcommands:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _prose(text: str) -> str:
    """Return a description as paragraphs; indented lines become a code block."""
    parts = []
    for part in text.strip().split("\n\n"):
        is_block = all(line.startswith("  ") for line in part.splitlines())
        parts.append(f"```text\n{part}\n```" if is_block else part.replace("<", r"\<"))
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
