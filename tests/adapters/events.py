"""Events that can be told apart by a text."""

import functools
from collections.abc import Sequence

from pyoco_server.core import Event
from tests.build import payload
from tests.core.samples import any_event


@functools.cache
def note(text: str) -> Event:
    """The same event for the same text."""
    return any_event("NODE_PROGRESS_REPORTED", message=text)


def texts(events: Sequence[Event]) -> list[str]:
    """What the notes say."""
    return [payload(event)["message"] for event in events]
