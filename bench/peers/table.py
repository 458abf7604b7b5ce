"""The figures as a table, and as JSON for those who plot them."""

import dataclasses
import os
import platform
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.peers.measuring import Figures

_HEAD = ("", "p50 ms", "p95 ms", "runs/s", "CPU ms/run", "syncs/run", "MiB", "list ms", "of runs")
_HEADLINE = "three no-op steps a run, one worker; CPU over all processes, with the client; MiB without it"
_WIDTHS = (20, 9, 9, 9, 11, 16, 7, 9, 9)


def table(measured: Sequence[Figures]) -> str:
    """One line a candidate: the median, if it was measured several times; below, what there is to say of it."""
    names = list(dict.fromkeys(figures.name for figures in measured))
    merged = [middle([figures for figures in measured if figures.name == name]) for name in names]
    lines = [_HEADLINE, f"syncs/run: alone / many in flight; data on {filesystem(Path(tempfile.gettempdir()))}", ""]
    lines += [_line(_HEAD), *(_row(figures) for figures in merged), ""]
    lines += [_details(figures) for figures in merged]
    lines += ["", *_beside_ours(measured)]
    return "\n".join(lines).rstrip()


def middle(several: Sequence[Figures]) -> Figures:
    """The median of each figure, over those that were measured without a problem, or else what there is."""
    good = [figures for figures in several if figures.problem is None] or list(several)
    merged: dict[str, Any] = dataclasses.asdict(good[0])
    for name in merged:
        values = [getattr(figures, name) for figures in good]
        numbers = [value for value in values if isinstance(value, float)]
        if numbers:
            merged[name] = statistics.median(numbers)
    merged["page_of"] = max(figures.page_of for figures in good)
    return Figures(**merged)


def machine() -> dict[str, Any]:
    """What it was measured on."""
    cpu = Path("/proc/cpuinfo").read_text().partition("model name\t: ")[2].partition("\n")[0]
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "filesystem": filesystem(Path(tempfile.gettempdir())),
        "load_before": os.getloadavg(),
    }


def filesystem(directory: Path) -> str:
    """What kind it is on: in memory, syncing costs nothing and says nothing."""
    mounts = [line.split(" ")[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return max((len(place), kind) for place, kind in mounts if directory.is_relative_to(place))[1]


def _line(cells: Sequence[str]) -> str:
    first, *rest = zip(cells, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest)


def _row(figures: Figures) -> str:
    syncs = [_number(value, 1) for value in (figures.syncs_single, figures.syncs_many)]
    return _line(
        (
            figures.name,
            _number(figures.p50_ms, 1),
            _number(figures.p95_ms, 1),
            _number(figures.runs_per_sec, 0),
            _number(figures.cpu_ms, 1),
            " / ".join(syncs) if figures.syncs_single is not None else "-",
            _number(figures.memory_mib, 0),
            _number(figures.page_ms, 1),
            f"{figures.page_of:,}" if figures.page_of else "-",
        )
    )


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _details(figures: Figures) -> str:
    words = [f"durable: {figures.durable}", figures.remark, *figures.notes]
    if figures.in_flight:
        words.append(f"{figures.single_runs} runs alone, {figures.many_runs} with {figures.in_flight} in flight")
    if figures.disk_sync_ms is not None:
        words.append(f"one sync took {figures.disk_sync_ms:.2f} ms just before")
    if figures.problem:
        words.append(f"NOT MEASURED{' FURTHER' if figures.p50_ms is not None else ''}: {figures.problem}")
    return f"{figures.name}: " + "; ".join(word for word in words if word)


def neighbours(measured: Sequence[Figures]) -> list[tuple[Figures, Figures]]:
    """Each peer with ours as measured right before it, so that what else the machine did is about the same."""
    pairs, mine = [], list[Figures]()
    for figures in measured:
        if figures.name.startswith("ours"):
            mine.append(figures)
        else:
            pairs += [(ours, figures) for ours in mine]
            mine = []
    return pairs


def _beside_ours(measured: Sequence[Figures]) -> list[str]:
    lines = [_ratio(ours, peer) for ours, peer in neighbours(measured) if peer.runs_per_sec is not None]
    return [f"{'beside the one measured next to it':<40}{'runs/s':>9}{'p50':>9}{'CPU':>9}", *lines] if lines else []


def _ratio(ours: Figures, peer: Figures) -> str:
    pairs = [(ours.runs_per_sec, peer.runs_per_sec), (ours.p50_ms, peer.p50_ms), (ours.cpu_ms, peer.cpu_ms)]
    ratios = [f"{mine / theirs:.2f}x" if mine and theirs else "-" for mine, theirs in pairs]
    return f"  {f'{ours.name} to {peer.name}':<38}" + "".join(f"{ratio:>9}" for ratio in ratios)
