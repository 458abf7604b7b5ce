"""Which sets of answers have an order that explains them."""

import pytest

from tests.sim.history import ABSENT, CREATED, EXISTS, REFUSED, UNKNOWN, Kind, Operation
from tests.sim.linearizability import is_linearizable

SUBMIT, CREATE, CANCEL, GET = Kind.SUBMIT, Kind.CREATE, Kind.CANCEL, Kind.GET


def operations(*answers: tuple[Kind, int, int | None, str]) -> list[Operation]:
    return [Operation(kind, "run", asked, answered, answer) for kind, asked, answered, answer in answers]


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, "RUNNING"), (GET, 5, 6, "COMPLETED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, 4, "CANCELLING"), (GET, 5, 6, "CANCELLED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, 9, "CANCELLING"), (GET, 4, 5, "RUNNING"), (GET, 6, 7, "CANCELLING")],
        [(SUBMIT, 1, 9, "PENDING"), (GET, 2, 3, ABSENT), (GET, 4, 5, "RUNNING")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, None, UNKNOWN), (GET, 5, 6, "RUNNING"), (GET, 7, 8, "CANCELLED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, None, UNKNOWN), (GET, 5, 6, "COMPLETED")],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, "FAILED"), (SUBMIT, 5, 6, "PENDING"), (CANCEL, 7, 8, "FAILED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, 4, REFUSED), (GET, 5, 6, "RUNNING")],
        [(SUBMIT, 1, None, UNKNOWN), (GET, 2, 3, ABSENT), (GET, 8, 9, "RUNNING")],
        [(CREATE, 1, 2, CREATED), (CREATE, 3, 4, EXISTS), (GET, 5, 6, "PENDING")],
        [(CREATE, 1, 8, EXISTS), (CREATE, 2, 9, CREATED), (CANCEL, 10, 11, "CANCELLING")],
        [(CREATE, 1, None, UNKNOWN), (GET, 2, 3, ABSENT), (CREATE, 4, 5, EXISTS), (GET, 6, 7, "RUNNING")],
    ],
)
def test_answers_with_a_valid_order_are_linearizable(answers: list[tuple[Kind, int, int | None, str]]) -> None:
    assert is_linearizable(operations(*answers))


@pytest.mark.parametrize(
    "answers",
    [
        [(GET, 1, 2, "RUNNING")],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, ABSENT)],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, "RUNNING"), (GET, 5, 6, "PENDING")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, 4, "CANCELLING"), (GET, 5, 6, "COMPLETED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, 4, "CANCELLING"), (GET, 5, 6, "RUNNING")],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, "COMPLETED"), (CANCEL, 5, 6, "CANCELLING")],
        [(SUBMIT, 1, 2, "PENDING"), (GET, 3, 4, "COMPLETED"), (GET, 5, 6, "CANCELLED")],
        [(SUBMIT, 1, 2, "PENDING"), (CANCEL, 3, None, UNKNOWN), (GET, 5, 6, "CANCELLED"), (GET, 7, 8, "COMPLETED")],
        [(SUBMIT, 4, 5, "PENDING"), (GET, 1, 2, "PENDING")],
        [(CREATE, 1, 2, CREATED), (GET, 3, 4, ABSENT)],
        [(CREATE, 1, 2, CREATED), (CREATE, 3, 4, CREATED)],
        [(CREATE, 1, 2, EXISTS), (CREATE, 3, 4, CREATED)],
        [(CREATE, 1, 2, CREATED), (CANCEL, 3, 4, "CANCELLING"), (CREATE, 5, 6, EXISTS), (GET, 7, 8, "COMPLETED")],
    ],
)
def test_answers_without_a_valid_order_are_not_linearizable(answers: list[tuple[Kind, int, int | None, str]]) -> None:
    assert not is_linearizable(operations(*answers))
