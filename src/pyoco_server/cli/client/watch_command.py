"""``watch``: follow a run as it changes."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.snapshot_view import live_snapshots, status_line
from pyoco_server.cli.client.subcommands import add_command, add_id
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.descriptions import one_line
from pyoco_server.cli.shared.output import add_output_option, is_terminal, moment, note, print_json_line
from pyoco_server.cli.shared.parsing import DONE, FAILED
from pyoco_server.client.watch import has_ended
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_EXAMPLE = "pyoco-client watch RUN_ID --until-terminal --output status"
_MORE = """\
Without --output: a live view on a terminal, in a pipe one snapshot a line as JSON. It survives broken connections and
restarts of the gateway, and ends with Ctrl-C or as the options say.
Exit codes: 0 done; 1 also if, with --until-terminal, the time was up before the end; 130 Ctrl-C."""
Show = Callable[[JsonObject], None]


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    parser = add_command(subcommands, "watch", _watch, summary="watch a run", example=_EXAMPLE, more=_MORE)
    add_id(parser, "run_id", "which run (required)")
    parser.add_argument("--records", action="store_true", help="with the records of its tasks")
    parser.add_argument("--since", metavar="TIME", type=kinds.unix_seconds, help="only later changes, Unix seconds")
    parser.add_argument("--timeout-sec", metavar="SEC", type=kinds.seconds, help="the longest time")
    parser.add_argument("--max-events", metavar="N", type=kinds.whole_number(1), help="the most snapshots")
    parser.add_argument("--until-terminal", action="store_true", help="stop when the run has ended")
    add_output_option(parser, "json", "status")


def _watch(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        snapshots = client.watch(
            arguments.run_id,
            records=arguments.records,
            since=arguments.since,
            timeout=arguments.timeout_sec,
            until_terminal=arguments.until_terminal,
        )
        with closing(snapshots), _shown(arguments.output) as show:
            ended = False
            for count, snapshot in enumerate(snapshots, start=1):
                show(snapshot)
                ended = has_ended(snapshot)
                if count == arguments.max_events:
                    return DONE
        # With --since, the run may have ended before.
        if not arguments.until_terminal or ended or has_ended(client.get(arguments.run_id)):
            return DONE
    note(f"error: run {one_line(arguments.run_id)} has not ended within {arguments.timeout_sec:g} s")
    return FAILED


@contextmanager
def _shown(output: str | None) -> Iterator[Show]:
    """Yield the function that shows a snapshot."""
    if output == "status":
        yield _StatusLines().show
    elif output == "json" or not is_terminal():
        yield print_json_line
    else:
        with live_snapshots() as show:
            yield show


class _StatusLines:
    """A line for each change of a status, of the run or of a task."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, snapshot: JsonObject) -> None:
        line = status_line(snapshot)
        if line != self._last:
            self._last = line
            print(f"{moment(snapshot.get('updated_at')) or '-'} {line}", flush=True)  # noqa: T201
