"""Simulate worlds: one seed with its trace, or as many seeds as there is time for.

``python -m tests.sim --seed 1234 --trace``, ``python -m tests.sim --seeds 5000``, ``python -m tests.sim --minutes 10``.
"""

import argparse
import time
from typing import Final

from tests.sim.playing import describe, play, say
from tests.sim.world import simulate

FEW: Final = 1_000
ENDLESS: Final = 10_000_000


def main() -> int:
    """Simulate what the command line asks for; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Play simulated worlds.")
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happened")
    parser.add_argument("--seeds", type=int, help="play so many")
    parser.add_argument("--minutes", type=float, help="play for so long")
    parser.add_argument("--start", type=int, default=0, help="the first seed of --seeds and --minutes")
    parser.add_argument("--jobs", type=int, default=1, help="how many to play at the same time")
    parser.add_argument(
        "--keep", action="store_true", help="add the seeds that fail to those that every test run repeats"
    )
    given = parser.parse_args()
    if given.seed is not None:
        outcome = simulate(given.seed)
        say(describe(outcome, trace=given.trace))
        return 1 if outcome.violations else 0
    until = time.monotonic() + 60 * given.minutes if given.minutes is not None else float("inf")
    most = given.seeds if given.seeds is not None else ENDLESS if given.minutes is not None else FEW
    seeds = range(given.start, given.start + most)
    return 1 if play(seeds, until=until, keep=given.keep, jobs=given.jobs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
