"""What is measured of growth: figures over sizes, as curves that share a plot."""

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from bench.command import PROBLEMS
from bench.rows import number

T = TypeVar("T")

POINT_SEC = 180.0
"""No size is measured for longer than this."""

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

    def as_json(self) -> dict[str, Any]:
        """Return the plot for a report."""
        return dataclasses.asdict(self)

    def sizes(self) -> list[float]:
        """All sizes something was measured at."""
        return sorted({size for points in self.curves.values() for size, _ in points})


def plot_from(report: dict[str, Any]) -> Plot:
    """Return the plot of a report."""
    curves = {name: [(size, figure) for size, figure in points] for name, points in report["curves"].items()}
    names = {field.name for field in dataclasses.fields(Plot)}
    return Plot(**{name: value for name, value in report.items() if name in names} | {"curves": curves})


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


class Bounded:
    """Measures at growing sizes, each within its time, and remembers at which it could not."""

    def __init__(self) -> None:
        self.note = ""

    def at(self, size: int, measuring: Coroutine[Any, Any, T]) -> T | None:
        """Return the figure; None if it could not be measured, which the note says."""

        async def bounded() -> T:
            async with asyncio.timeout(POINT_SEC):
                return await measuring

        try:
            return asyncio.run(bounded())
        except TimeoutError as error:
            why = str(error) or f"it took more than {POINT_SEC:.0f} s"
        except PROBLEMS as error:
            why = str(error)
        self.note += f"; {size:,} could not be measured: {why}"
        return None
