"""``submit`` and ``submit-yaml``: submit a run to the gateway; with ``--wait``, follow it to its end."""

import argparse
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from pyoco_server.app.runtime.unused_params import read_unused, warnings_of
from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.snapshot_view import live_snapshots, snapshot_view
from pyoco_server.cli.client.subcommands import add_command, add_either
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.descriptions import LONGEST_REMARK, one_line
from pyoco_server.cli.shared.errors import UsageError, file_suggestion
from pyoco_server.cli.shared.output import add_output_option, console, is_terminal, note, print_fields, print_json
from pyoco_server.cli.shared.params import add_params_options, read_params
from pyoco_server.cli.shared.parsing import DONE, FAILED
from pyoco_server.client import Client, WaitTimeoutError
from pyoco_server.client import requests as calls
from pyoco_server.client.sans_io import Call, Sent
from pyoco_server.client.watch import has_ended
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_SUBMIT_EXAMPLE = "pyoco-client submit hello --param name=Ada --wait"
_YAML_EXAMPLE = "pyoco-client submit-yaml flow.yaml --flow-name hello"
_WAITED = """\
With --wait, the run is followed to its end: a live view on a terminal, else its last snapshot. Exit code 0 if it
completed; 1 if it failed, was cancelled, or did not end in time. --output id prints only the run's id:
RUN=$(pyoco-client submit hello --output id)"""
_PARAMS = f"Parameters come from --params-file, then --params, then each --param; the later one wins.\n\n{_WAITED}"


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    submit = add_command(
        subcommands, "submit", _submit, summary="submit a run of a flow", example=_SUBMIT_EXAMPLE, more=_PARAMS
    )
    add_either(submit, "flow_name", "which flow (required)", metavar="FLOW", value="NAME", kind=kinds.name)
    add_params_options(submit)
    _add_tag(submit)
    submit.add_argument("--tags", metavar="A,B", type=kinds.names, help="tags to find the run by (its tag)")
    submit.add_argument(
        "--idempotency-key", metavar="KEY", type=kinds.name, help="submitting again with this key returns the same run"
    )
    add_wait_options(submit)
    by_file = add_command(
        subcommands,
        "submit-yaml",
        _submit_yaml,
        summary="submit a run of a flow.yaml",
        example=_YAML_EXAMPLE,
        more=_WAITED,
    )
    add_either(by_file, "workflow_file", "the flow.yaml (required)", metavar="FILE", value="FILE")
    by_file.add_argument("--flow-name", metavar="NAME", type=kinds.name, help="its name (that of the file)")
    _add_tag(by_file)
    add_wait_options(by_file)


def _add_tag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="TAG", type=kinds.name, help="which workers may take it (default)")


def add_wait_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`send`."""
    parser.add_argument("--wait", action="store_true", help="follow the run to its end; the exit code is its outcome")
    parser.add_argument("--timeout-sec", metavar="SEC", type=kinds.seconds, help="with --wait: the longest wait")
    add_output_option(parser, "json", "id", "table")


def _submit(arguments: argparse.Namespace) -> int:
    command = f"pyoco-client submit {arguments.flow_name}"
    if arguments.flow_name.endswith((".py", ".yaml", ".yml")) and Path(arguments.flow_name).is_file():
        note(f"note: {arguments.flow_name} is a file; submit takes the name of a flow, submit-yaml a flow.yaml")
    params = read_params(arguments.param, arguments.params, arguments.params_file, command=command)

    def call() -> Call[JsonObject]:
        return calls.submission(
            arguments.flow_name,
            params,
            tag=arguments.tag,
            tags=arguments.tags,
            idempotency_key=arguments.idempotency_key,
        )

    return send(call, arguments)


def _submit_yaml(arguments: argparse.Namespace) -> int:
    return send(lambda: _from_file(arguments), arguments)


def _from_file(arguments: argparse.Namespace) -> Call[JsonObject]:
    file = Path(arguments.workflow_file)
    try:
        return calls.yaml_submission(file, arguments.flow_name or file.stem, arguments.tag)
    except (OSError, ValueError) as error:  # ValueError: not a valid file name
        reason = getattr(error, "strerror", None) or error
        near = file_suggestion(arguments.workflow_file) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"--workflow-file {arguments.workflow_file}: {reason}{near}", example=_YAML_EXAMPLE) from error


def send(call: Callable[[], Call[JsonObject]], arguments: argparse.Namespace) -> int:
    """Send a request that begins a run; print the answer, or with ``--wait`` follow the run to its end."""
    if arguments.timeout_sec is not None and not arguments.wait:
        raise UsageError("--timeout-sec needs --wait", example=arguments.example)
    with connected(arguments) as client:
        answer = client.do(Sent(call()))
        return _follow(client, answer, arguments) if arguments.wait else _print(answer, arguments.output)


def _print(answer: JsonObject, output: str | None) -> int:
    if output == "id":
        _print_id(answer)
    elif output == "table" or (output is None and is_terminal()):
        print_fields(answer)
        note(f"watch it: pyoco-client watch {answer.get('run_id')} --until-terminal")
    else:
        print_json(answer)
    return DONE


def _print_id(answer: JsonObject) -> None:
    print(answer.get("run_id"), flush=True)  # noqa: T201 the output of the command


# --- With --wait -----------------------------------------------------------------------------------------------------


def _follow(client: Client, answer: JsonObject, arguments: argparse.Namespace) -> int:
    """Print the id first, as the run continues even if the wait fails; then follow the run to its end."""
    run_id = str(answer.get("run_id"))
    if arguments.output == "id":
        _print_id(answer)
    else:
        note(f"submitted run {one_line(run_id)}")
    try:
        last = _last_snapshot(client, run_id, arguments)
    except WaitTimeoutError as error:
        note(f"error: {error}; it continues: pyoco-client watch {one_line(run_id)} --until-terminal")
        if (error.snapshot or {}).get("status") == "PENDING":
            note("hint: no worker has taken it; 'pyoco-client workers' shows the workers and their tags")
        return FAILED
    unused = read_unused(last.get("unused_params")) or {}
    for sentence in warnings_of(unused):
        note(one_line(f"note: {sentence}", most=LONGEST_REMARK))
    if last.get("status") == "COMPLETED":
        return DONE
    reason = f": {last['error']}" if last.get("error") else ""
    outcome = one_line(f"error: run {run_id} is {last.get('status')}{reason}", most=LONGEST_REMARK)
    note(f"{outcome} [MSG-PYOCO-0007/ERR-PYOCO-0007]")
    return FAILED


def _last_snapshot(client: Client, run_id: str, arguments: argparse.Namespace) -> JsonObject:
    """Wait for the last snapshot, and show it; on a terminal, also those before."""
    if arguments.output in (None, "table") and is_terminal():
        return _shown_live(client, run_id, arguments.timeout_sec)
    last = client.wait(run_id, arguments.timeout_sec)
    if arguments.output == "table":
        console().print(snapshot_view(last))
    elif arguments.output != "id":
        print_json(last)
    return last


def _shown_live(client: Client, run_id: str, timeout_sec: float | None) -> JsonObject:
    last: JsonObject = {}
    snapshots = client.watch(run_id, records=True, timeout=timeout_sec, until_terminal=True)
    with closing(snapshots), live_snapshots() as show:
        for last in snapshots:
            show(last)
    if not has_ended(last):
        raise WaitTimeoutError(f"run {run_id} has not ended within {timeout_sec:g} s", last)
    return last
