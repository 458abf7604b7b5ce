"""Events with a text of the caller's choice, for tests that only need to distinguish events."""

import functools
from collections.abc import Sequence

from pyoco_server.core import Event
from tests.build import payload
from tests.core.samples import any_event


@functools.cache
def note(text: str) -> Event:
    """Return an event with this text; the same event for the same text."""
    return any_event("NODE_PROGRESS_REPORTED", message=text)


def texts(events: Sequence[Event]) -> list[str]:
    """Return the texts of these events."""
    return [payload(event)["message"] for event in events]
