"""``events`` and ``replay``: the log of a run, and the state that it leads to."""

import argparse
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.replay import Replay, read_event, replay
from pyoco_server.cli.client.subcommands import add_command, add_id
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.descriptions import clock_time, detail, failure, one_line, result
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.output import (
    STYLES,
    add_output_option,
    cell,
    console,
    note,
    print_json,
    print_json_line,
    wants_json,
)
from pyoco_server.cli.shared.parsing import DONE, FAILED
from pyoco_server.core import ExecutionState, state_to_dict
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import NodePayload

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_EVENTS_EXAMPLE = "pyoco-client events RUN_ID --follow"
_REPLAY_EXAMPLE = "pyoco-client replay RUN_ID --at 12"
_EVENTS = "In a pipe, one event a line as JSON, with the version after it."
_REPLAY = """\
Reads the log and folds it here. With --at, shows the state after so many events; without, the newest state, compared
with that of the gateway: exit code 1 if they do not agree."""


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    events = add_command(
        subcommands, "events", _events, summary="print the log of a run", example=_EVENTS_EXAMPLE, more=_EVENTS
    )
    add_id(events, "run_id", "which run (required)")
    events.add_argument("--after", metavar="VERSION", type=kinds.whole_number(0), default=0, help="only later ones (0)")
    events.add_argument("--follow", action="store_true", help="continue until the run has ended")
    add_output_option(events, "json", "lines")

    again = add_command(
        subcommands,
        "replay",
        _replay,
        summary="compute a run's state from its log",
        example=_REPLAY_EXAMPLE,
        more=_REPLAY,
    )
    add_id(again, "run_id", "which run (required)")
    again.add_argument("--at", metavar="VERSION", type=kinds.whole_number(0), help="after so many events (all)")
    add_output_option(again)


def _events(arguments: argparse.Namespace) -> int:
    show = print_json_line if wants_json(arguments) else _print_event
    with (
        connected(arguments) as client,
        closing(
            client.events(arguments.run_id, arguments.after, follow=arguments.follow, on_notes=_print_notes)
        ) as events,
    ):
        for event in events:
            show(event)
    return DONE


def _print_notes(notes: Sequence[str]) -> None:
    """Print notes to stderr, so that every line on stdout stays an event."""
    for text in notes:
        note(f"note: the log is inconsistent: {one_line(text)}")


def _print_event(fields: JsonObject) -> None:
    event = read_event(fields)
    node_id = event.payload.node_id if isinstance(event.payload, NodePayload) else None
    text = f"{clock_time(event.occurred_at)} {event.type} {one_line(node_id or '-')} {detail(event)}"
    print(f"{fields.get('version', '-'):>5} {text}".rstrip(), flush=True)  # noqa: T201 the output of the command


def _replay(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        found = replay(client, arguments.run_id, at=arguments.at)
    if found is None:
        raise UsageError(f"--at {arguments.at}: the log is shorter than that", example=_REPLAY_EXAMPLE)
    if wants_json(arguments):
        print_json(_as_json(found))
    else:
        console().print(_drawn(found))
    return FAILED if found.differences else DONE


def _as_json(found: Replay) -> JsonObject:
    shown: JsonObject = {"run_id": found.run_id, "version": found.version, "state": state_to_dict(found.state)}
    if found.differences is not None:
        shown |= {"agrees": not found.differences, "differences": found.differences}
    return shown | ({"notes": found.notes} if found.notes else {})


def _drawn(found: Replay) -> Group:
    status = found.state.status.value
    head = Text.assemble(
        (status, STYLES.get(status, "bold")), f"  {one_line(found.run_id)}  after {found.version} events"
    )
    return Group(head, _nodes(found.state), *_verdict(found), *_notes(found))


def _nodes(state: ExecutionState) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "TYPE", "STATUS", "ATTEMPT", "RESULT"):
        table.add_column(title, overflow="ellipsis")
    for node_id in sorted(state.nodes):
        node = state.nodes[node_id]
        outcome = failure(node.error) if node.error is not None else result(node.output)
        table.add_row(
            cell(node_id), cell(str(node.node_type)), cell(node.status.value), cell(node.attempt), cell(outcome or None)
        )
    return table


def _notes(found: Replay) -> list[Text]:
    if not found.notes:
        return []
    lines = [Text(f"  {one_line(text)}") for text in found.notes]
    return [Text("the log is inconsistent:", style="bold yellow"), *lines]


def _verdict(found: Replay) -> list[Text]:
    if found.differences is None:
        return []
    if not found.differences:
        return [Text("the gateway's state agrees with the log", style="green")]
    return [
        Text("the gateway's state does not agree with the log:", style="bold red"),
        *(Text(f"  {one_line(difference)}") for difference in found.differences),
    ]
