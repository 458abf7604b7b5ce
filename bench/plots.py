"""Growth drawn as SVG: sizes on a logarithmic scale, figures from zero on unless they lie too far apart for that."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.plots import BOTTOM, COLORS, HEIGHT, TOP, WIDTH, svg, text

from bench.growth.curves import Plot
from bench.rows import number

LEFT, RIGHT = 64, 24
LEGEND = 210
WIDE = 20.0
"""Figures that are so many times the smallest would press it to the ground."""


def write_plots(plots: Iterable[Plot], directory: Path) -> None:
    """A file for each that has figures."""
    directory.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        if plot.sizes():
            (directory / f"{plot.key}.svg").write_text(drawn(plot))


def drawn(plot: Plot) -> str:
    """The plot as SVG."""
    sizes, figures = plot.sizes(), [figure for points in plot.curves.values() for _, figure in points]
    scale = _logarithmic(figures) if max(figures) > WIDE * max(min(figures), 0.0) > 0 else _from_zero(figures)
    least, span = math.log(sizes[0]), math.log(sizes[-1] / sizes[0]) or 1.0

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(size) - least) / span

    def y(figure: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * scale.share(figure)

    parts = [text(LEFT, 14, f"{plot.title} ({plot.unit}{scale.label})", size=13)]
    for figure in scale.lines:
        parts.append(f'<path d="M{LEFT} {y(figure):.1f}H{WIDTH - RIGHT}" stroke="#cbd5e1" stroke-width="0.5"/>')
        parts.append(text(LEFT - 6, y(figure) + 4, number(figure), anchor="end"))
    for place, size in enumerate(sizes):
        last = place == len(sizes) - 1
        label = f"{size:,.0f} {plot.of}" if last else f"{size:,.0f}"
        parts.append(text(x(size) + (RIGHT - 4 if last else 0), HEIGHT - 8, label, anchor="end" if last else "middle"))
    for place, ((name, points), color) in enumerate(zip(plot.curves.items(), COLORS, strict=False)):
        path = " ".join(f"{'L' if n else 'M'}{x(size):.1f} {y(figure):.1f}" for n, (size, figure) in enumerate(points))
        parts.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        for size, figure in points:
            tip = f"<title>{number(figure)} {plot.unit}</title>"
            parts.append(f'<circle cx="{x(size):.1f}" cy="{y(figure):.1f}" r="3.5" fill="{color}">{tip}</circle>')
            beside = y(figure) + (14 if place % 2 else -7)
            parts.append(text(x(size), beside, number(figure), size=10, anchor="middle", color=color))
        parts.append(text(LEFT + LEGEND * place, 30, name, color=color))
    return svg(WIDTH, HEIGHT, parts)


class _Scale(NamedTuple):
    """Where figures are between the bottom and the top."""

    share: Callable[[float], float]
    lines: list[float]
    label: str


def _from_zero(figures: Sequence[float]) -> _Scale:
    most = _round_up(max(figures))
    return _Scale(lambda figure: figure / most, [most * part / 4 for part in range(5)], "")


def _logarithmic(figures: Sequence[float]) -> _Scale:
    """From one power of ten to another."""
    first, last = math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures)))
    lines = [10.0**power for power in range(first, last + 1)]
    return _Scale(lambda figure: (math.log10(figure) - first) / (last - first), lines, ", logarithmic")


def _round_up(figure: float) -> float:
    """A little more than the figure, in two digits, so that the lines of the scale have short names."""
    if figure <= 0:
        return 1.0
    step = 10.0 ** (math.floor(math.log10(figure)) - 1)
    return math.ceil(figure * 1.1 / step) * step
