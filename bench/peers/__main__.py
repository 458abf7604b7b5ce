"""``python -m bench.peers``: ours and its peers, in turn, and one table of all."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.command import prepare, some_of
from bench.peers.candidate import Candidate
from bench.peers.celery import Celery
from bench.peers.dbos import Dbos
from bench.peers.measuring import Figures, Plan, measure
from bench.peers.ours import Ours, OursFast
from bench.peers.prefect import Prefect
from bench.peers.public_pyoco import PublicPyoco, PublicPyocoMended
from bench.peers.restate import Restate
from bench.peers.table import machine, table
from bench.peers.temporal import Temporal, TemporalInMemory

OURS: tuple[type[Candidate], ...] = (Ours, OursFast)
PEERS: tuple[type[Candidate], ...] = (
    Restate,
    Celery,
    PublicPyoco,
    PublicPyocoMended,
    Dbos,
    Temporal,
    TemporalInMemory,
    Prefect,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 1 if ours could not be measured. What became of peers is in the table."""
    arguments = _parser().parse_args(argv)
    prepare()
    chosen = arguments.only or [candidate.name for candidate in (*OURS, *PEERS)]
    plan = Plan(arguments.runs, arguments.list_size, arguments.limit, arguments.fill_limit, arguments.syncs)
    report: dict[str, Any] = {"machine": machine(), "plan": dataclasses.asdict(plan), "measured": []}
    measured: list[Figures] = []
    try:
        for candidate in _in_turn(chosen, arguments.rounds):
            seen = any(figures.name == candidate.name for figures in measured)
            # The list and the sync calls do not change from one time to the next, and take long.
            figures = measure(candidate, dataclasses.replace(plan, list_size=0, counts_syncs=False) if seen else plan)
            measured.append(figures)
            print(_progress(figures), file=sys.stderr, flush=True)
            report["measured"].append(dataclasses.asdict(figures))
            if arguments.report is not None:
                arguments.report.write_text(json.dumps(report, indent=2) + "\n")
    finally:  # an interrupt must not lose the figures
        print(table(measured))
    return int(any(figures.problem for figures in measured if figures.name.startswith("ours")))


def _parser() -> argparse.ArgumentParser:
    names = [candidate.name for candidate in (*OURS, *PEERS)]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="runs a measurement (500); slow peers have fewer")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured (1)")
    parser.add_argument("--only", type=some_of(names), help=f"some of {','.join(names)}")
    parser.add_argument("--list-size", type=int, default=10_000, help="runs there when the list is asked for; 0: never")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds a candidate may take, about (200)")
    parser.add_argument("--fill-limit", type=float, default=150.0, help="seconds for the runs to list, besides (150)")
    parser.add_argument("--no-syncs", dest="syncs", action="store_false", help="do not count sync calls")
    parser.add_argument("--report", type=Path, help="where to write the figures as JSON")
    return parser


def _in_turn(chosen: Sequence[str], rounds: int) -> Iterator[Candidate]:
    """Before every peer the one of ours that promises as much, so that each is measured next to it."""
    ours = [candidate for candidate in OURS if candidate.name in chosen]
    peers = [candidate for candidate in PEERS if candidate.name in chosen]
    alone = [mine for mine in ours if all(mine.name != peer.beside for peer in peers)]
    for _ in range(rounds):
        yield from (mine() for mine in alone)
        for peer in peers:
            yield from (mine() for mine in ours if mine.name == peer.beside)
            yield peer()


def _progress(figures: Figures) -> str:
    rate = "" if figures.runs_per_sec is None else f" {figures.runs_per_sec:.0f} runs/s"
    return f"{figures.name}:{rate} {figures.problem or 'done'}"


if __name__ == "__main__":
    sys.exit(main())
