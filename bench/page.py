"""``python -m bench.page REPORT …``: the page of figures and its plots, from what the benchmarks reported.

Any of the reports of ``python -m bench``, ``python -m bench.growth`` and ``python -m bench.peers`` may be given; their
content says which is which.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.growth.curves import Plot, grid, plot_from
from bench.peers.measuring import Figures
from bench.peers.table import middle, neighbours
from bench.plots import write_plots
from bench.reference import REFERENCE_TEXT, SCALED_TEXT, beside_reference
from bench.rows import Row, cells, number, row_from

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "performance"
PAGE = "figures.md"
_PEER_HEAD = ("", "p50 ms", "p95 ms", "runs/s", "CPU ms/run", "syncs/run, alone", "many in flight", "MiB", "list ms")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the plots."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where to write them (docs/performance)")
    arguments = parser.parse_args(argv)
    reports = [json.loads(path.read_text()) for path in arguments.reports]
    arguments.directory.mkdir(parents=True, exist_ok=True)
    (arguments.directory / PAGE).write_text(page(reports))
    write_plots((plot_from(plot) for report in reports for plot in report.get("plots", [])), arguments.directory)
    return 0


def page(reports: Sequence[Mapping[str, Any]]) -> str:
    """All reports as Markdown, in the order a reader wants them in."""
    lines = ["# Figures", "", "Written by `python -m bench.page` from what `make bench`, `python -m bench.growth` and"]
    lines += ["`make bench-peers` reported; [performance](../performance.md) says what to make of them.", ""]
    for key, section in (("rows", _table), ("measured", _peers), ("plots", _growth)):
        for report in reports:
            if key in report:
                lines += section(report)
    lines += _reference(reports)
    return "\n".join(lines).rstrip() + "\n"


def _machine(report: Mapping[str, Any]) -> list[str]:
    machine = report["machine"]
    facts = [
        f"{machine['cores']} cores of {machine['cpu'] or 'an unknown processor'}, {machine['memory_gib']} GiB",
        f"data on {machine['filesystem']}, Linux {machine['kernel']}, Python {machine['python']}",
        f"load average before {machine['load_before'][0]:.2f}",
    ]
    quick = " **Measured with `--quick`: good to see that it works, not as figures.**" if report.get("quick") else ""
    problems = [f"- {name} could not be measured further: {what}" for name, what in report.get("problems", {}).items()]
    return [f"Measured on {'; '.join(facts)}.{quick}", "", *problems, *([""] if problems else [])]


def _table(report: Mapping[str, Any]) -> Iterator[str]:
    rows = [row_from(row) for row in report["rows"]]
    yield from ("## One run of everything", "")
    yield from _machine(report)
    yield from ("The floor is the same number of raw operations on NATS, by nats-py alone, in the same run.", "")
    yield from _goals([row for row in rows if row.goal is not None])
    for subject in dict.fromkeys(row.subject for row in rows):
        yield from (f"### {_sentence(subject)}", "")
        shown = [cells(row) for row in rows if row.subject == subject]
        places = [place for place in range(6) if place < 2 or any(line[place] not in ("", "-") for line in shown)]
        head = ("", "figure", "floor", "ratio to it", "goal", "met?")
        yield from _markdown([head[place] for place in places], [[line[place] for place in places] for line in shown])
        notes = [f"- {row.what.strip()}: {row.note}" for row in rows if row.subject == subject and row.note]
        yield from [*notes, ""] if notes else []


def _goals(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield from ("### What was to be reached", "")
        lines = [(f"{row.subject}: {row.what}", *cells(row)[1:2], *cells(row)[4:]) for row in rows]
        yield from _markdown(("", "figure", "goal", "met?"), lines)


def _reference(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found, scaled = beside_reference(reports)
    if found:
        yield from ("## This machine beside the reference", "", *REFERENCE_TEXT, "")
        lines = [(one.what, number(one.there), number(one.here), f"{one.here / one.there:.2f}x") for one in found]
        yield from _markdown(("", "reference", "here", "here to there"), lines)
    if scaled:
        yield from (*SCALED_TEXT, "")
        goals = [
            (one.what, number(one.goal), one.by, *(cells(one.row)[place] for place in (4, 1, 5))) for one in scaled
        ]
        yield from _markdown(("", "goal there", "scaled by", "scaled goal", "figure here", "would be met?"), goals)


def _growth(report: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Growth", "")
    yield from _machine(report)
    for plot in map(plot_from, report["plots"]):
        yield from _one_plot(plot)


def _one_plot(plot: Plot) -> Iterator[str]:
    title = _sentence(plot.title)
    yield from (f"### {title}", "")
    if plot.sizes():
        yield from (f"![{title}, by the number of {plot.of}]({plot.key}.svg)", "")
    head, *lines = grid(plot)
    yield from _markdown(head, lines)
    if plot.note:
        yield from (f"{_sentence(plot.note)}.", "")


def _peers(report: Mapping[str, Any]) -> Iterator[str]:
    measured = [Figures(**row) for row in report["measured"]]
    names = list(dict.fromkeys(figures.name for figures in measured))
    merged = {name: middle([figures for figures in measured if figures.name == name]) for name in names}
    yield from ("## Beside others", "")
    yield from _machine(report)
    yield from ("Three no-op steps a run, one worker; processor time over all processes, with the client.", "")
    yield from _markdown(_PEER_HEAD, [_peer(figures) for figures in merged.values()])
    yield from _compared(measured)
    yield from (f"- **{figures.name}**: {_remarks(figures)}" for figures in merged.values())
    yield ""


def _peer(figures: Figures) -> list[str]:
    values = (figures.p50_ms, figures.p95_ms, figures.runs_per_sec, figures.cpu_ms, figures.syncs_single)
    more = (figures.syncs_many, figures.memory_mib, figures.page_ms)
    return [figures.name, *("-" if value is None else number(value) for value in (*values, *more))]


def _compared(measured: Sequence[Figures]) -> Iterator[str]:
    """What was to be reached beside others: the median of what neighbours in time have to each other."""
    lines = [
        _ratio(measured, "ours", "restate", "runs_per_sec", "runs per second", 1.5, least=True),
        _ratio(measured, "ours", "restate", "p50_ms", "latency p50", 1.0, least=False),
        _ratio(measured, "ours-fast", "pyoco-0.5.1-mended", "runs_per_sec", "runs per second", 5.0, least=True),
    ]
    if there := [line for line in lines if line is not None]:
        yield from ("Each to the one that was measured right after it; the median if that was done several times.", "")
        yield from _markdown(("", "ratio", "goal", "met?"), there)


def _ratio(
    measured: Sequence[Figures], mine: str, theirs: str, field: str, what: str, goal: float, *, least: bool
) -> list[str] | None:
    pairs = [
        (getattr(ours, field), getattr(peer, field))
        for ours, peer in neighbours(measured)
        if (ours.name, peer.name) == (mine, theirs)
    ]
    ratios = [ours / peer for ours, peer in pairs if ours is not None and peer]
    if not ratios:
        return None
    figure = statistics.median(ratios)
    row = Row("", "", figure, "times", goal=goal, goal_is="at least" if least else "at most")
    return [f"{mine} to {theirs}, {what}", *cells(row)[1:2], *cells(row)[4:]]


def _remarks(figures: Figures) -> str:
    words = [f"durable: {figures.durable}", figures.remark, *figures.notes]
    words += [f"{name} {figures.versions[name]}" for name in list(figures.versions)[:2]]
    words += [f"the list had {figures.page_of:,} runs"] if figures.page_of else []
    words += [f"not measured further: {figures.problem}"] if figures.problem else []
    return "; ".join(word for word in words if word)


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    for line in lines:
        yield f"| {' | '.join(cell.strip() for cell in line)} |"
    yield ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
