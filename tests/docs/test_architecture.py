"""ARCHITECTURE.md names modules that exist, and every package of the source tree."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.pages import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "pyoco_server"
PACKAGE = re.compile(r"^### (.+)$", re.MULTILINE)
NAME = re.compile(r"`([a-z_0-9/]+)`")
PATH = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+)(?:\.[A-Za-z_.]+)?`")
MOST_STEPS = 25


def _sections(heading: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    starts = [*heading.finditer(text)]
    for start, end in zip(starts, [*(found.start() for found in starts[1:]), len(text)], strict=True):
        yield start.group(1), text[start.end() : end].split("\n## ", maxsplit=1)[0]


def _rows() -> Iterator[tuple[str, str]]:
    """Return each name of the first column of a table of packages, with the package of the table."""
    for title, section in _sections(PACKAGE, PAGE):
        packages = NAME.findall(title)
        for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE):
            for name in NAME.findall(row):
                yield packages[0] if len(packages) == 1 else "", name


def _exists(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize(("package", "name"), [*_rows()])
def test_tables_name_modules_that_exist(package: str, name: str) -> None:
    assert _exists(SOURCE / package / name.rstrip("/")), f"{package}/{name}"


def test_tables_cover_every_package_below_the_documented_ones() -> None:
    documented = {f"{package}/{name}".strip("/") for package, name in _rows()}
    packages = {title for section, _ in _sections(PACKAGE, PAGE) for title in NAME.findall(section)}
    for package in packages & {"app", "gateway", "worker", "adapters", "cli"}:
        below = {path.name for path in (SOURCE / package).iterdir() if (path / "__init__.py").is_file()}
        named = {name.removeprefix(f"{package}/").split("/")[0] for name in documented}
        assert below <= named | set(NAME.findall(PAGE.replace("/`", "`"))), package


def test_paths_in_the_text_exist() -> None:
    paths = {path for path in PATH.findall(PAGE) if not path.startswith(("docs/", "stores/"))}
    assert paths
    assert not [path for path in paths if not _exists(SOURCE / path)]


@pytest.mark.parametrize("title", ["The path of a submission", "The path of a cancel"])
def test_a_path_has_at_most_25_steps(title: str) -> None:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    steps = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert [int(step) for step in steps] == [*range(1, len(steps) + 1)]
    assert 10 < len(steps) <= MOST_STEPS
