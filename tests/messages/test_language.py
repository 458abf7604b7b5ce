"""Which language a reader gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyoco_server.messages import Language, negotiate, server_language

JA, EN = Language.JA, Language.EN


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("ja", JA),
        ("en", EN),
        ("EN-us", EN),
        ("en-GB-oed", EN),
        ("ja-JP, en;q=0.9", JA),
        ("ja;q=0.5, en;q=0.8", EN),
        ("en;q=0.8, ja;q=0.8", EN),
        ("ja;q=0.8, en;q=0.8", JA),
        ("fr, de;q=0.9, en;q=0.1", EN),
        ("en-US;q=0.2, ja;q=0.3, en;q=0.4", EN),
        ("en ; q=0.9 , ja ; q=0.1", EN),
        ("ja;Q=0.2,en;Q=0.3", EN),
        ("en;q=0.001, ja;q=0", EN),
        ("en, *", EN),
        ("*, en", EN),
    ],
)
def test_the_language_of_the_highest_quality_wins(header: str, expected: Language) -> None:
    assert negotiate(header, default=JA) is expected
    assert negotiate(header, default=EN) is expected


@pytest.mark.parametrize(
    "header", [None, "", "fr", "*", "fr, *;q=0.1", "en;q=0", "en;q=0, ja;q=0", ",,;", "eng", "e n"]
)
@pytest.mark.parametrize("default", Language)
def test_without_a_known_language_the_default_is_used(header: str | None, default: Language) -> None:
    assert negotiate(header, default=default) is default


def test_a_star_stands_for_the_languages_that_are_not_named() -> None:
    assert negotiate("en;q=0, *", default=EN) is JA
    assert negotiate("ja;q=0, *", default=JA) is EN
    assert negotiate("en;q=0.5, *", default=EN) is JA


@pytest.mark.parametrize("bad", ["en;q=2", "en;q=-1", "en;q=abc", "en;q=", "en;q=0.1234", "en;level=1", "en;q=1;x=y"])
def test_an_invalid_range_is_skipped(bad: str) -> None:
    assert negotiate(bad, default=JA) is JA
    assert negotiate(f"{bad}, ja;q=0.1", default=EN) is JA


@pytest.mark.parametrize(
    ("wanted", "environment", "expected"),
    [
        ("ja", {"LANG": "en_US.UTF-8"}, JA),
        ("en", {"LANG": "ja_JP.UTF-8"}, EN),
        ("auto", {"LANG": "ja_JP.UTF-8"}, JA),
        ("auto", {"LC_ALL": "C.UTF-8", "LANG": "ja_JP.UTF-8"}, EN),
        ("auto", {"LC_ALL": "", "LC_MESSAGES": "ja_JP", "LANG": "en_US"}, JA),
        ("auto", {}, EN),
    ],
)
def test_the_language_of_a_server(wanted: Any, environment: dict[str, str], expected: Language) -> None:
    assert server_language(wanted, environment) is expected


@given(st.text() | st.text(alphabet="enja-*,;q=01. "))
def test_any_header_gets_an_answer(header: str) -> None:
    assert negotiate(header, default=JA) in Language
