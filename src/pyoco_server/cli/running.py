"""Running a flow in this process, for ``pyoco-client run``."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyoco_server.cli.json_view import JsonView, reserved_stdout
from pyoco_server.cli.live_view import LiveView
from pyoco_server.cli.load_flow import load_flow, placed_in
from pyoco_server.cli.local_run import LocalRun
from pyoco_server.cli.params import read_params
from pyoco_server.cli.plain_view import PlainView
from pyoco_server.cli.terminal_lines import TerminalLines
from pyoco_server.cli.view import View
from pyoco_server.engine import Engine


def run_flow(arguments: argparse.Namespace) -> int:
    """Run the flow and return the exit code; UsageError or FlowError if there is nothing to run."""
    params = read_params(arguments.param, arguments.params, arguments.params_file)
    # The view comes first: with --json, not even what the user's module prints while it loads belongs on stdout.
    with _view(as_json=arguments.json, plain=arguments.plain) as view:
        flow = load_flow(arguments.target, arguments.flow)
        engine = Engine(cancel_grace_sec=arguments.grace_sec)
        with placed_in(arguments.target):
            return LocalRun(engine, view, TerminalLines.of_stdin()).go(flow, params)


@contextmanager
def _view(*, as_json: bool, plain: bool) -> Iterator[View]:
    if as_json:
        with reserved_stdout() as stdout:
            yield JsonView(stdout)
    elif plain or not sys.stdout.isatty():
        yield PlainView()
    else:
        yield LiveView()
