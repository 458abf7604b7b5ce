"""Both dictionaries have the same keys and placeholders, and every key is used."""

import json
import re

import pytest

from pyoco_server.gateway.dashboard.serving import STATIC

_ENTRY = re.compile(r'^\s*"([a-z_.]+)":\s*(".*"),$', re.MULTILINE)
_KEY = re.compile(r'"([a-z]+\.[a-z_]+)"')
_ASKED = re.compile(r'\bt\(\s*"([^"]+)"')
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")


def entries(language: str) -> dict[str, str]:
    text = (STATIC / "i18n" / f"{language}.js").read_text(encoding="utf-8")
    return {key: json.loads(value) for key, value in _ENTRY.findall(text)}


EN, JA = entries("en"), entries("ja")
CODE = {path: path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js") if path.parent.name != "i18n"}


def test_both_dictionaries_have_the_same_keys() -> None:
    assert EN.keys() == JA.keys()
    assert len(EN) > 200


@pytest.mark.parametrize("key", sorted(EN))
def test_both_dictionaries_have_the_same_placeholders(key: str) -> None:
    assert EN[key].strip()
    assert JA[key].strip()
    assert sorted(re.findall(r"\{\w+\}", EN[key])) == sorted(re.findall(r"\{\w+\}", JA[key]))


def test_no_text_is_left_over() -> None:
    used = {key for text in CODE.values() for key in _KEY.findall(text)}
    assert not EN.keys() - used


def test_no_text_is_missing() -> None:
    asked = {key for text in CODE.values() for key in _ASKED.findall(text)}
    assert len(asked) > 150
    assert not asked - EN.keys()


def test_japanese_stands_in_its_dictionary_only() -> None:
    found = {path.name: _JAPANESE.findall(text) for path, text in CODE.items() if _JAPANESE.search(text)}
    assert found == {"shell.js": list("日本語")}  # what the switch to Japanese says
    assert not [key for key, text in EN.items() if _JAPANESE.search(text)]
