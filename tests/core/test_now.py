"""Time comes in as an argument: what is taken for one."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyoco_server.core import DecodeError, handle, initial_state
from tests.build import EXECUTION, Ids, command

CREATE = command("CreateExecution", graphId="g")
TOKYO = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    "now",
    [
        datetime(2026, 1, 1, 9, tzinfo=TOKYO),
        datetime(2026, 1, 1, tzinfo=UTC),
        "2026-01-01T00:00:00Z",
        "2026-01-01T09:00:00+09:00",
    ],
    ids=str,
)
def test_a_time_with_its_offset_is_kept_in_utc(now: datetime | str) -> None:
    (made,) = handle(initial_state(EXECUTION), CREATE, now=now, new_id=Ids())
    assert made.occurred_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert made.occurred_at.tzinfo is UTC


@pytest.mark.parametrize("now", [datetime(2026, 1, 1), "2026-01-01T00:00:00", "yesterday"], ids=str)  # noqa: DTZ001
def test_a_time_without_its_offset_is_refused(now: datetime | str) -> None:
    with pytest.raises(DecodeError, match="now"):
        handle(initial_state(EXECUTION), CREATE, now=now, new_id=Ids())
