"""``list`` and ``list-vnext``: many runs, newest first."""

import argparse
from typing import TYPE_CHECKING

from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.output import Column, add_output_option, moment, note, print_json, print_table, wants_json
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.client.requests import Filters
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_NONE = "no runs match"
_COLUMNS = (
    Column("RUN ID", lambda run: run.get("run_id")),
    Column("STATUS", lambda run: run.get("status")),
    Column("FLOW", lambda run: run.get("flow_name")),
    Column("TAG", lambda run: run.get("tag")),
    Column("SUBMITTED", lambda run: moment(run.get("submitted_at"))),
    Column("UPDATED", lambda run: moment(run.get("updated_at"))),
    Column("ERROR", lambda run: run.get("error"), is_prose=True),
)


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    example = "pyoco-client list --status FAILED --limit 20"
    plain = add_command(
        subcommands, "list", _list, summary="list runs, newest first", example=example, more="JSON: an array of runs."
    )
    _add_filters(plain)
    paged = add_command(
        subcommands,
        "list-vnext",
        _list_pages,
        summary="list runs page by page",
        example="pyoco-client list-vnext --limit 100 --cursor CURSOR",
        more="JSON: an object with items and next_cursor; pass that as --cursor for the next page, until it is null.",
    )
    _add_filters(paged)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", choices=[status.value for status in RunStatus], help="only runs with this status")
    parser.add_argument("--flow", metavar="NAME", type=kinds.name, help="only runs of this flow")
    parser.add_argument("--tag", metavar="TAG", type=kinds.name, help="only runs with this tag")
    parser.add_argument("--full", action="store_true", help="whole snapshots")
    parser.add_argument("--limit", metavar="N", type=kinds.whole_number(1, 200), help="the most runs (50; up to 200)")
    parser.add_argument(
        "--updated-after", metavar="TIME", type=kinds.unix_seconds, help="only runs that changed since, Unix seconds"
    )
    parser.add_argument(
        "--submitted-after", metavar="TIME", type=kinds.unix_seconds, help="only runs submitted since, Unix seconds"
    )
    parser.add_argument("--cursor", metavar="CURSOR", type=kinds.name, help="begin where a page ended")
    parser.add_argument(
        "--workflow-yaml-sha256", metavar="HEX", type=kinds.name, help="only runs submitted with this flow.yaml"
    )
    parser.add_argument("--held", action="store_true", help="only runs held because no worker has their code")
    add_output_option(parser)


def _filters(arguments: argparse.Namespace) -> Filters:
    return Filters(
        status=arguments.status,
        flow=arguments.flow,
        tag=arguments.tag,
        limit=arguments.limit,
        updated_after=arguments.updated_after,
        submitted_after=arguments.submitted_after,
        cursor=arguments.cursor,
        workflow_yaml_sha256=arguments.workflow_yaml_sha256,
        held=True if arguments.held else None,
        include=["full"] if arguments.full else [],
    )


def _list(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        runs = client.list(**_filters(arguments))
    if wants_json(arguments):
        print_json(runs)
    else:
        print_table(_COLUMNS, runs, empty=_NONE)
    return DONE


def _list_pages(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        page = client.page(**_filters(arguments))
    if wants_json(arguments):
        answer: JsonObject = {"items": page.items, "next_cursor": page.next_cursor}
        print_json(answer)
    else:
        print_table(_COLUMNS, page.items, empty=_NONE)
        if page.next_cursor is not None:
            note(f"there are more: --cursor {page.next_cursor}")
    return DONE
