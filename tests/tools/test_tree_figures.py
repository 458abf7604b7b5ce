"""The figures of a source tree follow the definitions of their names."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.pages import ROOT
from tools.plain_language import IDIOMS
from tools.tree_figures import figures

IDIOM = next(iter(IDIOMS)).partition("|")[0]
LARGE = (
    '''"""A module."""
import time
from pkg import small


class _Job:
    pass


def read():
    try:
        return small.Job(time.monotonic())
    except Exception:
        return None
'''
    + "\n" * 50
)
SMALL = f'''"""Another module, with the idiom {IDIOM!r}."""

class Job:
    def __init__(self, at):
        try:
            self.at = at
        except (OSError, BaseException):
            raise
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "large.py").write_text(LARGE)
    (package / "small.py").write_text(SMALL)
    return tmp_path


def test_figures_count_files_and_their_lines(tree: Path) -> None:
    found = figures(tree)
    assert found["files"] == "3"
    assert found["lines"] == str(LARGE.count("\n") + SMALL.count("\n"))
    assert found["file length: median / p90 / max"].endswith(f" / {LARGE.count(chr(10))}")
    assert found["function length: median / p90 / max"].startswith("5 / ")
    assert (found["files under 40 lines"], found["… of these not `__init__`"]) == ("2", "1")


def test_figures_count_importers_and_class_names(tree: Path) -> None:
    found = figures(tree)
    assert found["modules with exactly one importer (without `__init__`)"] == "1"
    assert found["class names used more than once"] == "1", "Job and _Job"


def test_figures_count_idioms_blind_excepts_and_clock_calls(tree: Path) -> None:
    found = figures(tree)
    lines = int(found["lines"])
    assert found["idioms in `src/`"] == "1"
    assert found["blind excepts per 1,000 lines"] == f"{1000 / lines:.1f}"
    assert found["clock and randomness calls per 1,000 lines"] == f"{1000 / lines:.1f}"


def test_figures_refuse_a_folder_without_sources(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no Python files below src"):
        figures(tmp_path)


def _command(*trees: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.tree_figures", *trees]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 our own command


def test_command_prints_one_column_per_tree(tree: Path) -> None:
    done = _command(str(tree), str(tree))
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert {len(row) for row in rows} == {5}
    assert all(row[2] == row[3] for row in rows)


def test_command_refuses_a_name_that_is_no_tree() -> None:
    done = _command("no-such-revision")
    assert done.returncode == 1
    assert "neither a folder nor a git revision" in done.stderr
