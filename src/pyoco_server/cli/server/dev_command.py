"""``pyoco-server dev``: NATS, a gateway and a worker with your flows in one command; ``--submit`` also runs a flow."""

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.adapters.result_key import create_result_key
from pyoco_server.app.runtime.unused_params import read_unused, warnings_of
from pyoco_server.cli.client.connection import by_option
from pyoco_server.cli.server.dev_console import DevConsole
from pyoco_server.cli.server.dev_worker import DEFAULTS, DevWorker
from pyoco_server.cli.server.up_command import add_dashboard_lang, private_data_dir, with_nats
from pyoco_server.cli.shared import argument_types as kinds
from pyoco_server.cli.shared.errors import UsageError, file_suggestion
from pyoco_server.cli.shared.flag_settings import load_with_flags
from pyoco_server.cli.shared.parsing import DONE, FAILED, INTERRUPTED
from pyoco_server.cli.shared.signals import StopRequests, first_of, running
from pyoco_server.cli.shared.startup import begin_logging
from pyoco_server.client import AsyncClient
from pyoco_server.client.config import API_KEY_VARIABLE, SERVER_VARIABLE
from pyoco_server.errors import InvalidInputError
from pyoco_server.logs import HTTP_SERVICE
from pyoco_server.settings import Settings

_COLOURS = {"SUCCEEDED": "green", "RUNNING": "yellow", "FAILED": "red", "CANCELLED": "magenta", "PENDING": "dim"}
_ENDS = frozenset({"COMPLETED", "FAILED", "CANCELLED"})


async def submit_and_watch(client: AsyncClient, flow_name: str, console: Console) -> int:
    """Submit a run and print its tasks until it has ended; return 0 if it completed."""
    async with client:
        run_id = await client.submit(flow_name)
        console.print(f"submitted [bold]{flow_name}[/bold]: run {run_id}", highlight=False)
        shown: dict[str, str] = {}
        async for snapshot in client.watch(run_id):
            for task, status in snapshot["tasks"].items():
                if shown.get(task) != status:
                    shown[task] = status
                    console.print(f"  [{_COLOURS[status]}]{status:<9}[/] {task}", highlight=False)
            if snapshot["status"] in _ENDS:
                error = f": {snapshot['error']}" if snapshot.get("error") else ""
                for sentence in warnings_of(read_unused(snapshot.get("unused_params")) or {}):
                    console.print(f"  note: {sentence}", highlight=False, markup=False)
                where = f"{client.server}/#/runs/{run_id}"
                console.print(f"[bold]{snapshot['status']}[/bold]{error}  ({where})", highlight=False)
                return DONE if snapshot["status"] == "COMPLETED" else FAILED
    return FAILED


_DESCRIPTION = """\
Start everything on this machine: NATS, the gateway, and a worker with the flows of the given files. When one of them
or a Python file beside them changes, a new worker replaces the old one; if it cannot import them, the old one stays and
the error is shown. Runs and their logs are kept in PYOCO_DATA_DIR (.pyoco).

Ctrl-C stops everything; the exit code is 130 then."""
_EXAMPLE: Final = "pyoco-server dev flows.py"
_ONCE_EXAMPLE: Final = f"{_EXAMPLE} --submit hello --once"
_VARIABLES: Final = {"port": "PYOCO_HTTP_PORT", "dashboard_lang": "PYOCO_DASHBOARD_LANG"}


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "dev",
        help="start everything on this machine",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="files with flows")
    parser.add_argument("--port", metavar="PORT", help="the gateway's port (8000)")
    add_dashboard_lang(parser)
    parser.add_argument("--submit", metavar="FLOW", type=kinds.name, help="submit a run of this flow and watch it")
    parser.add_argument(
        "--api-key", metavar="KEY", type=kinds.name, help=f"the API key to submit it with (${API_KEY_VARIABLE})"
    )
    parser.add_argument(
        "--once", action="store_true", help="with --submit: stop when that run has ended, with its exit code"
    )
    parser.set_defaults(run=run, example=_EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Run everything until a signal arrives."""
    if arguments.once and not arguments.submit:
        raise UsageError("--once: there is no run to wait for; name a flow with --submit", example=_ONCE_EXAMPLE)
    for name in arguments.files:
        if not Path(name).is_file():
            raise UsageError(f"there is no file '{name}'{file_suggestion(name)}", example=_EXAMPLE)
        if Path(name).suffix not in {".py", ".yaml", ".yml"}:
            raise UsageError(f"'{name}' is neither Python (.py) nor a flow.yaml (.yaml, .yml)", example=_EXAMPLE)
    given = {**DEFAULTS, **_without(API_KEY_VARIABLE, SERVER_VARIABLE)}
    loaded = load_with_flags(given, arguments, _VARIABLES, example=_EXAMPLE)
    begin_logging(loaded, HTTP_SERVICE)
    arguments.api_key = arguments.api_key or os.environ.get(API_KEY_VARIABLE) or None
    if arguments.submit and loaded.settings.auth.mode != "none" and arguments.api_key is None:
        raise UsageError(
            f"--submit {arguments.submit}: the gateway requires API keys, and none is set; set {API_KEY_VARIABLE} or "
            "--api-key. To create one, start without --submit and use 'pyoco-server keys create' with the address of "
            "NATS that is shown",
            example=f"{API_KEY_VARIABLE}=pyoco_k… {_EXAMPLE} --submit {arguments.submit}",
        )
    return asyncio.run(_everything(arguments, loaded.settings))


def _client(arguments: argparse.Namespace, settings: Settings, url: str) -> AsyncClient:
    """Return a client with the API key, in the header that the gateway expects."""
    try:
        header = settings.auth.api_key_header
        return AsyncClient(url, api_key=arguments.api_key, api_key_header=header)
    except InvalidInputError as error:  # a key that cannot be sent
        raise UsageError(by_option(error), example=_EXAMPLE) from error


async def _everything(arguments: argparse.Namespace, settings: Settings) -> int:
    from pyoco_server.bootstrap.gateway import open_gateway  # noqa: PLC0415 both load slowly; help and usage errors do not need them
    from pyoco_server.cli.server.http_server import GatewayServer, gateway_url  # noqa: PLC0415

    asked, console, url = StopRequests(), Console(), gateway_url(settings)
    stays = not arguments.submit or (sys.stdout.isatty() and not arguments.once)
    printer = DevConsole(console, url)
    private_data_dir(settings)
    nats = NatsServer(Path(settings.storage.data_dir) / "nats", durability=settings.storage.durability)
    async with AsyncExitStack() as stack:
        async with asked.cutting_short():
            await stack.enter_async_context(nats)
            create_result_key(Path(settings.storage.data_dir))
            services = await stack.enter_async_context(open_gateway(with_nats(settings, nats.url), own_nats=nats))
            gateway = GatewayServer(services, command=" ".join(["pyoco-server dev", *arguments.files]))
            serving = await stack.enter_async_context(gateway.running())
        if asked.is_set():
            return asked.exit_code
        printer.is_up(nats.url, nats.policy.line, asks_for_keys=settings.auth.mode != "none")
        worker = DevWorker(arguments.files, nats.url, printer)
        async with running(worker.keep(stays=stays)) as working:
            if arguments.submit:
                client = _client(arguments, settings, url)
                async with running(_submitted(arguments.submit, client, worker, console)) as watching:
                    await first_of(asked, serving, working, watching)
                    if not stays:
                        return watching.result() if watching.done() else INTERRUPTED
            await first_of(asked, serving, working)
    return asked.exit_code


async def _submitted(flow_name: str, client: AsyncClient, worker: DevWorker, console: Console) -> int:
    """Submit the run after the worker has loaded its flows; return the exit code."""
    await worker.looked.wait()
    return await submit_and_watch(client, flow_name, console)


def _without(*names: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in names}
