"""Simulates worlds of many seeds, and reports their violations."""

import contextlib
import multiprocessing
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.sim.world import Outcome, simulate

KEPT: Final = Path(__file__).with_name("seeds.txt")
"""Seeds that failed before; every test run repeats them."""

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def kept_seeds() -> list[int]:
    """Return the seeds in the file; a line may give the reason after a ``#``."""
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text(encoding="utf-8").splitlines())
    return [int(line) for line in lines if line]


def describe(outcome: Outcome, *, trace: bool) -> str:
    """Return an outcome as text; runs have numbers instead of their ids, which are hard to distinguish."""
    lines = [f"seed {outcome.seed}: {len(outcome.violations)} violations in {outcome.seconds:.1f} virtual seconds"]
    lines += [f"  faults: {outcome.faults}"]
    lines += [f"  {violation}" for violation in outcome.violations]
    if trace:
        lines += [str(line) for line in outcome.trace]
    if outcome.violations and not trace:
        lines += [f"  again: python -m tests.sim --seed {outcome.seed} --trace"]
    names: dict[str, str] = {}
    return _RUN_ID.sub(lambda found: names.setdefault(found[0], f"run-{len(names) + 1}"), "\n".join(lines))


class Played(NamedTuple):
    """The report about a world; its texts are empty if there was no violation."""

    seed: int
    report: str
    invariant: str


def played_once(seed: int) -> Played:
    """Simulate the world of a seed."""
    outcome = simulate(seed)
    if not outcome.violations:
        return Played(seed, "", "")
    return Played(seed, describe(outcome, trace=False), outcome.violations[0].invariant)


def play(seeds: Iterable[int], *, until: float, keep: bool, jobs: int) -> int:
    """Simulate seed after seed; return how many failed."""
    began, played, failed = time.monotonic(), 0, 0
    with contextlib.ExitStack() as stack:
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs))
            worlds: Iterable[Played] = pool.imap_unordered(played_once, seeds, chunksize=8)
        else:
            worlds = map(played_once, seeds)
        for world in worlds:
            played += 1
            if world.report:
                failed += 1
                say(world.report)
                if keep:
                    with KEPT.open("a", encoding="utf-8") as file:
                        file.write(f"{world.seed}  # {world.invariant}\n")
            if time.monotonic() > until:
                break
    seconds = time.monotonic() - began
    say(f"{played} seeds, {failed} failed, {seconds:.1f} s, {60 * played / max(seconds, 0.001):.0f} seeds a minute")
    return failed


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
