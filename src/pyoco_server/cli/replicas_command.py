"""``pyoco-server replicas``: how many nodes of a NATS cluster hold everything."""

import argparse
import asyncio
import os
from typing import Final

from pyoco_server.app.ports import UnavailableError
from pyoco_server.cli.flag_settings import load_with_flags
from pyoco_server.cli.output import Column, print_table
from pyoco_server.cli.parsing import DONE
from pyoco_server.settings import Settings

_DESCRIPTION = """\
Let so many nodes of a NATS cluster hold the logs, the queue and everything else; what is missing is created first.
Three is what a cluster of three wants: it then goes on when one of them is lost. It can be done at any time, also while
runs are under way; each node has to catch up before it counts."""
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
        help="how many nodes of a NATS cluster hold everything",
        description=_DESCRIPTION,
        epilog=f"example: {_EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("count", metavar="N", type=int, choices=(1, 3, 5), help="1, 3 or 5")
    parser.add_argument("--nats-url", metavar="URL", help="where NATS is (PYOCO_NATS_URL)")
    parser.set_defaults(run=run, example=_EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Set them, and tell."""
    loaded = load_with_flags(os.environ, arguments, {"nats_url": "PYOCO_NATS_URL"}, example=_EXAMPLE)
    asyncio.run(_set(loaded.settings, arguments.count))
    return DONE


async def _set(settings: Settings, count: int) -> None:
    from pyoco_server.bootstrap.platform import give_replicas  # noqa: PLC0415 it loads slowly; help and mistakes need not wait

    try:
        done = await give_replicas(settings, count)
    except UnavailableError as error:
        error.add_note("--nats-url or PYOCO_NATS_URL says where NATS is")
        raise
    print_table(_COLUMNS, [{"name": one.name, "now": one.now, "before": one.before} for one in done], empty="")
