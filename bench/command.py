"""What the command lines of the benchmarks share: subjects measured one after the other into one report."""

import argparse
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bench.peers.stand import CandidateError, adopt_orphans
from bench.peers.table import machine
from bench.rows import Size

PROBLEMS = (CandidateError, OSError, RuntimeError, TimeoutError, ExceptionGroup)
"""Errors that end one subject but not the others: they are reported, and the figures before are kept."""

PART = "part"
"""The field of a report that names the subject of a figure."""


class Figure(Protocol):
    """Something that was measured."""

    def as_json(self) -> dict[str, Any]:
        """Return the figure for a report."""
        ...


F = TypeVar("F", bound=Figure)


@dataclasses.dataclass(frozen=True)
class Command(Generic[F]):
    """One command line: what it can measure, and where in its report that is."""

    name: str
    about: str
    subjects: Mapping[str, Callable[[Size], Iterator[F]]]
    key: str

    def parser(self) -> argparse.ArgumentParser:
        """The options all of them have."""
        parser = argparse.ArgumentParser(prog=self.name, description=self.about)
        parser.add_argument("--only", type=some_of([*self.subjects]), help=f"some of {','.join(self.subjects)}")
        parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not for figures")
        words = "where to write the figures as JSON; with --only, those of other subjects that are there stay"
        parser.add_argument("--report", type=Path, help=words)
        return parser

    def run(self, arguments: argparse.Namespace, show: Callable[[Sequence[F]], None]) -> int:
        """Measure and show the chosen subjects, also after an interrupt; return 1 if a measurement failed.

        Goals that are not met are no error.
        """
        report, found, is_whole = self._report(arguments), list[F](), True
        try:
            for name in arguments.only or self.subjects:
                is_whole &= self._one(name, arguments, report, found)
        finally:
            show(found)
        return int(not is_whole)

    def _one(self, name: str, arguments: argparse.Namespace, report: dict[str, Any], found: list[F]) -> bool:
        """Measure one subject; return whether that succeeded."""
        began = time.perf_counter()
        print(f"{name} …", file=sys.stderr, flush=True)
        report[self.key] = [row for row in report[self.key] if row[PART] != name]
        report["problems"].pop(name, None)
        try:
            for figure in self.subjects[name](Size(arguments.quick)):
                found.append(figure)
                report[self.key].append({PART: name, **figure.as_json()})
        except PROBLEMS as error:
            report["problems"][name] = problem = f"{type(error).__name__}: {error}"
            print(f"{name} could not be measured further: {problem}", file=sys.stderr, flush=True)
        report["took_sec"][name] = round(time.perf_counter() - began, 1)
        print(f"{name}: {report['took_sec'][name]} s", file=sys.stderr, flush=True)
        if arguments.report is not None:
            order = [*self.subjects]
            report[self.key].sort(key=lambda row: order.index(row[PART]))
            arguments.report.write_text(json.dumps(report, indent=2) + "\n")
        return name not in report["problems"]

    def _report(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """Return a new report, or the existing one to complete."""
        new = {"machine": machine(), "quick": arguments.quick, "took_sec": {}, "problems": {}, self.key: []}
        if arguments.only is None or arguments.report is None or not arguments.report.exists():
            return new
        there: dict[str, Any] = json.loads(arguments.report.read_text())
        if not _belong_together(there, new) or any(PART not in row for row in there.get(self.key, [{}])):
            raise SystemExit(
                f"{arguments.report} is of something else, another machine or other sizes: remove it first"
            )
        return there


def _belong_together(there: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    machines = [{**report.get("machine", {}), "load_before": None} for report in (there, new)]
    return machines[0] == machines[1] and there.get("quick") == new["quick"]


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Parses names with commas between them."""

    def parse(text: str) -> list[str]:
        if unknown := sorted(set(text.split(",")) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return text.split(",")

    return parse


def prepare() -> None:
    """From now on this process ends all that it starts, also what its children leave behind, and also on SIGTERM."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: nothing shall disturb the clearing up
    sys.exit(143)
