"""What is measured of growth: figures over sizes, as curves that share a plot."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bench.rows import number

Points = list[tuple[float, float]]
"""Size and figure, by size."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """Curves of one unit over one kind of size."""

    key: str
    """What its file is called."""
    title: str
    of: str
    """What there is more and more of."""
    unit: str
    curves: Mapping[str, Points]
    note: str = ""

    def told(self) -> dict[str, Any]:
        """For a report."""
        return dataclasses.asdict(self)

    def sizes(self) -> list[float]:
        """All sizes something was measured at."""
        return sorted({size for points in self.curves.values() for size, _ in points})


def plot_from(told: dict[str, Any]) -> Plot:
    """The plot a report tells of."""
    curves = {name: [(size, figure) for size, figure in points] for name, points in told["curves"].items()}
    return Plot(**{**told, "curves": curves})


def grid(plot: Plot) -> list[list[str]]:
    """The figures as a table: a row a curve, a column a size, and how the last compares with the first."""
    sizes = plot.sizes()
    lines = [[f"{plot.unit}; {plot.of}", *(f"{size:,.0f}" for size in sizes), "last to first"]]
    for name, points in plot.curves.items():
        figures = dict(points)
        cells = [number(figures[size]) if size in figures else "-" for size in sizes]
        lines.append([name, *cells, f"{points[-1][1] / points[0][1]:.2f}x" if points and points[0][1] else "-"])
    return lines


def table(plot: Plot) -> str:
    """For a terminal."""
    lines = grid(plot)
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    shown = [_line(line, widths) for line in lines]
    return "\n".join([plot.title, *shown, *([f"  {plot.note}"] if plot.note else [])])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return f"  {first[0]:<{first[1]}}" + "".join(f"  {cell:>{width}}" for cell, width in rest)
