"""The site: built from the pages without a warning, complete, and without a request to another host."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tools.pages import DOCS, ROOT

LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
LONGEST_SEC = 280
"""It takes ten; a machine that is busy with other tests may need its time."""
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author"}
"""Kinds of links in a page's head that no browser follows by itself."""
pytestmark = pytest.mark.timeout(LONGEST_SEC + 20)
ELSEWHERE = re.compile(r"^(https?:)?//")


class Loading(HTMLParser):
    """Everything a browser fetches by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # type: ignore[explicit-override]
        given = dict(attrs)
        if given.get("rel") not in NOT_LOADED and (target := given.get(LOADED.get(tag, ""))):
            self.targets.append(target)


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet", "--fail-on-warning", "--keep-going"]
    return subprocess.run(  # noqa: S603 our own interpreter
        [*command, "--conf-dir", str(ROOT), str(source), str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_SEC,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(DOCS, folder)
    assert built.returncode == 0, built.stderr
    return folder


def pages(site: Path) -> Iterator[Path]:
    return site.rglob("*.html")


def test_every_page_is_there(site: Path) -> None:
    for source in DOCS.rglob("*.md"):
        assert (site / source.relative_to(DOCS).with_suffix(".html")).exists(), source


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in pages(site):
        loading = Loading()
        loading.feed(page.read_text(encoding="utf-8"))
        assert loading.targets
        for target in loading.targets:
            assert not ELSEWHERE.match(target), f"{page.name}: {target}"
            if not target.startswith("data:"):
                found = page.parent / target.partition("#")[0].partition("?")[0]
                assert found.exists(), f"{page.name}: {target}"


def test_styles_fetch_nothing_from_elsewhere(site: Path) -> None:
    styles = [*(site / "_static").rglob("*.css")]
    assert styles
    for style in styles:
        for target in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s;]+)", style.read_text(encoding="utf-8")):
            assert not ELSEWHERE.match(target), f"{style.name}: {target}"


def test_it_can_be_searched_without_a_server(site: Path) -> None:
    assert "Search.setIndex" in (site / "searchindex.js").read_text(encoding="utf-8")


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    (source / "index.md").write_text("# A\n\n[b](#nowhere) [c](nowhere.md)\n")
    built = build(source, tmp_path / "site")
    assert built.returncode != 0
    assert built.stderr.count("WARNING") == 2
