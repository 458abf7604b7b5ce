"""The ``pyoco-worker`` command: takes jobs and runs their flows until a signal arrives."""

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

try:
    import msgspec

    from pyoco_server.bootstrap import flow_source, open_platform, open_worker, worker_options
    from pyoco_server.cli.server.supervised_worker import Supervisor
    from pyoco_server.cli.shared.errors import UsageError
    from pyoco_server.cli.shared.flag_settings import load_with_flags
    from pyoco_server.cli.shared.parsing import Parser, add_version, run_command_line
    from pyoco_server.cli.shared.signals import StopRequests, first_of, running
    from pyoco_server.cli.shared.startup import begin_logging, collect_less_often, opened
    from pyoco_server.client.config import API_KEY_VARIABLE
    from pyoco_server.errors import InvalidInputError
    from pyoco_server.flows.model import Isolation
    from pyoco_server.identifiers import TAG, WORKER_ID
    from pyoco_server.logs import WORKER_SERVICE
    from pyoco_server.settings import Settings, secret_variables
    from pyoco_server.worker.flow_source import (
        Flows,
        Resolver,
        ResolverError,
        discover,
        load_resolver,
        no_flows,
    )
    from pyoco_server.worker.options import WorkerOptions
    from pyoco_server.worker.wheel_sync.fresh_resolver import FreshResolver
except KeyboardInterrupt:  # after sys.exit, CPython still ends by the signal if it interrupted exec() of a string
    os._exit(130)

_DESCRIPTION = """\
Take jobs from NATS and run their flows.

Flows come from --flow-resolver, a function that takes a flow's name and returns it (KeyError: no such flow), or from
the modules given with --flows, by name. Without either, only runs submitted as flow.yaml can be run.

A worker waits until NATS answers, except with --run-once.

After SIGTERM or Ctrl-C it finishes its runs, or releases them after PYOCO_WORKER_STOP_TIMEOUT_SEC; a second signal
releases them at once. The exit code is 0 after SIGTERM and 130 after Ctrl-C. Every option has an environment variable
(see docs/settings.md); the option wins."""
_log = logging.getLogger(__name__)
_EXAMPLE: Final = "pyoco-worker --tags cpu,gpu --flows myproject.flows"

_LONGEST_POLL_SEC: Final = 300

_VARIABLES: Final = {
    "nats_url": "PYOCO_NATS_URL",
    "concurrency": "PYOCO_WORKER_CONCURRENCY",
    "wheel_sync": "PYOCO_WHEEL_SYNC_ENABLED",
    "wheel_sync_dir": "PYOCO_WHEEL_SYNC_DIR",
    "wheel_sync_interval_sec": "PYOCO_WHEEL_SYNC_INTERVAL_SEC",
    "wheel_install_timeout_sec": "PYOCO_WHEEL_INSTALL_TIMEOUT_SEC",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command_line(_parser, argv)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="pyoco-worker",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_version(parser)
    parser.add_argument("--nats-url", metavar="URL", help="the address of NATS; several are separated by commas")
    parser.add_argument("--tags", metavar="A,B", help="take jobs with any of these tags (default)")
    parser.add_argument("--worker-id", metavar="ID", help="the worker's name (generated)")
    parser.add_argument("--flow-resolver", metavar="MODULE:FUNCTION|FILE.py:FUNCTION", help="returns flows by name")
    parser.add_argument("--flows", metavar="MODULE|FILE.py", action="append", default=[], help="a module with flows")
    parser.add_argument("--concurrency", metavar="N", help="runs at a time (8)")
    parser.add_argument("--isolation", choices=["thread", "process"], help="where plain functions run (thread)")
    parser.add_argument("--poll-timeout", metavar="SEC", type=float, default=1.0, help="the longest wait for jobs (1)")
    parser.add_argument("--run-once", action="store_true", help="handle at most one job, and exit")
    wheels = parser.add_argument_group("wheels")
    wheels.add_argument("--wheel-sync", action=argparse.BooleanOptionalAction, help="install wheels for its tags")
    wheels.add_argument("--wheel-sync-dir", metavar="DIR", help="the folder of installed wheels (.pyoco/wheels)")
    wheels.add_argument("--wheel-sync-interval-sec", metavar="SEC", help="how often to check for new ones (10)")
    wheels.add_argument("--wheel-install-timeout-sec", metavar="SEC", help="the longest installation (180)")
    # For pyoco-server dev: the socket to the supervisor of this worker.
    parser.add_argument("--kept-by", metavar="FD", type=int, help=argparse.SUPPRESS)
    parser.set_defaults(run=_run, example=_EXAMPLE)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    supervisor = None if arguments.kept_by is None else Supervisor(arguments.kept_by)
    try:
        loaded = load_with_flags(os.environ, arguments, _VARIABLES, example=_EXAMPLE)
        begin_logging(loaded, WORKER_SERVICE)
        options = _options(arguments, loaded.settings)
        fresh = FreshResolver(lambda: _resolver(arguments), _modules(arguments))
        may_come = loaded.settings.wheels.sync_enabled
        origins = _found(fresh, may_come=may_come) if supervisor is not None or not may_come else {}
    except InvalidInputError as error:
        if supervisor is not None:
            return supervisor.refused(str(error))
        if isinstance(error, ResolverError):
            raise UsageError(str(error), example=_EXAMPLE) from error
        raise
    _forget_secrets()
    if supervisor is not None:
        supervisor.wait_to_begin(origins)
    collect_less_often()
    return asyncio.run(_work(loaded.settings, options, fresh, _places(arguments), run_once=arguments.run_once))


def _forget_secrets() -> None:
    """Remove what only the platform may know from the environment, which the code of flows and its processes see."""
    if os.environ.get("PYOCO_AUTH_PEPPER"):
        _log.warning(
            "PYOCO_AUTH_PEPPER is set for this worker, which does not need it: start it without, since the code of "
            "flows can read what its process was started with",
            extra={"action": "pepper_at_worker"},
        )
    for name in (*secret_variables(), API_KEY_VARIABLE):
        os.environ.pop(name, None)


def _found(fresh: FreshResolver, *, may_come: bool) -> Mapping[str, str]:
    """Return the file of each flow; a missing module is an error, unless a wheel may bring it later."""
    try:
        made = fresh.make()
    except ResolverError:
        if may_come:
            return {}
        raise
    return made.origins if isinstance(made, Flows) else {}


def _options(arguments: argparse.Namespace, settings: Settings) -> WorkerOptions:
    tags = tuple(dict.fromkeys(tag.strip() for tag in (arguments.tags or "").split(",") if tag.strip()))
    if arguments.tags is not None and not tags:
        raise UsageError("--tags: it has no tag", example=_EXAMPLE)
    for tag in tags:
        if not TAG.fits(tag):
            raise UsageError(f"--tags: {TAG.problem(tag)}", example=_EXAMPLE)
    if arguments.worker_id is not None and not WORKER_ID.fits(arguments.worker_id):
        raise UsageError(f"--worker-id: {WORKER_ID.problem(arguments.worker_id)}", example=_EXAMPLE)
    if not 0 < arguments.poll_timeout <= _LONGEST_POLL_SEC:
        raise UsageError(f"--poll-timeout must be from 0 to {_LONGEST_POLL_SEC} seconds", example=_EXAMPLE)
    options = worker_options(settings, tags=tags, worker_id=arguments.worker_id or "")
    isolation = Isolation(arguments.isolation) if arguments.isolation else None
    return msgspec.structs.replace(options, isolation=isolation, poll_timeout_sec=arguments.poll_timeout)


def _modules(arguments: argparse.Namespace) -> list[str]:
    """Return the modules with flows, or that of the resolver."""
    if arguments.flow_resolver is None:
        given: list[str] = arguments.flows
        return given
    if arguments.flows:
        raise UsageError("--flow-resolver and --flows exclude each other: give one of them", example=_EXAMPLE)
    return [arguments.flow_resolver.rpartition(":")[0]]


def _places(arguments: argparse.Namespace) -> list[str]:
    """Return what is imported to find flows: each package with all its modules, or the resolver alone."""
    if arguments.flow_resolver is not None:
        return _modules(arguments)
    code = [where for where in arguments.flows if not where.endswith((".yaml", ".yml"))]
    return [where if where.endswith(".py") else f"{where}.*" for where in code]


def _resolver(arguments: argparse.Namespace) -> Resolver:
    folder = str(Path.cwd())
    if folder not in sys.path:  # as Python does for a script
        sys.path.insert(0, folder)
    if arguments.flow_resolver is not None:
        return load_resolver(arguments.flow_resolver)
    return discover(arguments.flows) if arguments.flows else no_flows


async def _work(
    settings: Settings, options: WorkerOptions, flows: FreshResolver, places: Sequence[str], *, run_once: bool
) -> int:
    asked = StopRequests()
    async with contextlib.AsyncExitStack() as stack:
        opening = functools.partial(open_platform, settings, name=f"pyoco-worker {options.worker_id}")
        if run_once:  # it does not wait for NATS
            platform = await stack.enter_async_context(opening())
        else:
            async with running(opened(stack, opening)) as waiting:
                await first_of(asked, waiting)
                if not waiting.done():
                    return asked.exit_code
                platform = waiting.result()
        source = flow_source(settings, flows, flows.modules)
        worker = await stack.enter_async_context(
            open_worker(platform, settings, options, source, places=places, on_new_code=flows.renew)
        )
        asked.on_each(worker.stop)
        if run_once:
            await worker.run_once()
        else:
            await worker.run()
    return asked.exit_code
