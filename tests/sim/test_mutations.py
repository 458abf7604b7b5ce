"""The simulator finds each planted bug in some world."""

import pytest

from tests.sim.mutation_table import DOCUMENT, known_finds, search, table
from tests.sim.mutations import MUTATIONS
from tests.sim.world import simulate

MOST = 400
"""How many worlds to try if the known one does not find the bug any more."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str) -> None:
    assert search(name, MOST, known_finds().get(name)) is not None


def test_a_planted_bug_is_removed_after_its_block() -> None:
    with MUTATIONS["drop_the_compare_and_set"]():
        assert simulate(1).violations
    assert not simulate(1).violations


def test_the_document_has_the_newest_table() -> None:
    assert table(known_finds()) in DOCUMENT.read_text(encoding="utf-8")


def test_there_are_at_least_twelve_and_all_of_them_were_found() -> None:
    assert len(MUTATIONS) >= 12
    assert {*known_finds()} == {*MUTATIONS}
