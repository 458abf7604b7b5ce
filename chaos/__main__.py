"""``python -m chaos``: load and faults for some minutes, then the verdict.

Exit code 0: all guarantees held; 1: one is broken; 2: not possible on this machine.
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
from chaos.faults import inject, schedule
from chaos.judging import judge
from chaos.machine import NotPossibleError
from chaos.report import ChaosResult, errors_in, write
from chaos.stage import Stage, say, stage
from chaos.world import ThreeNodes

HELD: Final = 0
BROKEN: Final = 1
NOT_POSSIBLE: Final = 2
_CALM_SEC: Final = 5.0
"""Load without faults, at the beginning and at the end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chaos and return the exit code."""
    arguments = _parser().parse_args(argv)
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed  # noqa: S311 no secret
    command = (
        f"python -m chaos --minutes {arguments.minutes:g} --seed {seed} --topology {arguments.topology} "
        f"--rate {arguments.rate:g}"
    )
    say(command)
    logging.getLogger("pyoco_server").addHandler(logging.NullHandler())  # outages are expected here
    try:
        with tempfile.TemporaryDirectory(prefix="pyoco-chaos-", ignore_cleanup_errors=True) as home:
            result = asyncio.run(_run(arguments, seed, command, Path(home)))
            write(result, arguments.report)
            if not result.judgement.holds:
                _keep_logs(Path(home), arguments.report)
    except NotPossibleError as error:
        say(f"not possible here: {error}")
        return NOT_POSSIBLE
    for verdict in result.judgement.verdicts:
        say(f"{'BROKEN' if verdict.broken else 'held  '} {verdict.checked:6} {verdict.name}")
        for problem in verdict.broken[:5]:
            say(f"    {problem[:500]}")
    say(f"report: {arguments.report}")
    return HELD if result.judgement.holds else BROKEN


def _keep_logs(home: Path, report: Path) -> None:
    """Copy the output of all processes, to find the cause of a broken guarantee."""
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
    parser.add_argument("--patience", type=float, default=150.0, help="seconds that runs may take to end (150)")
    parser.add_argument("--report", type=Path, default=Path("chaos-report.md"), help="where the report goes")
    return parser


async def _run(arguments: argparse.Namespace, seed: int, command: str, home: Path) -> ChaosResult:
    async with (
        stage(arguments.topology, home, {}) as system,
        Clients(system.urls, seed, arguments.rate) as clients,
    ):
        began, end = time.time(), time.monotonic() + arguments.minutes * 60
        async with _beside(clients.submit_until(end + _CALM_SEC)) as submitting:
            await asyncio.sleep(_CALM_SEC)
            planned = schedule(seed, arguments.topology, has_disks=bool(system.world.disks))
            faults = await inject(system, planned, end)
            await submitting
        say(f"{len(faults)} faults, {len(clients.accepted)} runs acknowledged; now every run must end")
        await system.ready()
        await system.until_whole()
        judgement = await judge(system, clients, arguments.patience)
        return ChaosResult(
            command=command,
            topology=arguments.topology,
            seed=seed,
            minutes=arguments.minutes,
            began=began,
            faults=faults,
            clients=clients,
            judgement=judgement,
            ended_by_themselves=system.ended_by_themselves,
            errors=errors_in(home),
            notes=_notes(system),
        )


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a task beside the body, and cancel it at the end."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _notes(system: Stage) -> list[str]:
    """Return what differs from other chaos runs."""
    notes, world = [], system.world
    if not world.disks:
        notes.append("no full disks: this user cannot mount a file system of its own")
    if isinstance(world, ThreeNodes) and world.network.slowed_by:
        notes.append(f"the network was made slow by `{world.network.slowed_by}`")
    return notes


if __name__ == "__main__":
    sys.exit(main())
