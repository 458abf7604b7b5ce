"""``pyoco-server up``: the gateway, and a NATS server with it unless one is given."""

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from pyoco_server.adapters.nats_server import DirectoryUnusableError, NatsServer, PortTakenError, nats_bootstrap_command
from pyoco_server.adapters.nats_server.probe import look_whether_nats
from pyoco_server.adapters.private_files import private_directory
from pyoco_server.adapters.result_key import create_result_key
from pyoco_server.cli.shared.errors import UsageError
from pyoco_server.cli.shared.flag_settings import load_with_flags
from pyoco_server.cli.shared.signals import StopRequests, first_of
from pyoco_server.cli.shared.startup import begin_logging, collect_less_often
from pyoco_server.logs import HTTP_SERVICE
from pyoco_server.settings import Settings

_DESCRIPTION = """\
Start the HTTP gateway. Without --nats-url (or PYOCO_NATS_URL) it starts a NATS server of its own, with its data in
PYOCO_DATA_DIR; workers connect to it on --nats-client-port. While the NATS of --nats-url does not answer, the gateway
listens and answers 503; it serves as soon as NATS answers.

Every option has an environment variable (see docs/settings.md); the option wins."""
_EXAMPLE: Final = "pyoco-server up --port 8000 --nats-url nats://10.0.0.5:4222"
_VARIABLES: Final = {
    "host": "PYOCO_HTTP_HOST",
    "port": "PYOCO_HTTP_PORT",
    "log_level": "PYOCO_LOG_LEVEL",
    "nats_url": "PYOCO_NATS_URL",
    "dashboard_lang": "PYOCO_DASHBOARD_LANG",
    "insecure_no_auth": "PYOCO_INSECURE_NO_AUTH",
}


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "up",
        help="start the gateway",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--host", metavar="ADDRESS", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", metavar="PORT", help="the port (8000)")
    parser.add_argument("--log-level", metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR (INFO)")
    parser.add_argument("--nats-url", metavar="URL", help="the NATS to use, instead of its own")
    add_dashboard_lang(parser)
    parser.add_argument(
        "--insecure-no-auth",
        action="store_const",
        const="1",
        help="listen on the network although PYOCO_HTTP_AUTH_MODE is none: every client can do everything",
    )
    nats = parser.add_argument_group("a NATS of its own")
    nats.add_argument("--with-nats-bootstrap", action="store_true", help="start it with the nats-bootstrap package")
    nats.add_argument("--nats-listen-host", metavar="ADDRESS", default="127.0.0.1", help="its address (127.0.0.1)")
    nats.add_argument("--nats-client-port", metavar="PORT", type=int, default=4222, help="for workers (4222)")
    nats.add_argument("--nats-http-port", metavar="PORT", type=int, default=None, help="for monitoring (off)")
    parser.set_defaults(run=run, example=_EXAMPLE)


def add_dashboard_lang(parser: argparse.ArgumentParser) -> None:
    """Add the option after the command; without it, the value given before the command stays."""
    parser.add_argument("--dashboard-lang", metavar="LANG", default=argparse.SUPPRESS, help="auto, ja or en (auto)")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    _check_one_nats(arguments)
    loaded = load_with_flags(os.environ, arguments, _VARIABLES, example=_EXAMPLE)
    begin_logging(loaded, HTTP_SERVICE)
    return asyncio.run(_serve(arguments, loaded.settings))


def _check_one_nats(arguments: argparse.Namespace) -> None:
    """UsageError if --with-nats-bootstrap starts a NATS server at another address than --nats-url names."""
    host, port = arguments.nats_listen_host, arguments.nats_client_port
    own = f"nats://[{host}]:{port}" if ":" in host else f"nats://{host}:{port}"
    if arguments.with_nats_bootstrap and arguments.nats_url not in {None, own}:
        raise UsageError(
            f"--with-nats-bootstrap starts a NATS server at {own}, but --nats-url names another one: leave out one of "
            "the two options, or choose the same address with --nats-listen-host and --nats-client-port",
            example="pyoco-server up --with-nats-bootstrap --nats-client-port 4222",
        )


async def _serve(arguments: argparse.Namespace, settings: Settings) -> int:
    from pyoco_server.cli.server.http_server import gateway_on  # noqa: PLC0415 it loads slowly; help and usage errors do not need it

    collect_less_often()
    asked = StopRequests()
    async with AsyncExitStack() as stack:
        async with asked.cutting_short():  # indexing very many runs takes long
            own_nats, supervision = await stack.enter_async_context(_nats(arguments, settings))
            connected = settings if own_nats is None else with_nats(settings, own_nats.url)
            serving = await stack.enter_async_context(gateway_on(connected, own_nats))
        if not asked.is_set():
            await first_of(asked, *serving, *supervision)
    return asked.exit_code


@asynccontextmanager
async def _nats(
    arguments: argparse.Namespace, settings: Settings
) -> AsyncIterator[tuple[NatsServer | None, list[asyncio.Task[None]]]]:
    """Yield a NATS server of our own and the task that supervises it; neither if the settings name another one."""
    if "urls" in settings.nats.model_fields_set and not arguments.with_nats_bootstrap:
        yield None, []
        return
    private_data_dir(settings)
    server = NatsServer(
        Path(settings.storage.data_dir) / "nats",
        host=arguments.nats_listen_host,
        port=arguments.nats_client_port,
        http_port=arguments.nats_http_port,
        durability=settings.storage.durability,
        command=nats_bootstrap_command() if arguments.with_nats_bootstrap else None,
    )
    async with _started(server):
        create_result_key(Path(settings.storage.data_dir))
        watching = asyncio.create_task(server.wait(), name="nats-server")
        try:
            yield server, [watching]
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


@asynccontextmanager
async def _started(server: NatsServer) -> AsyncIterator[None]:
    """Start the server; the error for a taken port says how to use the NATS there, or another port."""
    try:
        await server.start()
    except PortTakenError as error:
        host = "127.0.0.1" if error.host in {"0.0.0.0", "::"} else error.host  # noqa: S104 how to reach it
        if await look_whether_nats(host, error.port):
            where = f"[{host}]" if ":" in host else host
            error.add_note(
                f"a NATS server listens on port {error.port}; to use it: pyoco-server up --nats-url "
                f"nats://{where}:{error.port}"
            )
        error.add_note(f"to start another NATS server: pyoco-server up --nats-client-port {error.port + 1}")
        raise
    try:
        yield
    finally:
        await server.stop()


def private_data_dir(settings: Settings) -> None:
    """Make the data directory, which only its owner may enter. Raises ``DirectoryUnusableError``."""
    path = Path(settings.storage.data_dir)
    try:
        private_directory(path)
    except OSError as error:
        raise DirectoryUnusableError(path, error.strerror or str(error)) from error


def with_nats(settings: Settings, url: str) -> Settings:
    """Return the same settings with another NATS."""
    return settings.model_copy(update={"nats": settings.nats.model_copy(update={"urls": (url,)})})
