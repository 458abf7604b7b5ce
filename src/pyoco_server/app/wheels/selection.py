"""Selects the wheels for a worker: those for its tags that run on it, of each package the newest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.version import Version

from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.wheels.names import WheelName, known_name


class Interpreter(NamedTuple):
    """What a worker can run: its tags, a higher number being a better fit, and its version of Python."""

    tags: Mapping[Tag, int]
    python: str


class SkippedWheel(NamedTuple):
    """A wheel for the worker's tags that does not run on it, and why."""

    wheel: Wheel
    reason: str


class Selection(NamedTuple):
    """The wheels of each package that run on the worker, the best first, and those that do not."""

    packages: Mapping[str, Sequence[Wheel]]
    skipped: Sequence[SkippedWheel]

    @property
    def wanted(self) -> Sequence[Wheel]:
        """The best wheel of each package."""
        return [wheels[0] for wheels in self.packages.values()]


def interpreter(tags: Iterable[Tag], python: str) -> Interpreter:
    """Describe an interpreter by its tags, best first."""
    return Interpreter({tag: -place for place, tag in enumerate(tags)}, python)


def is_meant_for(wheel: Wheel, worker_tags: Sequence[str]) -> bool:
    """Return whether the wheel has one of the worker's tags, or none at all, which means: for all workers."""
    return not wheel.tags or not set(wheel.tags).isdisjoint(worker_tags)


def select(wheels: Iterable[Wheel], worker_tags: Sequence[str], here: Interpreter) -> Selection:
    """Return the wheels of the registry for a worker, by package, and those that do not run on it."""
    packages: dict[str, list[tuple[WheelName, Wheel]]] = {}
    skipped: list[SkippedWheel] = []
    for wheel in wheels:
        if not is_meant_for(wheel, worker_tags):
            continue
        name = known_name(wheel)
        reason = "its name is not that of a wheel" if name is None else _misfit(name, wheel, here)
        if name is None or reason:
            skipped.append(SkippedWheel(wheel, reason))
        else:
            packages.setdefault(name.package, []).append((name, wheel))
    return Selection({package: _newest_first(packages[package], here) for package in sorted(packages)}, skipped)


def _misfit(name: WheelName, wheel: Wheel, here: Interpreter) -> str:
    """Return why the wheel cannot run here; empty if it can."""
    if name.tags.isdisjoint(here.tags):
        return f"it is for {', '.join(sorted(map(str, name.tags)))}"
    try:
        if here.python not in SpecifierSet(wheel.requires_python, prereleases=True):
            return f"it needs Python {wheel.requires_python}, here is {here.python}"
    except InvalidSpecifier:
        return f"it needs Python {wheel.requires_python!r:.80}, whatever that is"
    return ""


def _newest_first(found: list[tuple[WheelName, Wheel]], here: Interpreter) -> list[Wheel]:
    def rank(item: tuple[WheelName, Wheel]) -> tuple[Version, int, tuple[()] | tuple[int, str], str]:
        name, wheel = item
        fit = max(here.tags[tag] for tag in name.tags if tag in here.tags)
        return name.version, fit, name.build, wheel.name

    return [wheel for _, wheel in sorted(found, key=rank, reverse=True)]
