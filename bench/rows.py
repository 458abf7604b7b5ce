"""What was measured, one row a figure: beside the floor where there is one, and the goal where there is one."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

Goal = Literal["at most", "at least"]
_HEAD = ("", "figure", "floor", "ratio", "goal", "")
_WIDTHS = (14, 12, 8, 18, 8)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure."""

    subject: str
    what: str
    figure: float
    unit: str
    floor: float | None = None
    """The same with nothing of ours in between, measured in the same run."""
    goal: float | None = None
    goal_is: Goal = "at most"
    note: str = ""
    """What a reader should know to understand the figure."""

    @property
    def ratio(self) -> float | None:
        """How many times the floor it is."""
        return self.figure / self.floor if self.floor else None

    @property
    def is_met(self) -> bool | None:
        """Is the goal reached? None: there is none."""
        if self.goal is None:
            return None
        return self.figure <= self.goal if self.goal_is == "at most" else self.figure >= self.goal

    def as_json(self) -> dict[str, Any]:
        """Return the row for a report."""
        return {**dataclasses.asdict(self), "ratio": self.ratio, "is_met": self.is_met}


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured: all of it, or only so much that one sees that it works."""

    quick: bool

    def choose(self, full: T, quick: T) -> T:
        """One of the two."""
        return quick if self.quick else full


def row_from(report: dict[str, Any]) -> Row:
    """Return the row of a report."""
    names = {field.name for field in dataclasses.fields(Row)}
    return Row(**{name: value for name, value in report.items() if name in names})


def table(rows: Sequence[Row]) -> str:
    """For a terminal: the rows under their subjects."""
    width = max([len(row.what) for row in rows], default=0) + 4
    lines = [_line(_HEAD, width)]
    for subject in dict.fromkeys(row.subject for row in rows):
        lines += ["", subject, *(_line(cells(row), width) for row in rows if row.subject == subject)]
    return "\n".join(lines)


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """What, figure, floor, ratio, goal, and whether it is met."""
    return (
        row.what,
        f"{number(row.figure)} {row.unit}",
        "-" if row.floor is None else number(row.floor),
        "-" if row.ratio is None else f"{row.ratio:.2f}x",
        "-" if row.goal is None else f"{row.goal_is} {number(row.goal)}",
        {None: "", True: "met", False: "NOT MET"}[row.is_met],
    )


def number(value: float) -> str:
    """As many digits as say something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _line(words: Sequence[str], width: int) -> str:
    first, *rest = words
    shown = "".join(f"{cell:>{room}}" for cell, room in zip(rest, _WIDTHS, strict=True))
    return f"  {first:<{width}}{shown}".rstrip()
