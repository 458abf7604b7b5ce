"""Searches for seeds that find the planted bugs; writes the table in docs/simulator.md, and the seeds for the tests.

``python -m tests.sim.mutation_table``; ``--seeds`` says how many to try for each.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.sim.mutations import MUTATIONS
from tests.sim.world import simulate

FOUND: Final = Path(__file__).with_name("found.json")
DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "simulator.md"
BEGIN, END = "<!-- mutations: begin -->", "<!-- mutations: end -->"


class Find(msgspec.Struct, frozen=True):
    """The seed that finds a planted bug, and the invariant that it violates."""

    seed: int
    invariant: str


def known_finds() -> dict[str, Find]:
    """Return the finds of the last search."""
    return msgspec.json.decode(FOUND.read_bytes(), type=dict[str, Find]) if FOUND.exists() else {}


def search(name: str, seeds: int, known: Find | None) -> Find | None:
    """Return a seed that finds the planted bug: the known one if it still does, else the first of this many.

    Its world has no violation without the bug.
    """
    first = [] if known is None else [known.seed]
    for seed in [*first, *range(seeds)]:
        with MUTATIONS[name]():
            violations = simulate(seed).violations
        if violations and not simulate(seed).violations:
            return Find(seed, violations[0].invariant)
    return None


def table(found: dict[str, Find]) -> str:
    """Return the finds as a Markdown table."""
    rows = ["| planted bug | what it is | seed | what notices |", "|---|---|---|---|"]
    for name in MUTATIONS:
        about = (MUTATIONS[name].__doc__ or "").strip().partition("\n")[0]
        find = found.get(name)
        seed, invariant = (str(find.seed), find.invariant) if find is not None else ("–", "nothing")
        rows.append(f"| `{name}` | {about} | {seed} | {invariant} |")
    return "\n".join(rows)


def main() -> int:
    """Search, and write the results; return 1 if no seed finds one of the bugs."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutation_table")
    parser.add_argument("--seeds", type=int, default=400, help="how many seeds to try for each")
    given = parser.parse_args()
    found: dict[str, Find] = {}
    known = known_finds()
    for name in MUTATIONS:
        find = search(name, given.seeds, known.get(name))
        sys.stdout.write(f"{name}: {find}\n")
        sys.stdout.flush()
        if find is not None:
            found[name] = find
    FOUND.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n", encoding="utf-8")
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}", encoding="utf-8")
    return 0 if len(found) == len(MUTATIONS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
