"""Plots as SVG: lines over time with bands, and dots in rows."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 960
HEIGHT: Final = 300
LEFT: Final = 48
TOP: Final = 40
BOTTOM: Final = 28
ROW: Final = 24
LABELS: Final = 190
COLORS: Final = ("#2563eb", "#16a34a", "#dc2626", "#9333ea", "#d97706", "#0891b2", "#64748b", "#be185d")


class Band(NamedTuple):
    """A marked period."""

    start: float
    end: float
    label: str


def lines(title: str, series: Mapping[str, Sequence[float]], bands: Sequence[Band], step_sec: float) -> str:
    """Draw series of numbers, one every ``step_sec`` seconds, with the bands behind them."""
    count = max(len(values) for values in series.values())
    span = max(count * step_sec, 1.0)
    most = max(1.0, *(max(values, default=0.0) for values in series.values()))

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - 12) * min(max(seconds, 0.0), span) / span

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / most

    parts = [text(LEFT, 14, title, size=13)]
    for band in bands:
        width = max(x(band.end) - x(band.start), 1.0)
        parts.append(
            f'<rect x="{x(band.start):.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - BOTTOM - TOP}" '
            f'fill="#f59e0b" fill-opacity="0.25"><title>{escape(band.label)}</title></rect>'
        )
    for part in range(5):
        value = most * part / 4
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - 12}" stroke="#cbd5e1" stroke-width="0.5"/>')
        parts.append(text(LEFT - 6, y(value) + 4, f"{value:.0f}", anchor="end"))
        parts.append(text(x(span * part / 4), HEIGHT - 8, f"{span * part / 4:.0f} s", anchor="middle"))
    for place, ((name, values), color) in enumerate(zip(series.items(), COLORS, strict=False)):
        path = " ".join(
            f"{'L' if number else 'M'}{x((number + 0.5) * step_sec):.1f} {y(value):.1f}"
            for number, value in enumerate(values)
        )
        parts.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.3"/>')
        parts.append(text(LEFT + 130 * place, 30, name, color=color))
    parts.append(text(LEFT + 130 * len(series), 30, "fault", color="#b45309"))
    return svg(WIDTH, HEIGHT, parts)


def dots(title: str, rows: Mapping[str, Sequence[float]], unit: str) -> str:
    """Draw a row of dots for each name, with the median as a bar."""
    height = TOP + ROW * len(rows) + BOTTOM
    most = max(1.0, *(max(values, default=0.0) for values in rows.values())) if rows else 1.0

    def x(value: float) -> float:
        return LABELS + (WIDTH - LABELS - 24) * value / most

    parts = [text(LABELS, 16, title, size=13)]
    for part in range(5):
        value = most * part / 4
        parts.append(f'<path d="M{x(value):.1f} {TOP - 8}V{height - BOTTOM}" stroke="#cbd5e1" stroke-width="0.5"/>')
        parts.append(text(x(value), height - 8, f"{value:.1f} {unit}", anchor="middle"))
    for place, (name, values) in enumerate(rows.items()):
        middle = TOP + ROW * place + ROW / 2
        parts.append(text(LABELS - 10, middle + 4, f"{name} ({len(values)})", anchor="end"))
        parts += [
            f'<circle cx="{x(value):.1f}" cy="{middle:.1f}" r="3.5" fill="#2563eb" fill-opacity="0.55"/>'
            for value in values
        ]
        if values:
            median = sorted(values)[len(values) // 2]
            parts.append(f'<path d="M{x(median):.1f} {middle - 8:.1f}v16" stroke="#dc2626" stroke-width="2"/>')
    return svg(WIDTH, height, parts)


def text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start", color: str = "#334155") -> str:
    """Return words at a position."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}">{escape(words)}</text>'
    )


def svg(width: int, height: float, parts: Sequence[str]) -> str:
    """Return the drawing."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height:.0f}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
