"""``redrive``: repeat an ended run as a new one, or all runs that fit a filter."""

import argparse
from typing import TYPE_CHECKING, Any

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command
from pyoco_server.cli.client.submit_commands import add_wait_options, send
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.descriptions import one_line
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.output import Column, note, print_json, print_table, wants_json
from pyoco_server.cli.shared.params import add_params_options, read_params
from pyoco_server.cli.shared.parsing import DONE, FAILED
from pyoco_server.client import Client
from pyoco_server.client import requests as calls
from pyoco_server.client.requests import RedriveFilters
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_EXAMPLE = "pyoco-client redrive RUN_ID --param address=Rome --dry-run"
_MANY_EXAMPLE = "pyoco-client redrive --status FAILED --flow etl --per-sec 40"
_MORE = """\
What succeeded is kept with its results, what failed and everything behind it runs again; the old run does not change.
With --dry-run, only the plan is shown. Without RUN_ID, all runs that fit --status, --flow, --tag, --error-code,
--ended-after and --ended-before are redriven, each once however often the command is given."""
_FILTERS = ("status", "flow", "error_code", "ended_after", "ended_before")
_OF_ONE = ("ask_again", "param", "params", "params_file", "idempotency_key", "wait", "timeout_sec")
_OF_MANY = ("per_sec", "limit")
_PAGE = 1_000
_PLAN = (
    Column("NODE", lambda row: row.get("node")),
    Column("WHAT", lambda row: row.get("what")),
    Column("WHY", lambda row: row.get("why"), is_prose=True),
)
_RESULTS = (
    Column("OLD RUN", lambda row: row.get("of")),
    Column("NEW RUN", lambda row: row.get("run_id")),
    Column("RUNS AGAIN", lambda row: ", ".join(_names(row, "run"))),
    Column("ERROR", lambda row: (row.get("error") or {}).get("message"), is_prose=True),
)


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    redrive = add_command(
        subcommands, "redrive", _redrive, summary="repeat ended runs as new ones", example=_EXAMPLE, more=_MORE
    )
    redrive.add_argument("run_id", metavar="RUN_ID", nargs="?", type=kinds.name, help="which run; or use the filters")
    redrive.add_argument(
        "--from",
        dest="from_",
        metavar="NODE",
        action="append",
        type=kinds.name,
        help="failed: what did not succeed (failed); start: everything; or also this node or task, repeatable",
    )
    add_params_options(redrive)
    redrive.add_argument(
        "--ask-again", metavar="WAIT", action="append", type=kinds.name, help="ask this wait again, repeatable"
    )
    redrive.add_argument(
        "--tag",
        metavar="TAG",
        type=kinds.name,
        help="which workers may take it; without RUN_ID: only runs with this tag",
    )
    redrive.add_argument("--reason", metavar="TEXT", help="the reason; it is kept in the log")
    redrive.add_argument("--dry-run", action="store_true", help="only show the plan")
    redrive.add_argument(
        "--idempotency-key", metavar="KEY", type=kinds.name, help="redriving again with this key returns the same run"
    )
    redrive.add_argument(
        "--status", choices=["FAILED", "COMPLETED", "CANCELLED"], help="only runs with this status (FAILED)"
    )
    redrive.add_argument("--flow", metavar="NAME", type=kinds.name, help="only runs of this flow")
    redrive.add_argument("--error-code", metavar="CODE", type=kinds.name, help="only runs that failed with this code")
    redrive.add_argument(
        "--ended-after", metavar="TIME", type=kinds.unix_seconds, help="only runs that ended since, Unix seconds"
    )
    redrive.add_argument(
        "--ended-before", metavar="TIME", type=kinds.unix_seconds, help="only runs that ended before, Unix seconds"
    )
    redrive.add_argument("--per-sec", metavar="N", type=kinds.seconds, help="the most runs that begin in a second (40)")
    redrive.add_argument("--limit", metavar="N", type=kinds.whole_number(1), help="the most runs (all)")
    add_wait_options(redrive)


def _redrive(arguments: argparse.Namespace) -> int:
    if arguments.run_id is not None:
        _refuse(arguments, (*_FILTERS, *_OF_MANY), "with RUN_ID, {} has no meaning: the filters choose among many runs")
        return _redrive_one(arguments.run_id, arguments)
    if all(getattr(arguments, name) is None for name in (*_FILTERS, "tag")):
        raise UsageError("name a run, or choose runs by --status, --flow, --tag or --error-code", example=_MANY_EXAMPLE)
    _refuse(arguments, _OF_ONE, "{} needs a RUN_ID")
    return _redrive_many(arguments)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], text: str) -> None:
    for name in names:
        if getattr(arguments, name):
            raise UsageError(text.format(f"--{name.replace('_', '-')}"), example=arguments.example)


def _from(arguments: argparse.Namespace) -> str | list[str]:
    given: list[str] = arguments.from_ or ["failed"]
    if len(given) == 1 and given[0] in ("failed", "start"):
        return given[0]
    return [name for name in given if name != "failed"]


# --- One run ---------------------------------------------------------------------------------------------------------


def _redrive_one(run_id: str, arguments: argparse.Namespace) -> int:
    command = f"pyoco-client redrive {run_id}"
    params = read_params(arguments.param, arguments.params, arguments.params_file, command=command)
    options: dict[str, Any] = {
        "from_": _from(arguments),
        "params": params,
        "tag": arguments.tag,
        "ask_again": arguments.ask_again or (),
        "reason": arguments.reason,
    }
    if arguments.dry_run:
        if arguments.wait:
            raise UsageError("--wait: with --dry-run there is no run to wait for", example=_EXAMPLE)
        with connected(arguments) as client:
            return _show_plan(client.redrive(run_id, dry_run=True, **options), arguments)
    return send(lambda: calls.redriving(run_id, idempotency_key=arguments.idempotency_key, **options), arguments)


def _show_plan(answer: JsonObject, arguments: argparse.Namespace) -> int:
    if wants_json(arguments):
        print_json(answer)
        return DONE
    plan = answer.get("plan") or {}
    rows = [{**entry, "what": what} for what in ("keep", "run", "drop") for entry in plan.get(what) or []]
    print_table(_PLAN, rows, empty="the run had no nodes: it begins at the start")
    return DONE


# --- Many runs -------------------------------------------------------------------------------------------------------


def _redrive_many(arguments: argparse.Namespace) -> int:
    """Send requests until no run is left; the results of each are printed as they come."""
    filters = RedriveFilters(
        status=arguments.status,
        flow=arguments.flow,
        tag=arguments.tag,
        error_code=arguments.error_code,
        ended_after=arguments.ended_after,
        ended_before=arguments.ended_before,
    )
    done = refused = 0
    with connected(arguments) as client:
        for results in _pages(client, arguments, filters):
            done += len(results)
            refused += sum("error" in result for result in results)
            if wants_json(arguments):
                for result in results:
                    print_json(result)
            elif results:
                print_table(_RESULTS, results, empty="")
    if not wants_json(arguments):
        what = "would be redriven" if arguments.dry_run else "redriven"
        note(f"{done - refused} runs {what}" + (f", {refused} refused" if refused else ""))
    return FAILED if refused else DONE


def _pages(client: Client, arguments: argparse.Namespace, filters: RedriveFilters) -> Any:  # noqa: ANN401 a generator
    left, cursor = arguments.limit, None
    while left is None or left > 0:
        answer = client.redrive_many(
            from_=_from(arguments),
            per_sec=arguments.per_sec,
            limit=_PAGE if left is None else min(left, _PAGE),
            cursor=cursor,
            reason=arguments.reason,
            dry_run=arguments.dry_run,
            **filters,
        )
        results: list[JsonObject] = answer.get("results") or []
        yield results
        cursor = answer.get("next_cursor")
        if cursor is None:
            return
        left = None if left is None else left - len(results)


def _names(row: Any, part: str) -> list[str]:  # noqa: ANN401 any JSON
    return [one_line(str(entry.get("node"))) for entry in (row.get("plan") or {}).get(part) or []]
