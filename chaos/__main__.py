"""``python -m chaos``: load and faults for some minutes, then the verdict.

Exit code 0: everything held; 1: something did not; 2: not possible here.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from chaos.clients import Clients
from chaos.errors import NotPossibleError
from chaos.faults import inject, schedule
from chaos.judging import judge
from chaos.logged import errors_in
from chaos.report import Told, write
from chaos.stage import Stage, say, stage
from chaos.world import ThreeNodes

HELD: Final = 0
BROKEN: Final = 1
NOT_POSSIBLE: Final = 2
_CALM_SEC: Final = 5.0
"""Load without faults, at the beginning and at the end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run it and return the exit code."""
    arguments = _parser().parse_args(argv)
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed  # noqa: S311 no secret
    command = (
        f"python -m chaos --minutes {arguments.minutes:g} --seed {seed} --topology {arguments.topology} "
        f"--rate {arguments.rate:g}"
    )
    say(command)
    logging.getLogger("pyoco_server").addHandler(logging.NullHandler())  # outages are what this is about
    try:
        with tempfile.TemporaryDirectory(prefix="pyoco-chaos-", ignore_cleanup_errors=True) as home:
            told = asyncio.run(_run(arguments, seed, command, Path(home)))
            write(told, arguments.report)
            if not told.judgement.holds:
                _keep_logs(Path(home), arguments.report)
    except NotPossibleError as error:
        say(f"not possible here: {error}")
        return NOT_POSSIBLE
    for verdict in told.judgement.verdicts:
        say(f"{'BROKEN' if verdict.broken else 'held  '} {verdict.checked:6} {verdict.name}")
        for problem in verdict.broken[:5]:
            say(f"    {problem[:500]}")
    say(f"report: {arguments.report}")
    return HELD if told.judgement.holds else BROKEN


def _keep_logs(home: Path, report: Path) -> None:
    """Copy what everybody wrote: it is needed to find out why."""
    kept = report.parent / f"{report.stem}-logs"
    kept.mkdir(exist_ok=True)
    for log in (*home.glob("*.log"), *home.glob("*/nats.log")):
        shutil.copy(log, kept / f"{log.parent.name if log.parent != home else ''}{log.name}")
    say(f"logs: {kept}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long there are faults (5)")
    parser.add_argument("--seed", type=int, default=None, help="the same faults again (any)")
    parser.add_argument("--topology", choices=["one", "three"], default="one", help="how many NATS servers (one)")
    parser.add_argument("--rate", type=float, default=6.0, help="runs submitted a second (6)")
    parser.add_argument("--patience", type=float, default=150.0, help="seconds to come to an end afterwards (150)")
    parser.add_argument("--report", type=Path, default=Path("chaos-report.md"), help="where the report goes")
    return parser


async def _run(arguments: argparse.Namespace, seed: int, command: str, home: Path) -> Told:
    async with (
        stage(arguments.topology, home, {}) as everybody,
        Clients(everybody.urls, seed, arguments.rate) as clients,
    ):
        began, end = time.time(), time.monotonic() + arguments.minutes * 60
        async with _beside(clients.submit_until(end + _CALM_SEC)) as submitting:
            await asyncio.sleep(_CALM_SEC)
            planned = schedule(seed, arguments.topology, has_disks=bool(everybody.world.disks))
            faults = await inject(everybody, planned, end)
            await submitting
        say(f"{len(faults)} faults, {len(clients.accepted)} runs acknowledged; now everything must come to its end")
        await everybody.ready()
        await everybody.until_whole()
        judgement = await judge(everybody, clients, arguments.patience)
        return Told(
            command=command,
            topology=arguments.topology,
            seed=seed,
            minutes=arguments.minutes,
            began=began,
            faults=faults,
            clients=clients,
            judgement=judgement,
            ended_by_themselves=everybody.ended_by_themselves,
            errors=errors_in(home),
            notes=_notes(everybody),
        )


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Have something done beside what is inside; it ends with it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _notes(everybody: Stage) -> list[str]:
    """What a reader must know who compares this with other runs."""
    notes, world = [], everybody.world
    if not world.disks:
        notes.append("no full disks: this user cannot mount a file system of its own")
    if isinstance(world, ThreeNodes) and world.network.slowed_by:
        notes.append(f"the network was made slow by `{world.network.slowed_by}`")
    return notes


if __name__ == "__main__":
    sys.exit(main())
