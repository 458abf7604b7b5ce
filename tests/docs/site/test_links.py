"""The link checker finds broken links, and no others."""

from pathlib import Path

import pytest
from tools.links import anchors, problems, slug


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text(
        "# A heading\n\n## `code` & more\n\n## A heading\n\n<a id='by-hand'></a>\n"
    )
    (tmp_path / "src").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "link",
    [
        "docs/there.md",
        "docs/there.md#a-heading",
        "docs/there.md#a-heading-1",
        "docs/there.md#code--more",
        "docs/there.md#by-hand",
        "docs",
        "#here",
        "https://example.com/nothing",
        "mailto:someone@example.com",
    ],
)
def test_working_links_are_accepted(root: Path, link: str) -> None:
    (root / "README.md").write_text(f"# Here\n\n[text]({link})\n")
    assert [*problems(root)] == []


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("docs/nowhere.md", "no such file"),
        ("docs/there.md#nowhere", "no such heading"),
        ("#nowhere", "no such heading"),
        ("../outside.md", "out of the repository"),
        ("/docs/there.md", "relative to the file with the link"),
    ],
)
def test_broken_links_are_reported(root: Path, link: str, expected: str) -> None:
    (root / "README.md").write_text(f"# Here\n\nSome text.\n\n- [text]({link})\n")
    [problem] = problems(root)
    assert problem.startswith(f"README.md:5: {link}: ")
    assert expected in problem


def test_links_in_pictures_and_tables_are_checked(root: Path) -> None:
    (root / "README.md").write_text("| a |\n|---|\n| [b](nowhere.md) |\n\n![c](nowhere.png)\n")
    assert len([*problems(root)]) == 2


def test_links_in_code_are_not_checked(root: Path) -> None:
    (root / "README.md").write_text("`[a](nowhere.md)`\n\n```text\n[b](nowhere.md)\n```\n")
    assert [*problems(root)] == []


def test_build_folders_are_not_checked(root: Path) -> None:
    for folder in ("build", ".venv"):
        (root / folder).mkdir()
        (root / folder / "page.md").write_text("[a](nowhere.md)\n")
    assert [*problems(root)] == []


def test_documents_that_the_code_names_must_exist(root: Path) -> None:
    (root / "src" / "code.py").write_text('"""See docs/there.md and docs/nowhere.md."""\n')
    assert [*problems(root)] == ["src/code.py: docs/nowhere.md: there is no such file"]


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("What is refused", "what-is-refused"),
        ("GET /runs/{run_id}", "get-runsrun_id"),
        ("flow.yaml", "flowyaml"),
        ("はじめに", "はじめに"),
        ("a - b", "a---b"),
    ],
)
def test_the_anchor_of_a_heading(heading: str, name: str, tmp_path: Path) -> None:
    assert slug(heading) == name
    (tmp_path / "page.md").write_text(f"# {heading}\n", encoding="utf-8")
    assert anchors(tmp_path / "page.md") == {name}
