"""The ``pyoco-client`` command: parses the arguments and calls the subcommand.

A subcommand is a module with ``add_to(subcommands)``, which describes its arguments and sets ``run``: a function that
takes the parsed arguments and returns the exit code.
"""

import argparse
import os
import sys

try:
    from pyoco_server.cli.client import (
        dlq_commands,
        list_commands,
        log_commands,
        output_command,
        redrive_command,
        run_commands,
        submit_commands,
        watch_command,
        wheel_commands,
        worker_commands,
    )
    from pyoco_server.cli.client.connection import add_connection_options, chosen_language
    from pyoco_server.cli.local_run import run_command
    from pyoco_server.cli.shared.parsing import Parser, add_version, run_command_line
except KeyboardInterrupt:  # after sys.exit, CPython still ends by the signal if it interrupted exec() of a string
    os._exit(130)

_SUBCOMMANDS = (
    run_command,
    submit_commands,
    run_commands,
    redrive_command,
    list_commands,
    watch_command,
    log_commands,
    output_command,
    worker_commands,
    dlq_commands,
    wheel_commands,
)
_DESCRIPTION = """\
Run flows in this process, or submit them to a gateway, watch them and control them.

On a terminal, answers are tables and live views; in a pipe, they are JSON: a document, or an event a line.
Exit codes: 0 done, 1 failed or refused (stderr has the reason), 130 stopped by Ctrl-C."""
_EPILOG = """\
examples:
  pyoco-client run flow.py --param name=Ada
  pyoco-client submit hello --param name=Ada --wait
  pyoco-client --server http://10.0.0.5:8000 list --status FAILED
  pyoco-client watch RUN_ID --until-terminal
  pyoco-client cancel RUN_ID --wait --timeout-sec 30"""
_EXAMPLE = "pyoco-client run flow.py --param name=Ada"
_ELSEWHERE = {
    **{name: f"pyoco-server {name}" for name in ("dev", "up", "keys")},
    "worker": "pyoco-worker",
    **dict.fromkeys(("show", "status"), "pyoco-client get"),
    **dict.fromkeys(("ls", "runs"), "pyoco-client list"),
    **dict.fromkeys(("stop", "kill"), "pyoco-client cancel"),
    "logs": "pyoco-client events",
}
"""Commands of other programs, or by other names, that users may try here."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    return run_command_line(_parser, given, chosen_language(given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="pyoco-client",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.elsewhere = _ELSEWHERE
    add_connection_options(parser)
    add_version(parser)
    parser.set_defaults(example=_EXAMPLE)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for subcommand in _SUBCOMMANDS:
        subcommand.add_to(subcommands)
    return parser
