"""Bugs for the suite to find: ``python -m tests.power.planted BUG server|worker ARGUMENTS`` runs a program with one.

Each breaks one rule that makes the platform survive a loss of power.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyoco_server.adapters.jetstream.durability.stream_files import StreamFiles
from pyoco_server.adapters.nats_server import directory
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.cli.server.main import main as server
from pyoco_server.cli.worker.main import main as worker

BUGS: Final[dict[str, Callable[[], None]]] = {}


def _bug(plant: Callable[[], None]) -> Callable[[], None]:
    BUGS[plant.__name__] = plant
    return plant


@_bug
def the_log_is_not_synced() -> None:
    """An append is confirmed when NATS has it; the other streams are synced."""
    original = StreamFiles.sync

    def sync(files: StreamFiles) -> None:
        if files._stream_dir.name != "PYOCO_EVENTS":
            original(files)

    _replace(StreamFiles, "sync", sync)


@_bug
def streams_cut_short_count_as_damaged() -> None:
    """A stream whose creation the power failure cut short is taken for one that has lost its messages."""

    def _is_unfinished(_stream: Path) -> bool:
        return False

    _replace(directory, "_is_unfinished", _is_unfinished)


@_bug
def an_empty_block_is_trusted() -> None:
    """What NATS restored counts as everything: the logs are not compared with it."""

    async def compare(_rebuild: Rebuild) -> None:
        return

    _replace(Rebuild, "compare", compare)


@_bug
def nothing_is_adopted() -> None:
    """A run that is found without a snapshot is left alone."""

    async def restore(_run_log: RunLog, _run_id: str, **_options: Any) -> None:
        return

    _replace(RunLog, "restore", restore)


def _replace(owner: Any, name: str, replacement: Any) -> None:
    assert hasattr(owner, name), f"there is no {name} to replace: adapt the planted bug"
    setattr(owner, name, replacement)


if __name__ == "__main__":
    _, name, program, *arguments = sys.argv
    BUGS[name]()
    sys.argv = [program, *arguments]
    sys.exit({"server": server, "worker": worker}[program]())
