"""``dlq list``, ``show`` and ``redrive``: jobs that could not be executed."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command
from pyoco_server.cli.client.submit_commands import add_wait_options, send
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.output import (
    Column,
    add_output_option,
    moment,
    print_fields,
    print_json,
    print_table,
    wants_json,
)
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.client import requests as calls

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_LIST_EXAMPLE = "pyoco-client dlq list --limit 20"


def _entry(letter: Mapping[str, Any]) -> Mapping[str, Any]:
    entry = letter.get("entry")
    return entry if isinstance(entry, dict) else {}


_COLUMNS = (
    Column("SEQUENCE", lambda letter: letter.get("sequence")),
    Column("TIME", lambda letter: moment(_entry(letter).get("timestamp"))),
    Column("TAG", lambda letter: letter.get("tag")),
    Column("REASON", lambda letter: _entry(letter).get("reason")),
    Column("FLOW", lambda letter: _entry(letter).get("flow_name")),
    Column("RUN ID", lambda letter: _entry(letter).get("run_id")),
    Column("ERROR", lambda letter: _entry(letter).get("error"), is_prose=True),
)


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    dlq = add_command(subcommands, "dlq", _list, summary="show dead letters", example=_LIST_EXAMPLE)
    dlq.set_defaults(limit=None, output=None)
    actions = dlq.add_subparsers(title="commands", metavar="list|show|redrive")
    newest = add_command(
        actions, "list", _list, summary="list the newest dead letters, as dlq alone does", example=_LIST_EXAMPLE
    )
    newest.add_argument(
        "--limit", metavar="N", type=kinds.whole_number(1, 500), help="the most letters (100; up to 500)"
    )
    add_output_option(newest)
    one = add_command(actions, "show", _show, summary="show a dead letter", example="pyoco-client dlq show 17")
    one.add_argument(
        "sequence", metavar="SEQUENCE", type=kinds.whole_number(1), help="its number in the list (required)"
    )
    add_output_option(one)
    again = add_command(
        actions, "redrive", _redrive, summary="redrive the run of a dead letter", example="pyoco-client dlq redrive 17"
    )
    again.add_argument(
        "sequence", metavar="SEQUENCE", type=kinds.whole_number(1), help="its number in the list (required)"
    )
    add_wait_options(again)


def _list(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        found = client.dlq(arguments.limit)
    if wants_json(arguments):
        print_json(found)
    else:
        print_table(_COLUMNS, found, empty="no dead letters")
    return DONE


def _redrive(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        run_id = _entry(client.dead_letter(arguments.sequence)).get("run_id")
    if not isinstance(run_id, str):
        raise UsageError(f"dead letter {arguments.sequence} names no run", example="pyoco-client dlq list")
    return send(lambda: calls.redriving(run_id), arguments)


def _show(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        letter = client.dead_letter(arguments.sequence)
    if wants_json(arguments):
        print_json(letter)
    else:
        entry = _entry(letter)
        head = {"sequence": letter.get("sequence"), "tag": letter.get("tag")}
        print_fields({**head, **entry, "timestamp": moment(entry.get("timestamp"))})
    return DONE
