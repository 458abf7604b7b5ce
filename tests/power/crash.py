"""Losses of power: load, crash, perhaps crashes of the restart, and the list of broken promises.

``python -m tests.power.crash --disk xfs --seed 7`` repeats the crash of a seed; ``--count 200`` runs many.
"""

import argparse
import asyncio
import collections
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.kill.processes import GatewayProcess
from tests.power.clients import asking
from tests.power.clones import REAL_FILE_SYSTEMS, clones_under_load
from tests.power.disk import FILE_SYSTEMS, FileSystem, Trigger
from tests.power.mount import Mount, mounted
from tests.power.promises import MISSING_SEC, Outcome
from tests.power.world import START_SEC, PowerWorld

_LOAD_ANSWERS: Final = (20, 400)
"""How many answers clients have received when the power fails, or is armed to fail."""


REAL: Final = {f"real-{kind}": kind for kind in REAL_FILE_SYSTEMS}
CLONES: Final = 5
"""How many clones are taken of a real disk under load."""

_ARMED_SEC: Final = 5.0


async def lose_power(
    home: Path,
    system: FileSystem,
    seed: int,
    *,
    restarts: int = 0,
    missing_sec: float = MISSING_SEC,
    **settings: Any,
) -> Outcome:
    """Run a platform under load until the power fails, and again at each restart; then check every promise."""
    chance = random.Random(f"power {seed}")
    image = home / "image"
    image.mkdir(parents=True)
    world = PowerWorld(home, **settings)
    with mounted(home / "mount", image, system, seed) as mount:
        await crash_under_load(world, mount, chance, f"{seed} ")
    for number in range(restarts):
        with mounted(home / f"mount-{number}", image, system, seed + number) as mount:
            await crash_while_starting(world, mount, chance, f"{seed} {number} ")
    outcome = await world.outcome(image / "data", missing_sec=missing_sec)
    return outcome._replace(crashes=1 + restarts)


async def crash_under_load(world: PowerWorld, mount: Mount, chance: random.Random, seed: str) -> None:
    """Start the platform and its clients; let the power fail at some moment, sync or rename, or after a clean stop."""
    data = mount.path / "data"
    data.mkdir(exist_ok=True)
    async with world.starting(data) as gateway:
        await gateway.ready(START_SEC)
        async with world.working(gateway, data) as client:
            clients = world.clients(client, seed)
            load = [clients.ask(), clients.fill()] if chance.random() < 0.3 else [clients.ask()]
            async with asking(*load):
                await world.answers(chance.randint(*_LOAD_ANSWERS))
                match chance.choice(("now", "fsync", "rename", "block", "stop")):
                    case "now":
                        mount.fail()
                    case "block":
                        await _failure_at(mount, Trigger("rename", chance.randint(1, 3), True, within=".blk"))
                    case "stop":
                        gateway.send(signal.SIGTERM)
                        await gateway.exit_code(START_SEC)
                        mount.fail()
                    case operation:
                        nth, takes_effect = chance.randint(1, 40), chance.random() < 0.5
                        await _failure_at(mount, Trigger(operation, nth, takes_effect))


async def crash_while_starting(world: PowerWorld, mount: Mount, chance: random.Random, seed: str) -> None:
    """Let the power fail some syncs into the start, which is the recovery from the crash before."""
    mount.arm(Trigger("fsync", chance.randint(1, 60), takes_effect=chance.random() < 0.5))
    async with world.starting(mount.path / "data") as gateway:
        if await _is_ready_in_time(gateway, mount):
            async with world.working(gateway, mount.path / "data") as client, asking(world.clients(client, seed).ask()):
                await _failure(mount)


async def _is_ready_in_time(gateway: GatewayProcess, mount: Mount) -> bool:
    """Return whether the gateway becomes ready before the power fails."""
    end = time.monotonic() + START_SEC
    while not (mount.has_failed or await gateway.is_ready()):
        if not gateway.is_alive and not mount.wait_for_failure(1.0):
            raise AssertionError(f"the gateway did not start\n{gateway.output.read_text()}")
        assert time.monotonic() < end, f"the gateway did not become ready\n{gateway.output.read_text()}"
        await asyncio.sleep(0.02)
    return not mount.has_failed


async def _failure_at(mount: Mount, trigger: Trigger) -> None:
    """Return when the power has failed: at the trigger, or at the end of the time."""
    mount.arm(trigger)
    await _failure(mount)


async def _failure(mount: Mount) -> None:
    if not await asyncio.to_thread(mount.wait_for_failure, _ARMED_SEC):
        mount.fail()


# --- Many crashes -----------------------------------------------------------------------------------------------------


async def crashes_of(seed: int, home: Path, disk: str, durability: str) -> list[Outcome]:
    """Return what becomes of a seed, which also decides about restarts, the worker and the load."""
    chance = random.Random(f"kind {seed}")
    settings: dict[str, Any] = {"durability": durability, "sees_store": chance.random() < 0.7}
    if disk in REAL:
        return await clones_under_load(
            home, REAL[disk], seed, clones=CLONES, is_large=chance.random() < 0.5, **settings
        )
    return [await lose_power(home, FILE_SYSTEMS[disk], seed, restarts=chance.choice((0, 0, 1, 2)), **settings)]


def main() -> int:
    """Run the crashes of some seeds, and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--disk", choices=[*FILE_SYSTEMS, *REAL], action="append", help="may be repeated (all that are no real disks)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first crash")
    parser.add_argument("--count", type=int, default=1, help=f"how many seeds; {CLONES} crashes each on a real disk")
    parser.add_argument("--durability", choices=["sync", "fast"], default="sync")
    parser.add_argument("--keep", type=Path, help="a directory for the logs and images of crashes with broken promises")
    arguments = parser.parse_args()
    disks = arguments.disk or [*FILE_SYSTEMS]
    outcomes = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        disk = disks[seed % len(disks)]
        with tempfile.TemporaryDirectory(prefix="pyoco-power-", ignore_cleanup_errors=True) as home:
            for outcome in asyncio.run(crashes_of(seed, Path(home), disk, arguments.durability)):
                outcomes.append(outcome)
                print(f"seed {seed} on {disk}: {_line(outcome)}", flush=True)
                for broken in outcome.broken[:20]:
                    print(f"  {broken}", flush=True)
            if arguments.keep and any(outcome.broken for outcome in outcomes[-CLONES:]):
                shutil.copytree(home, arguments.keep / f"{seed}", ignore=shutil.ignore_patterns("disk", "control"))
    print(_summary(outcomes))
    return 1 if any(outcome.broken or outcome.is_late for outcome in outcomes) else 0


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
    crashes = sum(outcome.crashes for outcome in outcomes)
    present = sorted(outcome.present_sec for outcome in outcomes)
    return (
        f"{crashes} crashes, {promised.total()} acknowledgements ({kinds}): {lost} lost, {stuck} stuck; "
        f"all present {present[len(present) // 2]:.1f} s after readiness (median; at most {present[-1]:.1f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
