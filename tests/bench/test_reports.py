"""What the benchmarks make of what they measured: tables, plots, the page."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from bench.growth.curves import Plot, grid, plot_from
from bench.page import main, page
from bench.peers.measuring import Figures
from bench.peers.table import neighbours
from bench.plots import drawn
from bench.rows import Row, number, row_from, table

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {
    "cpu": "Some processor",
    "cores": 2,
    "memory_gib": 8.0,
    "kernel": "6.1",
    "python": "3.11.7",
    "filesystem": "ext4",
    "load_before": [0.1, 0.2, 0.3],
}
GROWTH = Plot("some-growth", "cost of a run", "runs", "ms", {"CPU": [(1, 2.0), (10, 2.5), (1_000, 4.0)]}, "one worker")


@pytest.mark.parametrize(
    ("row", "ratio", "is_met"),
    [
        (Row("a", "b", 3.0, "ms"), None, None),
        (Row("a", "b", 3.0, "ms", floor=1.5), 2.0, None),
        (Row("a", "b", 3.0, "ms", goal=3.0), None, True),
        (Row("a", "b", 3.1, "ms", goal=3.0), None, False),
        (Row("a", "b", 3.0, "/s", goal=3.0, goal_is="at least"), None, True),
        (Row("a", "b", 2.9, "/s", goal=3.0, goal_is="at least"), None, False),
    ],
)
def test_a_row_has_its_ratio_to_the_floor_and_whether_the_goal_is_met(
    row: Row, ratio: float | None, is_met: bool | None
) -> None:
    assert row.ratio == ratio
    assert row.is_met is is_met
    assert row_from(json.loads(json.dumps(row.as_json()))) == row


@pytest.mark.parametrize(
    ("value", "shown"), [(0.123, "0.12"), (9.99, "9.99"), (12.34, "12.3"), (123.4, "123"), (1_234_567, "1,234,567")]
)
def test_numbers_are_shown_with_significant_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_table_has_every_row_under_its_subject() -> None:
    rows = [Row("runs", "latency", 3.0, "ms", goal=2.0), Row("lists", "page", 1.0, "ms"), Row("runs", "rate", 5, "/s")]
    lines = [line for line in table(rows).splitlines()[1:] if line]
    assert [line.split()[0] for line in lines] == ["runs", "latency", "rate", "lists", "page"]
    assert lines[1].endswith("NOT MET")


def test_growth_is_listed_by_size_and_from_first_to_last() -> None:
    assert plot_from(json.loads(json.dumps(GROWTH.as_json()))) == GROWTH
    assert grid(GROWTH) == [
        ["ms; runs", "1", "10", "1,000", "last to first"],
        ["CPU", "2.00", "2.50", "4.00", "2.00x"],
    ]


def test_a_plot_has_a_dot_for_every_point_in_the_order_of_its_axes() -> None:
    root = ET.fromstring(drawn(GROWTH))  # noqa: S314 our own
    dots = root.findall("{*}circle")
    across, down = [[float(dot.attrib[name]) for dot in dots] for name in ("cx", "cy")]
    assert across == sorted(across)
    assert across[1] - across[0] == pytest.approx((across[2] - across[1]) / 2, abs=0.2)
    assert down == sorted(down, reverse=True)
    assert all(0 < place < 960 for place in across)
    assert all(0 < place < 300 for place in down)


def test_the_page_has_all_figures_and_the_goals(tmp_path: Path) -> None:
    given = {"bench": _bench_report(), "growth": {"machine": MACHINE, "plots": [GROWTH.as_json()]}, "peers": _peers()}
    for name, report in given.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    reports = [str(tmp_path / f"{name}.json") for name in ("growth", "peers", "bench")]
    assert main([*reports, "--directory", str(tmp_path / "docs")]) == 0
    written = (tmp_path / "docs" / "figures.md").read_text()
    assert [line for line in written.splitlines() if line.startswith("## ")] == [
        "## One run of everything",
        "## Beside others",
        "## Growth",
        "## This machine beside the reference",
    ]
    assert "| latency p50 | 5.00 ms | 2.00 | 2.50x | at most 4.00 | NOT MET |" in written
    assert "| ours to restate, runs per second | 2.00 times | at least 1.50 | met |" in written
    assert "| ours to restate, latency p50 | 0.50 times | at most 1.00 | met |" in written
    assert "| CPU | 2.00 | 2.50 | 4.00 | 2.00x |" in written
    assert "(some-growth.svg)" in written
    assert (tmp_path / "docs" / "some-growth.svg").read_text() == drawn(GROWTH)


def test_a_quick_measurement_is_marked() -> None:
    assert "--quick" not in page([_bench_report()])
    assert "Measured with `--quick`" in page([{**_bench_report(), "quick": True}])


@pytest.mark.timeout(120)
def test_a_subject_is_measured_with_real_processes_that_all_end(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench", "--quick", "--only", "resuming", "--report", str(report)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=110)  # noqa: S603 our own command
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    figures = {row["what"]: row["figure"] for row in written["rows"]}
    assert 0 < figures["p50"] <= figures["p99"]
    assert "resume, from the request" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [report.name]
    assert not [place for place in _working_directories() if place.startswith(str(tmp_path))]


def _working_directories() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            yield str((process / "cwd").readlink())


def _bench_report() -> dict[str, Any]:
    rows = [Row("runs", "latency p50", 5.0, "ms", floor=2.0, goal=4.0), Row("runs", "memory", 60.0, "MiB", note="all")]
    return {"machine": MACHINE, "quick": False, "rows": [row.as_json() for row in rows]}


def test_ratios_compare_neighbouring_measurements() -> None:
    measured = [
        Figures(name, "", "", runs_per_sec=rate)
        for name, rate in (("ours", 200.0), ("restate", 100.0), ("ours", 90.0), ("celery", 1.0), ("restate", 30.0))
    ]
    assert [(mine.runs_per_sec, peer.name) for mine, peer in neighbours(measured)] == [
        (200.0, "restate"),
        (90.0, "celery"),
    ]
    written = page([{"machine": MACHINE, "measured": [vars(figures) for figures in measured]}])
    assert "| ours to restate, runs per second | 2.00 times | at least 1.50 | met |" in written


def test_the_machine_is_compared_with_the_reference_and_goals_are_scaled() -> None:
    floor = Row("three no-op steps, durable, 1 worker", "runs per second", 300.0, "/s", floor=570.0)
    peers = _peers()
    written = page([{"machine": MACHINE, "rows": [floor.as_json()]}, peers])
    assert "| the floor with fsync, runs/s | 1,140 | 570 | 0.50x |" in written
    assert "| restate, runs/s | 509 | 500 | 0.98x |" in written
    assert "| ours, runs/s | 764 | the floor with fsync, runs/s | at least 382 | 1,000 | met |" in written
    assert "| ours, CPU ms/run | 2.00 | restate, CPU ms/run | at most 2.06 | 2.00 | met |" in written
    assert "beside the reference" not in page([{**peers, "measured": peers["measured"][:1]}])


def _peers() -> dict[str, Any]:
    measured = [
        Figures("ours", "every commit", "", p50_ms=3.0, runs_per_sec=1_000.0, cpu_ms=2.0),
        Figures("restate", "every step", "", p50_ms=6.0, runs_per_sec=500.0, cpu_ms=3.5),
        Figures("prefect", "nothing", "", problem="it is not there"),
    ]
    return {"machine": MACHINE, "measured": [vars(figures) for figures in measured]}
