"""``wheels``, ``wheel-history``, ``wheel-upload`` and ``wheel-delete``: the code that workers install."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from pyoco_server.cli.client.connection import connected
from pyoco_server.cli.client.subcommands import add_command, add_either
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.descriptions import one_line
from pyoco_server.cli.shared.errors import UsageError
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
from pyoco_server.client.wheel_upload import Progress
from pyoco_server.core.json_codec import JsonObject

if TYPE_CHECKING:
    from pyoco_server.cli.client.subcommands import Subcommands

_UPLOAD_EXAMPLE = "pyoco-client wheel-upload dist/demo-1.2.0-py3-none-any.whl --tags cpu,linux"
_DELETE_EXAMPLE = "pyoco-client wheel-delete demo-1.2.0-py3-none-any.whl"
_HISTORY_EXAMPLE = "pyoco-client wheel-history --limit 100 --action upload"
_WHEELS = (
    Column("NAME", lambda wheel: wheel.get("name")),
    Column("BYTES", lambda wheel: wheel.get("size_bytes")),
    Column("TAGS", lambda wheel: joined(wheel.get("tags"))),
    Column("MODIFIED", lambda wheel: moment(wheel.get("modified"))),
    Column("SHA256", lambda wheel: str(wheel.get("sha256_hex") or "-")[:12]),
)
_HISTORY = (
    Column("TIME", lambda event: moment(event.get("occurred_at"))),
    Column("ACTION", lambda event: event.get("action")),
    Column("NAME", lambda event: event.get("wheel_name")),
    Column("TAGS", lambda event: joined(event.get("tags"))),
    Column("BY", lambda event: (event.get("actor") or {}).get("api_key_id")),
    Column("FROM", lambda event: (event.get("source") or {}).get("remote_addr")),
)


def add_to(subcommands: "Subcommands") -> None:
    """Describe the arguments."""
    wheels = add_command(subcommands, "wheels", _wheels, summary="list wheels", example="pyoco-client wheels")
    add_output_option(wheels)

    history = add_command(
        subcommands,
        "wheel-history",
        _history,
        summary="list who uploaded and deleted wheels",
        example=_HISTORY_EXAMPLE,
    )
    history.add_argument(
        "--limit", metavar="N", type=kinds.whole_number(1, 500), help="the most entries (100; up to 500)"
    )
    history.add_argument("--wheel-name", metavar="NAME", type=_wheel_name, help="only this wheel")
    history.add_argument("--action", choices=["upload", "delete"], help="only this action")
    add_output_option(history)

    upload = add_command(
        subcommands, "wheel-upload", _upload, summary="upload a wheel for the workers", example=_UPLOAD_EXAMPLE
    )
    add_either(upload, "wheel_file", "the wheel (required)", metavar="FILE", value="FILE")
    upload.add_argument("--tags", metavar="A,B", type=kinds.names, default=[], help="for workers with these tags (all)")
    upload.add_argument(
        "--replace",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="replace what is there; the version must be higher either way",
    )
    delete = add_command(subcommands, "wheel-delete", _delete, summary="delete a wheel", example=_DELETE_EXAMPLE)
    add_either(delete, "name", "which wheel (required)", metavar="NAME", value="NAME")


def _wheel_name(text: str) -> str:
    if not text.endswith(".whl") or "/" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a wheel, such as demo-1.2.0-py3-none-any.whl")
    return text


def _wheels(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        found = client.wheels()
    if wants_json(arguments):
        print_json(found)
    else:
        print_table(_WHEELS, found, empty="no wheels")
    return DONE


def _history(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        found = client.wheel_history(limit=arguments.limit, wheel_name=arguments.wheel_name, action=arguments.action)
    if wants_json(arguments):
        print_json(found)
    else:
        print_table(_HISTORY, found, empty="nothing was uploaded or deleted")
    return DONE


def _upload(arguments: argparse.Namespace) -> int:
    path = Path(arguments.wheel_file)
    if path.suffix != ".whl":
        raise UsageError(f"--wheel-file {path}: not the name of a wheel (*.whl)", example=_UPLOAD_EXAMPLE)
    with connected(arguments) as client:
        try:
            with _shown_progress(path.name) as progress:
                answer = client.upload_wheel(path, tags=arguments.tags, replace=arguments.replace, progress=progress)
        except (OSError, ValueError) as error:  # ValueError: not a valid file name
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--wheel-file {path}: {reason}", example=_UPLOAD_EXAMPLE) from error
    return _print(answer)


@contextmanager
def _shown_progress(name: str) -> Iterator[Progress | None]:
    """Show a progress bar on stderr if that is a terminal, until the answer arrives."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
        task = bars.add_task(one_line(name), total=None)

        def progress(sent: int, size: int) -> None:
            bars.update(task, completed=sent, total=size)
            if sent == size:
                bars.update(task, description="sent; the gateway checks it")

        yield progress


def _delete(arguments: argparse.Namespace) -> int:
    try:
        name = _wheel_name(arguments.name)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--name: {error}", example=_DELETE_EXAMPLE) from error
    with connected(arguments) as client:
        return _print(client.delete_wheel(name))


def _print(answer: JsonObject) -> int:
    if is_terminal():
        print_fields({**answer, "modified": moment(answer.get("modified"))})
    else:
        print_json(answer)
    return DONE
