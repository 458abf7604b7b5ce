"""``get``, ``tasks``, ``cancel`` and ``resume``: show one run, and control it."""

import argparse
from typing import TYPE_CHECKING, Any

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.snapshot_view import snapshot_view
from pyoco_server.cli.client.subcommands import add_command, add_id
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.output import add_output_option, console, is_terminal, note, print_json, wants_json
from pyoco_server.cli.shared.params import strict_json
from pyoco_server.cli.shared.parsing import DONE, FAILED
from pyoco_server.client import WaitTimeoutError
from pyoco_server.client.watch import has_ended
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_CANCEL_EXAMPLE = "pyoco-client cancel RUN_ID --wait --timeout-sec 30"
_RESUME_EXAMPLE = """pyoco-client resume RUN_ID approval --input '{"approved": true}'"""
_CANCELLED = "With --wait: exit code 0 when the run has ended, with any status; 1 if it has not in time."


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    get = add_command(subcommands, "get", _get, summary="show a run", example="pyoco-client get RUN_ID --records")
    add_id(get, "run_id", "which run (required)")
    get.add_argument("--records", action="store_true", help="with the records of its tasks")
    add_output_option(get)

    tasks = add_command(subcommands, "tasks", _tasks, summary="show a run's tasks", example="pyoco-client tasks RUN_ID")
    add_id(tasks, "run_id", "which run (required)")
    add_output_option(tasks)

    cancel = add_command(
        subcommands, "cancel", _cancel, summary="cancel a run", example=_CANCEL_EXAMPLE, more=_CANCELLED
    )
    add_id(cancel, "run_id", "which run (required)")
    cancel.add_argument("--reason", metavar="TEXT", help="the reason; it is kept in the log")
    cancel.add_argument("--wait", action="store_true", help="wait until it has ended")
    cancel.add_argument("--timeout-sec", metavar="SEC", type=kinds.seconds, help="with --wait: the longest wait")

    resume = add_command(subcommands, "resume", _resume, summary="resume a waiting node", example=_RESUME_EXAMPLE)
    resume.add_argument("run_id", metavar="RUN_ID", help="which run (required)")
    resume.add_argument("node", metavar="NODE", help="which node (required)")
    resume.add_argument("--input", metavar="JSON", help="the result of the wait (null)")
    resume.add_argument("--resume-key", metavar="KEY", help="resume it only if it waits for this key (any)")


def _get(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return _show(client.get(arguments.run_id, "records" if arguments.records else ()), arguments)


def _tasks(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return _show(client.tasks(arguments.run_id), arguments)


def _cancel(arguments: argparse.Namespace) -> int:
    if arguments.timeout_sec is not None and not arguments.wait:
        raise UsageError("--timeout-sec needs --wait", example=_CANCEL_EXAMPLE)
    with connected(arguments) as client:
        snapshot = client.cancel(arguments.run_id, arguments.reason)
        ended = True
        if arguments.wait and not has_ended(snapshot):
            try:
                snapshot = client.wait(arguments.run_id, arguments.timeout_sec, records=False)
            except WaitTimeoutError as error:
                snapshot, ended = error.snapshot or snapshot, False
                note(f"error: {error} [MSG-PYOCO-0021/ERR-PYOCO-0021]")
    _print(snapshot)
    return DONE if ended else FAILED


def _resume(arguments: argparse.Namespace) -> int:
    value = _json(arguments.input)
    with connected(arguments) as client:
        _print(client.resume(arguments.run_id, arguments.node, value, resume_key=arguments.resume_key))
    return DONE


def _json(text: str | None) -> Any:  # noqa: ANN401 any JSON value
    try:
        return None if text is None else strict_json(text)
    except ValueError as error:
        raise UsageError(f"--input is not JSON: {error}", example=_RESUME_EXAMPLE) from error


def _show(snapshot: JsonObject, arguments: argparse.Namespace) -> int:
    if wants_json(arguments):
        print_json(snapshot)
    else:
        console().print(snapshot_view(snapshot))
    return DONE


def _print(snapshot: JsonObject) -> None:
    if is_terminal():
        console().print(snapshot_view(snapshot))
    else:
        print_json(snapshot)
