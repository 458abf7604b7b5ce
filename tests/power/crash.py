"""One loss of power: load, crash, restart, and the list of broken promises.

``python -m tests.power.crash --file-system xfs --seed 7`` repeats the crash of a seed; ``--count 200`` runs many.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from tests.power.disk import FILE_SYSTEMS, FileSystem
from tests.power.mount import Mount, mounted
from tests.power.world import PowerWorld

_LOAD_SEC: Final = (1.0, 6.0)


class Outcome(NamedTuple):
    """What came of one seed."""

    acknowledged: int
    violations: list[str]
    ready_sec: float
    """From the start of the gateway to its readiness, after the last crash."""


async def lose_power(
    home: Path, system: FileSystem, seed: int, *, durability: str = "sync", crashes: int = 1, **variables: str
) -> Outcome:
    """Run a platform under load until the power fails, ``crashes`` times; then check every acknowledgement."""
    chance = random.Random(f"power {seed}")
    image = home / "image"
    image.mkdir(parents=True)
    world = PowerWorld(home, durability=durability, **variables)
    for number in range(crashes):
        with mounted(home / f"mount-{number}", image, system, seed + number) as mount:
            await _until_crash(world, mount, chance, seed + number)
    began = time.monotonic()
    async with world.running(image / "data") as client:
        ready_sec = time.monotonic() - began
        return Outcome(len(world.acknowledged), await world.violations(client), ready_sec)


async def _until_crash(world: PowerWorld, mount: Mount, chance: random.Random, seed: int) -> None:
    (mount.path / "data").mkdir(exist_ok=True)
    async with world.running(mount.path / "data") as client:
        load = asyncio.create_task(world.load(client, seed))
        try:
            await asyncio.sleep(chance.uniform(*_LOAD_SEC))
            match chance.choice(("now", "fsync", "rename")):
                case "now":
                    mount.fail()
                case operation:
                    mount.arm(operation, chance.randint(1, 40), takes_effect=chance.random() < 0.5)
                    if not await asyncio.to_thread(mount.wait_for_failure, 5.0):
                        mount.fail()
            await asyncio.sleep(0.3)  # answers that are on their way
        finally:
            load.cancel()
            with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
                await load


def main() -> int:
    """Run the crashes of some seeds, and print what came of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file-system", choices=[*FILE_SYSTEMS], action="append")
    parser.add_argument("--seed", type=int, default=1, help="of the first crash")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--crashes", type=int, default=1, help="per seed, each during the recovery from the last")
    parser.add_argument("--durability", choices=["sync", "fast"], default="sync")
    arguments = parser.parse_args()
    systems = [FILE_SYSTEMS[name] for name in arguments.file_system or FILE_SYSTEMS]
    broken = acknowledged = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        system = systems[seed % len(systems)]
        with tempfile.TemporaryDirectory(prefix="pyoco-power-", ignore_cleanup_errors=True) as home:
            run = lose_power(Path(home), system, seed, durability=arguments.durability, crashes=arguments.crashes)
            outcome = asyncio.run(run)
        broken += bool(outcome.violations)
        acknowledged += outcome.acknowledged
        print(
            f"seed {seed} on {system.name}: {outcome.acknowledged} acknowledgements, ready after "
            f"{outcome.ready_sec:.1f} s, {len(outcome.violations)} broken promises",
            flush=True,
        )
        for violation in outcome.violations[:20]:
            print(f"  {violation}", flush=True)
    print(f"{arguments.count} crashes, {acknowledged} acknowledgements, {broken} crashes with broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
