"""The Makefile runs every test, and lists every target that a person calls."""

import re
import subprocess
from pathlib import PurePath
from typing import NamedTuple

import pytest
from tools.pages import ROOT

TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
TEST_FILES = sorted(
    path.relative_to(ROOT) for folder in ("tests", "examples") for path in (ROOT / folder).rglob("test_*.py")
)


class Selection(NamedTuple):
    """The paths that one group gives to pytest, and those it ignores."""

    paths: tuple[str, ...]
    ignored: tuple[str, ...]

    def has(self, file: PurePath) -> bool:
        return any(file.is_relative_to(path) for path in self.paths) and not any(
            file.is_relative_to(path) for path in self.ignored
        )


def _selection(target: str) -> Selection:
    [recipe] = re.findall(rf"^{target}: .*\n((?:\t.*\n)+)", TEXT, re.MULTILINE)
    [line] = [line for line in recipe.splitlines() if "pytest" in line.lower()]
    ignored = re.findall(r"--ignore (\S+)", line)
    paths = [path for path in re.findall(r"(?<=\s)(?:tests/[\w/]+|examples)", line) if path not in ignored]
    return Selection(tuple(paths), tuple(ignored))


def _groups() -> list[str]:
    [names] = re.findall(r"^GROUPS := (.*)$", TEXT, re.MULTILINE)
    return ["unit", *names.split()]


GROUPS = {name: _selection(name) for name in _groups()}


def test_every_test_file_belongs_to_exactly_one_group_of_make_test() -> None:
    owners = {file: [name for name, group in GROUPS.items() if group.has(file)] for file in TEST_FILES}
    assert {str(file): names for file, names in owners.items() if len(names) != 1} == {}


@pytest.mark.parametrize("path", sorted({path for group in GROUPS.values() for path in (*group.paths, *group.ignored)}))
def test_every_path_of_a_group_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_help_lists_every_target_but_the_parts_of_others() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607 the installed make
    listed = re.findall(r"^make ([a-z-]+) +\S.*$", done.stdout, re.MULTILINE)
    targets = re.findall(r"^([a-z-]+):", TEXT, re.MULTILINE)
    assert [name for name in targets if name not in listed and not name.startswith("check-")] == ["site"]
    assert len(listed) == len(done.stdout.splitlines())
