"""The tutorial works: every block of every page is run in order."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Reader

PAGES = sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md"))


@pytest.mark.timeout(300)  # thirty commands and a dozen servers and workers, one after the other
def test_the_tutorial(reader: Reader) -> None:
    assert [page.name[:2] for page in PAGES] == [f"{number:02}" for number in range(1, 10)]
    for page in PAGES:
        reader.follow(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_page_ends_with_something_that_runs_and_shows_what_it_prints(page: Path) -> None:
    command, printed = blocks(page)[-2:]
    assert (command.kind, command.not_run, printed.kind) == ("bash", None, "console")
