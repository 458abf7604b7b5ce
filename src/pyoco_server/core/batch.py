"""The order of events that share a batch: cancel before failure before success before progress.

Events of different commands may reach one batch in any order; sorting them by these classes makes cancel win without
anybody deciding it. Events of *one* command belong together and keep the order in which they came about: an event is of
the same command as the earlier one its ``causationId`` names. (A cancel somebody asked for is always a command of its
own, whatever moved them to ask.) Creation, which the four classes do not name, comes
first, since nothing can be said of what does not exist.
"""

from collections.abc import Iterable
from typing import Final

from pyoco_server.core.events import ORCHESTRATOR, Event
from pyoco_server.core.transitions import EventType

_CLASSES: Final = (
    # Within a class a request stands before its fulfilment, and a node's end before its execution's.
    (EventType.EXECUTION_CREATED, EventType.NODE_CREATED),
    (
        EventType.EXECUTION_CANCEL_REQUESTED,
        EventType.NODE_CANCEL_REQUESTED,
        EventType.NODE_INTERRUPT_REQUESTED,
        EventType.NODE_CANCELED,
        EventType.EXECUTION_CANCELED,
    ),
    (
        EventType.EXECUTION_FAIL_REQUESTED,
        EventType.NODE_FAIL_REPORTED,
        EventType.NODE_FAILED,
        EventType.EXECUTION_FAILED,
    ),
    (EventType.NODE_SUCCEEDED, EventType.EXECUTION_COMPLETED),
)
PROGRESS_CLASS: Final = len(_CLASSES)
"""Everything else is progress: events of this class keep the order given."""

BATCH_PLACE: Final = dict.fromkeys(EventType, (PROGRESS_CLASS, 0)) | {
    event_type: (number, place) for number, members in enumerate(_CLASSES) for place, event_type in enumerate(members)
}


def order_batch(events: Iterable[Event]) -> list[Event]:
    """Return the events in the order in which they are to be applied; equal ones keep the order given."""
    families: dict[str, list[Event]] = {}
    family_of: dict[str, str] = {}
    for event in events:
        begins = event.type is EventType.EXECUTION_CANCEL_REQUESTED and event.actor != ORCHESTRATOR
        family = event.event_id if begins else family_of.get(event.causation_id or "", event.event_id)
        family_of[event.event_id] = family
        families.setdefault(family, []).append(event)
    ordered = sorted(families.values(), key=lambda family: BATCH_PLACE[family[0].type])
    return [event for family in ordered for event in family]
