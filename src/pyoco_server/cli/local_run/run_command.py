"""``pyoco-client run``: loads a flow, runs it in this process and shows it; the exit code is its outcome."""

import argparse
import math

from pyoco_server.cli.shared.params import add_params_options

_DESCRIPTION = """\
Run a flow in this process. FILE is a .py file with a pyoco Flow, or a flow.yaml; tasks beside it can be imported.

Ctrl-C asks the tasks to stop; a second Ctrl-C ends the run at once.
Parameters come from --params-file, then --params, then each --param; the later one wins.
Exit codes: 0 completed, 1 failed or not valid, 130 stopped by Ctrl-C."""
_EXAMPLE = "pyoco-client run flow.py --param name=Ada"


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "run",
        help="run a flow in this process",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="FILE|MODULE:FLOW", help="the flow")
    parser.add_argument("--flow", metavar="NAME", help="which flow, if the file has several")
    add_params_options(parser)
    parser.add_argument("--grace-sec", metavar="N", type=_seconds, default=10.0, help="time to stop after Ctrl-C (10)")
    looks = parser.add_mutually_exclusive_group()
    looks.add_argument("--json", action="store_true", help="write one event per line as JSON, and nothing else")
    looks.add_argument("--plain", action="store_true", help="write one line per event, even to a terminal")
    parser.set_defaults(run=run, example=_EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Run the flow and return the exit code; UsageError or FlowError if there is nothing to run."""
    from pyoco_server.cli.local_run.local_run import run_flow  # noqa: PLC0415 engine and grammar load slowly; no other command needs them

    return run_flow(arguments)


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
