"""``pyoco-server replicas``: sets how many nodes of a NATS cluster store each stream."""

import argparse
import asyncio
import os
from typing import Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.cli.shared.flag_settings import load_with_flags
from pyoco_server.cli.shared.output import Column, print_table
from pyoco_server.cli.shared.parsing import DONE
from pyoco_server.settings import Settings

_DESCRIPTION = """\
Store the logs, the queue and everything else on this number of nodes of a NATS cluster; missing streams are created
first. A cluster of three nodes needs three: it then survives the loss of one. The command can be used at any time, also
while runs are executed; a new node counts only when it has caught up."""
_EXAMPLE: Final = "pyoco-server replicas 3 --nats-url nats://nats-1:4222,nats://nats-2:4222"
_COLUMNS: Final = (
    Column("STREAM", lambda stream: stream["name"]),
    Column("REPLICAS", lambda stream: stream["now"]),
    Column("BEFORE", lambda stream: stream["before"]),
)


def add_to(subcommands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Describe the arguments."""
    parser = subcommands.add_parser(
        "replicas",
        help="set how many nodes of a NATS cluster store everything",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("count", metavar="N", type=int, choices=(1, 3, 5), help="1, 3 or 5")
    parser.add_argument("--nats-url", metavar="URL", help="the address of NATS (PYOCO_NATS_URL)")
    parser.set_defaults(run=run, example=_EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Set the number of replicas, and print the result."""
    loaded = load_with_flags(os.environ, arguments, {"nats_url": "PYOCO_NATS_URL"}, example=_EXAMPLE)
    asyncio.run(_set(loaded.settings, arguments.count))
    return DONE


async def _set(settings: Settings, count: int) -> None:
    from pyoco_server.bootstrap.platform import give_replicas  # noqa: PLC0415 it loads slowly; help and usage errors do not need it

    try:
        done = await give_replicas(settings, count)
    except UnavailableError as error:
        error.add_note("--nats-url or PYOCO_NATS_URL is the address of NATS")
        raise
    print_table(_COLUMNS, [{"name": one.name, "now": one.now, "before": one.before} for one in done], empty="")
