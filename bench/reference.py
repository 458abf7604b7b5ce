"""Compare this machine with the one on which the goals were set: common figures, and the goals scaled to this one.

On a machine of half the speed every platform makes half the runs. Ratios to a peer in the same run need no correction
and are what counts; goals in runs a second or in milliseconds mean little without the speed of the machine.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.peers.measuring import Figures
from bench.peers.table import middle
from bench.rows import Goal, Row

REFERENCE_TEXT = (
    "The goals were set with figures of another machine, which has two cores, too. What both measured, by much the",
    "same programs. The floor there had 64 runs in flight and synced the log only; here it has 16 and syncs all.",
)
SCALED_TEXT = (
    "**Scaled goals are arithmetic, not what was asked for**: a goal as it was there, times what this machine made of",
    "the same work. The goals as they were set are above, unscaled.",
)

_RATE, _LATENCY, _CPU = "runs_per_sec", "p50_ms", "cpu_ms"
_UNITS = {_RATE: "runs/s", _LATENCY: "latency p50, ms", _CPU: "CPU ms/run"}
_FLOOR_THERE = {"durable": 1_140.0, "fast": 2_843.0}
_PEERS_THERE = {
    "restate": {_LATENCY: 6.7, _RATE: 509.0, _CPU: 3.4},
    "celery": {_LATENCY: 6.8, _RATE: 241.0, _CPU: 5.6},
    "pyoco-0.5.1-mended": {_LATENCY: 9.3, _RATE: 170.0, _CPU: 6.0},
    "dbos": {_LATENCY: 26.0, _RATE: 86.0, _CPU: 14.0},
    "temporal": {_LATENCY: 199.0, _RATE: 18.0, _CPU: 67.0},
}


class Both(NamedTuple):
    """One figure of both machines."""

    what: str
    there: float
    here: float


class Scaled(NamedTuple):
    """A goal of there, and what it would be here."""

    what: str
    goal: float
    by: str
    row: Row


def beside_reference(reports: Sequence[Mapping[str, Any]]) -> tuple[list[Both], list[Scaled]]:
    """What the reports of ``bench`` and ``bench.peers`` have in common with the reference; nothing if they do not."""
    found = {one.what: one for one in (*_floors(reports), *_peers(reports))}
    ours = {name: figures for name, figures in _merged(reports).items() if name.startswith("ours")}
    wanted: tuple[tuple[str, str, float, str, Goal], ...] = (
        ("ours", _RATE, 1.5 * _PEERS_THERE["restate"][_RATE], _floor_name("durable"), "at least"),
        ("ours", _RATE, 1.5 * _PEERS_THERE["restate"][_RATE], _peer_name("restate", _RATE), "at least"),
        ("ours", _LATENCY, _PEERS_THERE["restate"][_LATENCY], _peer_name("restate", _LATENCY), "at most"),
        ("ours", _CPU, 2.0, _peer_name("restate", _CPU), "at most"),
        ("ours-fast", _RATE, 5 * _PEERS_THERE["pyoco-0.5.1-mended"][_RATE], _floor_name("fast"), "at least"),
        ("ours-fast", _CPU, 2.0, _peer_name("pyoco-0.5.1-mended", _CPU), "at most"),
    )
    scaled = [_scaled(ours, found, *one) for one in wanted]
    return [*found.values()], [one for one in scaled if one is not None]


def _scaled(
    ours: Mapping[str, Figures], found: Mapping[str, Both], name: str, field: str, goal: float, by: str, goal_is: Goal
) -> Scaled | None:
    figure = getattr(ours[name], field) if name in ours else None
    if figure is None or by not in found:
        return None
    here = goal * found[by].here / found[by].there
    return Scaled(f"{name}, {_UNITS[field]}", goal, by, Row("", "", figure, "", goal=here, goal_is=goal_is))


def _floors(reports: Sequence[Mapping[str, Any]]) -> list[Both]:
    rows = [row for report in reports for row in report.get("rows", [])]
    floors = {row["subject"]: row["floor"] for row in rows if row["what"] == "runs per second" and row["floor"]}
    subjects = {kind: f"three no-op steps, {kind}, 1 worker" for kind in _FLOOR_THERE}
    return [
        Both(_floor_name(kind), there, floors[subjects[kind]])
        for kind, there in _FLOOR_THERE.items()
        if subjects[kind] in floors
    ]


def _peers(reports: Sequence[Mapping[str, Any]]) -> list[Both]:
    merged = _merged(reports)
    return [
        Both(_peer_name(name, field), there, here)
        for name, figures in _PEERS_THERE.items()
        for field, there in figures.items()
        if name in merged and (here := getattr(merged[name], field)) is not None
    ]


def _merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Figures]:
    measured = [Figures(**row) for report in reports for row in report.get("measured", [])]
    names = dict.fromkeys(figures.name for figures in measured)
    return {name: middle([figures for figures in measured if figures.name == name]) for name in names}


def _floor_name(kind: str) -> str:
    return f"the floor {'with' if kind == 'durable' else 'without'} fsync, runs/s"


def _peer_name(name: str, field: str) -> str:
    return f"{name}, {_UNITS[field]}"
