"""English and Japanese pages correspond: the same blocks, headings and order."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT, blocks

TUTORIAL: Final = ROOT / "docs" / "tutorial"
JAPANESE: Final = ROOT / "docs" / "ja" / "tutorial"
HOWTO_JAPANESE: Final = ROOT / "docs" / "ja" / "howto"
PAIRS: Final = [
    (ROOT / "README.md", ROOT / "README_ja.md"),
    *((page, JAPANESE / page.name) for page in sorted(TUTORIAL.glob("*.md"))),
    *((ROOT / "docs" / "howto" / page.name, page) for page in sorted(HOWTO_JAPANESE.glob("*.md"))),
]
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_TONGUES: Final = {"README.md": "README_ja.md", "README_ja.md": "README.md"}


def _text(page: Path) -> str:
    """Without the blocks: a comment in a program is no heading."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(_text(page)) if not link.startswith("http")]


def _targets(page: Path) -> set[str]:
    """Where the links lead, as the English page names it; the links from one language to the other are left out."""
    english = {link.replace("docs/ja/", "docs/").removeprefix("../../") for link in _links(page)}
    return {link.removeprefix("../") for link in english if link not in {*_TONGUES, *_TONGUES.values()}}


def test_there_is_a_japanese_page_for_every_english_one() -> None:
    assert sorted(page.name for page in JAPANESE.glob("*.md")) == sorted(page.name for page in TUTORIAL.glob("*.md"))


@pytest.mark.parametrize(("english", "japanese"), PAIRS, ids=[english.stem for english, _ in PAIRS])
def test_both_have_the_same_blocks_and_headings(english: Path, japanese: Path) -> None:
    def shape(page: Path) -> list[int]:
        return [len(mark) for mark in re.findall(r"^(#+) ", _text(page), re.MULTILINE)]

    def content(page: Path) -> list[tuple[str, str, str | None]]:
        return [(block.kind, block.text, block.not_run) for block in blocks(page)]

    assert content(japanese) == content(english)
    assert shape(japanese) == shape(english)


@pytest.mark.parametrize(("english", "japanese"), PAIRS[2:], ids=[english.stem for english, _ in PAIRS[2:]])
def test_both_lead_to_the_same_pages(english: Path, japanese: Path) -> None:
    assert {Path(link).name for link in _targets(japanese)} == {Path(link).name for link in _targets(english)}


@pytest.mark.parametrize("page", [page for pair in PAIRS for page in pair], ids=str)
def test_every_link_and_picture_is_there(page: Path) -> None:
    for link in _links(page):
        assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"
