"""The commands of README.md work."""

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from tests.cli.serving import clean_environment, free_port
from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Reader

README: Final = ROOT / "README.md"
ONE_SCREEN: Final = 100


def test_the_first_five_minutes(reader: Reader) -> None:
    reader.follow(blocks(README))


def test_make_demo_shows_a_run_that_completes(tmp_path: Path) -> None:
    """Not on a terminal, so that it leaves when the run has ended; and what it would install first is here already."""
    assert any("make demo" in block.text for block in blocks(README))
    installed = tmp_path / "installed"
    installed.touch()
    surroundings = clean_environment(
        MAKEFLAGS="e",  # what the environment says counts more than what the Makefile says
        READY=str(installed),
        BIN=sysconfig.get_path("scripts"),
        PYOCO_HTTP_PORT=str(free_port()),
        PYOCO_DATA_DIR=str(tmp_path / "data"),
    )
    done = subprocess.run(
        ["make", "--no-print-directory", "demo"],  # noqa: S607 whichever make there is
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == os.EX_OK, done.stderr
    assert "submitted monthly-report" in done.stdout
    assert "SUCCEEDED report" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("COMPLETED")


def test_it_is_one_screen() -> None:
    """What needs more room belongs on a page of its own."""
    for name in ("README.md", "README_ja.md"):
        assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= ONE_SCREEN, name
