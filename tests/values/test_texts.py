"""Long texts are shortened, with both ends and the number of characters left out; every text fits into JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from pyoco_server.texts import shortened


class Screaming(str):
    """A text whose methods are code of the user."""

    __slots__ = ()

    @override
    def __str__(self) -> str:
        raise AssertionError

    @override
    def __len__(self) -> int:
        raise AssertionError

    @override
    def encode(self, *_: object, **__: object) -> bytes:
        raise AssertionError


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "begin" + "x" * 20_000_000 + "end"
    found = shortened(text, 1_000)
    assert (found[:5], found[-3:]) == ("begin", "end")
    assert "[…19,999,008 characters left out…]" in found
    assert len(found) < 1_100


def test_a_text_that_fits_stays_as_it_is() -> None:
    assert shortened("héllo\n", 6) == "héllo\n"
    assert shortened("half \ud800") == "half \\ud800"
    assert type(shortened(Screaming("a"))) is str


@given(
    st.text(st.characters(codec=None), max_size=500) | st.text("\x00\x1f\U0001f600\ud800", max_size=500),
    st.integers(80, 200),
)
def test_every_text_fits(text: str, most: int) -> None:
    found = shortened(text, most)
    assert len(json.dumps(found, ensure_ascii=False).encode()) <= 2 * most + 6 * 80 + 60


@pytest.mark.parametrize("letter", ["\x00", "\U0001f600", "\ud800", '"', "\\"])
def test_letters_that_take_more_room_leave_less_of_the_text(letter: str) -> None:
    assert len(json.dumps(shortened(letter * 100_000, 4_000), ensure_ascii=False).encode()) <= 8_100
