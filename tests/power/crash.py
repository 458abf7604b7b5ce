"""Losses of power: load, crash, perhaps crashes of the restart, and the list of broken promises.

``python -m tests.power.crash --file-system xfs --seed 7`` repeats the crash of a seed; ``--count 200`` runs many.
"""

import argparse
import asyncio
import collections
import contextlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import httpx

from tests.kill.processes import GatewayProcess, eventually
from tests.power.clients import Clients
from tests.power.disk import FILE_SYSTEMS, FileSystem, Trigger
from tests.power.mount import Mount, mounted
from tests.power.promises import Outcome
from tests.power.world import START_SEC, PowerWorld

_LOAD_ANSWERS: Final = (20, 400)
"""How many answers clients have received when the power fails, or is armed to fail."""
_ANSWERS_SEC: Final = 0.3
"""For answers that are on their way when the power fails."""


async def lose_power(
    home: Path,
    system: FileSystem,
    seed: int,
    *,
    restarts: int = 0,
    durability: str = "sync",
    sees_store: bool = True,
    **variables: str,
) -> Outcome:
    """Run a platform under load until the power fails, and again at each restart; then check every promise."""
    chance = random.Random(f"power {seed}")
    image = home / "image"
    image.mkdir(parents=True)
    world = PowerWorld(home, durability=durability, sees_store=sees_store, **variables)
    with mounted(home / "mount", image, system, seed) as mount:
        await crash_under_load(world, mount, chance, f"{seed} ")
    for number in range(restarts):
        with mounted(home / f"mount-{number}", image, system, seed + number) as mount:
            await crash_while_starting(world, mount, chance, f"{seed} {number} ")
    return await world.outcome(image / "data")


async def crash_under_load(world: PowerWorld, mount: Mount, chance: random.Random, seed: str) -> None:
    """Start the platform and its clients; let the power fail at some moment, sync or rename."""
    (mount.path / "data").mkdir(exist_ok=True)
    async with world.running(mount.path / "data") as client, asking(world.clients(client, seed)):
        wanted = chance.randint(*_LOAD_ANSWERS)
        await eventually(lambda: _has(world, wanted), f"{wanted} answers", within=START_SEC)
        match chance.choice(("now", "fsync", "rename")):
            case "now":
                mount.fail()
            case operation:
                mount.arm(Trigger(operation, chance.randint(1, 40), takes_effect=chance.random() < 0.5))
                await _failure(mount, 5.0)


async def _has(world: PowerWorld, answers: int) -> bool:
    return len(world.promises) >= answers and bool(world.promises.ended)


async def crash_while_starting(world: PowerWorld, mount: Mount, chance: random.Random, seed: str) -> None:
    """Let the power fail some syncs into the start, which is the recovery from the crash before."""
    mount.arm(Trigger("fsync", chance.randint(1, 60), takes_effect=chance.random() < 0.5))
    async with world.starting(mount.path / "data") as gateway:
        if await _is_ready_in_time(gateway, mount):
            async with world.working(gateway, mount.path / "data") as client, asking(world.clients(client, seed)):
                await _failure(mount, 5.0)


async def _is_ready_in_time(gateway: GatewayProcess, mount: Mount) -> bool:
    """Return whether the gateway becomes ready before the power fails."""
    end = time.monotonic() + START_SEC
    while not (mount.has_failed or await gateway.is_ready()):
        if not gateway.is_alive and not mount.wait_for_failure(1.0):
            raise AssertionError(f"the gateway did not start\n{gateway.output.read_text()}")
        assert time.monotonic() < end, f"the gateway did not become ready\n{gateway.output.read_text()}"
        await asyncio.sleep(0.02)
    return not mount.has_failed


async def _failure(mount: Mount, within_sec: float) -> None:
    """Return when the power has failed, at the armed moment or at the end of the time."""
    if not await asyncio.to_thread(mount.wait_for_failure, within_sec):
        mount.fail()


@contextlib.asynccontextmanager
async def asking(clients: Clients) -> AsyncIterator[None]:
    """Let clients ask within the block, and for a moment after it."""
    load = asyncio.create_task(clients.ask())
    try:
        yield
        await asyncio.sleep(_ANSWERS_SEC)
    finally:
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
            await load


# --- Many crashes -----------------------------------------------------------------------------------------------------


async def crash_of(seed: int, home: Path, system: FileSystem, durability: str) -> Outcome:
    """Return what becomes of a seed, which also decides about restarts and the worker."""
    chance = random.Random(f"kind {seed}")
    restarts = chance.choice((0, 0, 1, 2))
    return await lose_power(
        home, system, seed, restarts=restarts, durability=durability, sees_store=chance.random() < 0.7
    )


def main() -> int:
    """Run the crashes of some seeds, and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file-system", choices=[*FILE_SYSTEMS], action="append")
    parser.add_argument("--seed", type=int, default=1, help="of the first crash")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--durability", choices=["sync", "fast"], default="sync")
    parser.add_argument("--keep", type=Path, help="a directory for the logs and images of crashes with broken promises")
    arguments = parser.parse_args()
    systems = [FILE_SYSTEMS[name] for name in arguments.file_system or FILE_SYSTEMS]
    outcomes = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        system = systems[seed % len(systems)]
        with tempfile.TemporaryDirectory(prefix="pyoco-power-", ignore_cleanup_errors=True) as home:
            outcome = asyncio.run(crash_of(seed, Path(home), system, arguments.durability))
            if outcome.broken and arguments.keep:
                shutil.copytree(home, arguments.keep / f"{seed}", ignore=shutil.ignore_patterns("disk", "control"))
        outcomes.append(outcome)
        print(f"seed {seed} on {system.name}: {_line(outcome)}", flush=True)
        for broken in outcome.broken[:20]:
            print(f"  {broken}", flush=True)
    print(_summary(outcomes))
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.acknowledged} acknowledgements, {len(outcome.lost)} lost, {len(outcome.stuck)} stuck; "
        f"ready after {outcome.ready_sec:.1f} s, all present {outcome.present_sec:.1f} s later, "
        f"all ended {outcome.ended_sec:.1f} s later"
    )


def _summary(outcomes: Sequence[Outcome]) -> str:
    promised = sum((collections.Counter(outcome.promised) for outcome in outcomes), collections.Counter[str]())
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(promised.items()))
    lost, stuck = sum(len(outcome.lost) for outcome in outcomes), sum(len(outcome.stuck) for outcome in outcomes)
    present_sec = max(outcome.present_sec for outcome in outcomes)
    return (
        f"{len(outcomes)} crashes, {promised.total()} acknowledgements ({kinds}): {lost} lost, {stuck} stuck; "
        f"all present at most {present_sec:.1f} s after readiness"
    )


if __name__ == "__main__":
    sys.exit(main())
