"""``submit`` and ``submit-yaml``: give a run to the gateway."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pyoco_server.cli import argument_types as kinds
from pyoco_server.cli.connection import connected
from pyoco_server.cli.output import is_terminal, note, print_fields, print_json
from pyoco_server.cli.params import add_params_options, read_params
from pyoco_server.cli.parsing import DONE
from pyoco_server.cli.subcommands import add_command
from pyoco_server.cli.usage import UsageError
from pyoco_server.client import calls
from pyoco_server.client.call import Call
from pyoco_server.client.steps import Sent
from pyoco_server.core.wire import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.subcommands import Subcommands

_SUBMIT_EXAMPLE = "pyoco-client submit --flow-name hello --param name=Ada"
_YAML_EXAMPLE = "pyoco-client submit-yaml --workflow-file flow.yaml --flow-name hello"
_PARAMS = "Parameters come from --params-file, then --params, then each --param; the later wins."


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    submit = add_command(
        subcommands, "submit", _submit, summary="submit a run of a flow", example=_SUBMIT_EXAMPLE, more=_PARAMS
    )
    submit.add_argument("--flow-name", metavar="NAME", type=kinds.name, required=True, help="which flow (required)")
    add_params_options(submit)
    _add_tag(submit)
    submit.add_argument("--tags", metavar="A,B", type=kinds.names, help="tags to find the run by (its tag)")
    submit.add_argument(
        "--idempotency-key", metavar="KEY", type=kinds.name, help="the same submission again gives the same run"
    )
    by_file = add_command(
        subcommands, "submit-yaml", _submit_yaml, summary="submit a run of a flow.yaml", example=_YAML_EXAMPLE
    )
    by_file.add_argument("--workflow-file", metavar="FILE", required=True, help="the flow.yaml (required)")
    by_file.add_argument("--flow-name", metavar="NAME", type=kinds.name, required=True, help="its name (required)")
    _add_tag(by_file)


def _add_tag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", metavar="TAG", type=kinds.name, help="which workers may take it (default)")


def _submit(arguments: argparse.Namespace) -> int:
    command = f"pyoco-client submit --flow-name {arguments.flow_name}"
    params = read_params(arguments.param, arguments.params, arguments.params_file, command=command)
    with connected(arguments) as client:
        call = calls.submission(
            arguments.flow_name,
            params,
            tag=arguments.tag,
            tags=arguments.tags,
            idempotency_key=arguments.idempotency_key,
        )
        return _tell(client.do(Sent(call)))


def _submit_yaml(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        return _tell(client.do(Sent(_from_file(arguments))))


def _from_file(arguments: argparse.Namespace) -> Call[JsonObject]:
    try:
        return calls.yaml_submission(Path(arguments.workflow_file), arguments.flow_name, arguments.tag)
    except (OSError, ValueError) as error:  # ValueError: a name no file can have
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--workflow-file {arguments.workflow_file}: {reason}", example=_YAML_EXAMPLE) from error


def _tell(answer: JsonObject) -> int:
    if is_terminal():
        print_fields(answer)
        note(f"watch it: pyoco-client watch {answer.get('run_id')} --until-terminal")
    else:
        print_json(answer)
    return DONE
