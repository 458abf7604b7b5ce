"""``python -m bench.growth``: the cost of a run as there is more of something, as tables and plots."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.choosing import PROBLEMS, leave, some_of
from bench.growth import in_flight, nodes, shards, stored_runs
from bench.growth.curves import Plot, table
from bench.peers.stand import adopt_orphans
from bench.peers.table import machine
from bench.plots import write_plots
from bench.rows import Size

SUBJECTS: dict[str, Callable[[Size], Iterator[Plot]]] = {
    "in-flight": in_flight.plots,
    "nodes": nodes.plots,
    "stored": stored_runs.plots,
    "shards": shards.plots,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for, and print it; 1 if not all could be measured."""
    arguments = _parser().parse_args(argv)
    adopt_orphans()
    signal.signal(signal.SIGTERM, leave)
    told: dict[str, Any] = {"machine": machine(), "quick": arguments.quick, "took_sec": {}, "problems": {}, "plots": []}
    measured: list[Plot] = []
    try:
        for name in arguments.only or SUBJECTS:
            began = time.perf_counter()
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                for plot in SUBJECTS[name](Size(arguments.quick)):
                    measured.append(plot)
                    told["plots"].append(plot.told())
            except PROBLEMS as error:
                told["problems"][name] = f"{type(error).__name__}: {error}"
                print(f"{name} could not be measured further: {told['problems'][name]}", file=sys.stderr, flush=True)
            told["took_sec"][name] = round(time.perf_counter() - began, 1)
            print(f"{name}: {told['took_sec'][name]} s", file=sys.stderr, flush=True)
            if arguments.report is not None:
                arguments.report.write_text(json.dumps(told, indent=2) + "\n")
    finally:  # what was measured is not lost if something goes wrong
        print("\n\n".join(table(plot) for plot in measured))
        if arguments.plots is not None:
            write_plots(measured, arguments.plots)
    return int(bool(told["problems"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--only", type=some_of([*SUBJECTS]), help=f"some of {','.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not for figures")
    parser.add_argument("--report", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--plots", type=Path, metavar="DIRECTORY", help="where to draw them as SVG")
    return parser


if __name__ == "__main__":
    sys.exit(main())
