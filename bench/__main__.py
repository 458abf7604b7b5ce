"""``python -m bench``: everything that is promised about speed, measured in one run and shown in one table."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.choosing import PROBLEMS, leave, some_of
from bench.peers.stand import adopt_orphans
from bench.peers.table import machine
from bench.rows import Row, Size, table
from bench.subjects import (
    cancelling,
    holding,
    pages,
    recovering,
    resuming,
    runs,
    starting,
    steps,
    submitting,
    watching,
)

SUBJECTS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "runs": runs.rows,
    "submitting": submitting.rows,
    "steps": steps.rows,
    "cancelling": cancelling.rows,
    "resuming": resuming.rows,
    "recovering": recovering.rows,
    "pages": pages.rows,
    "watching": watching.rows,
    "holding": holding.rows,
    "starting": starting.rows,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for, and print it; 1 if not all could be measured. Goals that are not met are no error."""
    arguments = _parser().parse_args(argv)
    adopt_orphans()
    signal.signal(signal.SIGTERM, leave)
    told: dict[str, Any] = {"machine": machine(), "quick": arguments.quick, "took_sec": {}, "problems": {}, "rows": []}
    measured: list[Row] = []
    try:
        for name in arguments.only or SUBJECTS:
            began = time.perf_counter()
            print(f"{name} …", file=sys.stderr, flush=True)
            try:
                for row in SUBJECTS[name](Size(arguments.quick)):
                    measured.append(row)
                    told["rows"].append(row.told())
            except PROBLEMS as error:
                told["problems"][name] = f"{type(error).__name__}: {error}"
                print(f"{name} could not be measured further: {told['problems'][name]}", file=sys.stderr, flush=True)
            told["took_sec"][name] = round(time.perf_counter() - began, 1)
            print(f"{name}: {told['took_sec'][name]} s", file=sys.stderr, flush=True)
            if arguments.report is not None:
                arguments.report.write_text(json.dumps(told, indent=2) + "\n")
    finally:  # what was measured is not lost if something goes wrong
        print(table(measured))
    return int(bool(told["problems"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", type=some_of([*SUBJECTS]), help=f"some of {','.join(SUBJECTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not for figures")
    parser.add_argument("--report", type=Path, help="where to write the figures as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
