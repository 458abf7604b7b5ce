"""Equal log lines are bounded, so that no client can fill the disk."""

import logging

import pytest

from pyoco_server.logs import line_limit
from pyoco_server.logs.line_limit import LAST_NOTE, MOST_LINES, limit_lines


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.INFO)
    limit_lines("tests.limited")
    limit_lines("tests.limited")
    found = logging.getLogger("tests.limited")
    assert len(found.filters) == 1
    found.filters[:] = [line_limit.LimitedLines()]
    return found


def test_lines_of_one_kind_are_limited_and_others_are_not(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MOST_LINES + 5):
        logger.warning("it broke\nsocket %d", number)
    logger.error("it broke\nsocket")
    logger.warning("something else")
    assert len(caplog.records) == MOST_LINES + 2
    notes = [position for position, record in enumerate(caplog.records) if record.__dict__.get("note") == LAST_NOTE]
    assert notes == [MOST_LINES - 1]


def test_a_new_window_has_room_again(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(MOST_LINES + 5):
        logger.warning("it broke")
    monkeypatch.setattr(line_limit, "WINDOW_SEC", 0.0)
    logger.warning("it broke")
    assert len(caplog.records) == MOST_LINES + 1
