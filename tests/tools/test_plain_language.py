"""The check of the vocabulary finds idioms in words and names, and its exceptions are used."""

from pathlib import Path

import pytest
from tools.pages import ROOT
from tools.plain_language import IDIOMS, INTENTIONAL, problems

IDIOM = next(iter(IDIOMS)).partition("|")[0]
SENTENCES = [
    f"# They {IDIOM} the gateway.",
    f"def {IDIOM}_the_gateway(): ...",
    f"def test_it_is_{IDIOM.upper()}(): ...",
]


def _tree(folder: Path, text: str) -> Path:
    (folder / "src").mkdir()
    (folder / "src" / "module.py").write_text(f"{text}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("text", SENTENCES)
def test_an_idiom_is_found_in_comments_and_names(tmp_path: Path, text: str) -> None:
    [found] = problems(_tree(tmp_path, text))
    assert found.startswith("src/module.py:1: ")
    assert IDIOMS[next(iter(IDIOMS))] in found


@pytest.mark.parametrize("text", [f"inter{IDIOM}", f"{IDIOM}er", '"action": "spent_job_crashed"'])
def test_a_part_of_a_word_and_an_action_key_are_no_idioms(tmp_path: Path, text: str) -> None:
    assert [*problems(_tree(tmp_path, text))] == []


@pytest.mark.parametrize(("file", "text"), sorted(INTENTIONAL))
def test_every_exception_is_in_its_file(file: str, text: str) -> None:
    assert text in (ROOT / file).read_text(encoding="utf-8")
