"""What the command lines of the benchmarks share: reports that are completed, and sizes that cannot be measured."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from bench.command import PART, Command
from bench.growth import curves
from bench.growth.curves import Bounded
from bench.peers.__main__ import _in_turn
from bench.rows import Row, Size


def subject(figure: float, *, fails: bool = False) -> Callable[[Size], Iterator[Row]]:
    def rows(size: Size) -> Iterator[Row]:
        yield Row("a subject", "a figure", size.choose(figure, figure / 10), "ms")
        if fails:
            raise RuntimeError("it broke")

    return rows


def run(report: Path, *argv: str, fails: bool = False, first: float = 1.0) -> tuple[int, list[float]]:
    """How it ended, and which figures were shown."""
    command = Command[Row]("some", "", {"a": subject(first), "b": subject(2.0, fails=fails)}, "rows")
    shown: list[float] = []

    def show(rows: Sequence[Row]) -> None:
        shown.extend(row.figure for row in rows)

    return command.run(command.parser().parse_args([*argv, "--report", str(report)]), show), shown


def figures(report: Path) -> list[tuple[str, float]]:
    return [(row[PART], row["figure"]) for row in json.loads(report.read_text())["rows"]]


def test_subjects_measured_later_complete_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run(report, "--only", "b", fails=True) == (1, [2.0])
    assert json.loads(report.read_text())["problems"] == {"b": "RuntimeError: it broke"}
    assert run(report, "--only", "a") == (0, [1.0])
    assert figures(report) == [("a", 1.0), ("b", 2.0)]
    assert run(report, "--only", "b") == (0, [2.0])
    assert json.loads(report.read_text())["problems"] == {}
    assert run(report, "--only", "a", first=5.0) == (0, [5.0])
    assert figures(report) == [("a", 5.0), ("b", 2.0)]


def test_without_only_a_report_starts_empty(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("something else")
    assert run(report) == (0, [1.0, 2.0])
    assert figures(report) == [("a", 1.0), ("b", 2.0)]


def test_figures_that_do_not_belong_together_are_not_mixed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run(report)
    with pytest.raises(SystemExit, match="remove it"):
        run(report, "--only", "a", "--quick")
    other = json.loads(report.read_text())
    other["machine"]["cores"] += 1
    report.write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="remove it"):
        run(report, "--only", "a")


def test_a_size_that_cannot_be_measured_is_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def figure() -> float:
        return 1.5

    async def breaks() -> float:
        raise RuntimeError("it broke")

    async def forever() -> float:
        await asyncio.Event().wait()
        return 0.0

    monkeypatch.setattr(curves, "POINT_SEC", 0.05)
    bounded = Bounded()
    assert bounded.at(1, figure()) == 1.5
    assert bounded.note == ""
    assert bounded.at(10, breaks()) is None
    assert bounded.at(1_000, forever()) is None
    assert bounded.note == "; 10 could not be measured: it broke; 1,000 could not be measured: it took more than 0 s"


def test_before_every_peer_ours_with_the_same_durability_is_measured() -> None:
    def order(*chosen: str, rounds: int = 1) -> list[str]:
        return [candidate.name for candidate in _in_turn(chosen, rounds)]

    candidates = ("ours", "ours-fast", "restate", "celery", "dbos")
    turn = ["ours", "restate", "ours-fast", "celery", "ours", "dbos"]
    assert order(*candidates, rounds=2) == 2 * turn
    assert order("ours", "ours-fast", "restate") == ["ours-fast", "ours", "restate"]
    assert order("ours") == ["ours"]
    assert order("celery") == ["celery"]
