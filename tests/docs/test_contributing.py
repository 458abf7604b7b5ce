"""The recipes of CONTRIBUTING.md name files and identifiers that exist."""

import re

import pytest
from tools.pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## (A first change: .+)$", PAGE, re.MULTILINE)
FOLDERS = (ROOT, ROOT / "src" / "pyoco_server", ROOT / "tests")
FILE = re.compile(r"`([\w/]+\.(?:py|md))`")
IDENTIFIER = re.compile(r"`(_?[A-Za-z]+_?[A-Za-z_]*)`")
NEW = {"unanimous_of_rest"}
"""Names that a recipe adds."""


def _section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def _texts(section: str) -> dict[str, str]:
    """Return the text of each file that a recipe names; a name without a folder is in a folder that it names, too."""
    folders = [folder / name.rstrip("/") for name in re.findall(r"`([\w/]+/)`", section) for folder in FOLDERS]
    found = {}
    for name in FILE.findall(section):
        places = [
            folder / name for folder in (*FOLDERS, *(folders if "/" not in name else ())) if (folder / name).is_file()
        ]
        found[name] = places[0].read_text(encoding="utf-8") if places else ""
    return found


def test_there_are_recipes() -> None:
    assert len(RECIPES) == 2


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_files_that_exist(title: str) -> None:
    texts = _texts(_section(title))
    assert len(texts) > 2
    assert not [name for name, text in texts.items() if not text]


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_identifiers_of_its_files(title: str) -> None:
    section = _section(title)
    text = "\n".join(_texts(section).values())
    names = set(IDENTIFIER.findall(section)) - NEW
    assert names
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)]
