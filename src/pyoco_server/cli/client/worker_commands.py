"""``workers``, ``worker-hide``, ``worker-show`` and ``metrics``: the state of the platform."""

import argparse
import sys
from typing import TYPE_CHECKING

from pyoco_server.app.recovery.worker_views import ACTIVE, STATES
from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command, add_id
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.output import (
    Column,
    add_output_option,
    is_terminal,
    joined,
    moment,
    print_fields,
    print_json,
    print_table,
    wants_json,
)
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_COLUMNS = (
    Column("WORKER ID", lambda worker: worker.get("worker_id")),
    Column("STATE", lambda worker: worker.get("state")),
    Column("TAGS", lambda worker: joined(worker.get("tags"))),
    Column("RUN ID", lambda worker: worker.get("current_run_id")),
    Column("LAST RUN ID", lambda worker: worker.get("last_run_id")),
    Column("SEEN", lambda worker: moment(worker.get("last_seen_at"))),
    Column("HIDDEN", lambda worker: "yes" if worker.get("hidden") else None),
)


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    workers = add_command(
        subcommands, "workers", _workers, summary="list workers", example="pyoco-client workers --scope all"
    )
    workers.add_argument(
        "--scope",
        choices=["active", "all"],
        help="active workers, or all (active, unless --state is one of the others)",
    )
    workers.add_argument("--state", choices=STATES, help="only workers in this state")
    workers.add_argument("--include-hidden", action="store_true", help="also hidden ones")
    workers.add_argument(
        "--limit", metavar="N", type=kinds.whole_number(1, 500), help="the most workers (100; up to 500)"
    )
    add_output_option(workers)

    hide = add_command(
        subcommands, "worker-hide", _hide, summary="hide a worker from lists", example="pyoco-client worker-hide cpu-1"
    )
    add_id(hide, "worker_id", "which worker (required)")
    show = add_command(
        subcommands, "worker-show", _show, summary="show a hidden worker", example="pyoco-client worker-show cpu-1"
    )
    add_id(show, "worker_id", "which worker (required)")
    add_command(
        subcommands,
        "metrics",
        _metrics,
        summary="print metrics in the format of Prometheus",
        example="pyoco-client metrics",
    )


def _workers(arguments: argparse.Namespace) -> int:
    is_inactive = arguments.state is not None and arguments.state not in ACTIVE
    with connected(arguments) as client:
        found = client.workers(
            scope=arguments.scope or ("all" if is_inactive else None),
            state=arguments.state,
            include_hidden=arguments.include_hidden,
            limit=arguments.limit,
        )
    if wants_json(arguments):
        print_json(found)
    else:
        print_table(_COLUMNS, found, empty="no workers; start one with pyoco-worker")
    return DONE


def _hide(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return _print(client.hide_worker(arguments.worker_id))


def _show(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return _print(client.show_worker(arguments.worker_id))


def _metrics(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        sys.stdout.write(client.metrics())
    return DONE


def _print(answer: JsonObject) -> int:
    if is_terminal():
        print_fields({**answer, "updated_at": moment(answer.get("updated_at"))})
    else:
        print_json(answer)
    return DONE
