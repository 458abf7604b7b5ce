"""``output``: the output of a node, on stdout or in a file."""

import argparse
import sys
from typing import TYPE_CHECKING

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.output import add_output_option, is_terminal, note, print_json, wants_json
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.client import Client
from pyoco_server.values.codec import OutputKind

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_EXAMPLE = "pyoco-client output RUN_ID NODE --file result.json"
_MORE = """\
JSON and tagged JSON are printed; a pickle is only written to a file, and never loaded. With --file the output is
streamed, however large it is, and an existing file is replaced when all of it has arrived."""


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    output = add_command(
        subcommands, "output", _output, summary="print or save the output of a node", example=_EXAMPLE, more=_MORE
    )
    output.add_argument("run_id", metavar="RUN_ID", help="which run (required)")
    output.add_argument("node", metavar="NODE", help="which node (required)")
    output.add_argument("--file", metavar="PATH", help="write it to this file (stdout)")
    add_output_option(output, "json", "value")


def _output(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        if arguments.file is not None:
            return _save(client, arguments)
        found = client.output(arguments.run_id, arguments.node)
    if found.kind == OutputKind.PICKLE:
        raise UsageError(f"the output is a pickle of {len(found.content)} bytes: pass --file PATH", example=_EXAMPLE)
    value = found._replace(kind=OutputKind.JSON.value).value()  # as it is stored: tags stay visible
    if wants_json(arguments):
        print_json({"run_id": arguments.run_id, "node_id": arguments.node, "output_kind": found.kind, "value": value})
    elif is_terminal():
        print_json(value)
    else:
        sys.stdout.buffer.write(found.content + b"\n")
        sys.stdout.buffer.flush()
    return DONE


def _save(client: Client, arguments: argparse.Namespace) -> int:
    try:
        saved = client.save_output(arguments.run_id, arguments.node, arguments.file)
    except (OSError, ValueError) as error:  # ValueError: not a valid file name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--file {arguments.file}: {reason}", example=_EXAMPLE) from error
    if wants_json(arguments):
        print_json(
            {
                "run_id": arguments.run_id,
                "node_id": arguments.node,
                "output_kind": saved.kind,
                "bytes": saved.size,
                "file": str(saved.file),
            }
        )
    else:
        note(f"{saved.size} bytes ({saved.kind}) written to {saved.file}")
    return DONE
