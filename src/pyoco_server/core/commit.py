"""A commit: the events of one command with all their consequences, appended together or not at all.

:class:`Draft` is a commit that is being built; :class:`Commit` is the result.
"""

from typing import NamedTuple

from pyoco_server.core.events import ORCHESTRATOR, Actor, Event, Stamp
from pyoco_server.core.payloads import Payload
from pyoco_server.core.reducer import reduce
from pyoco_server.core.state import ExecutionState


class Commit(NamedTuple):
    """Events that are appended together, and the state after them, so that no caller needs to fold them again."""

    events: list[Event]
    state: ExecutionState


class Draft:
    """Collects events and folds each into ``state``, so that the next rule sees what the earlier ones made.

    Besides the memory of a graph (``Graph.remembered``) this is the only mutable object in the core. It lives for one
    call and is never returned.
    """

    __slots__ = ("_stamp", "events", "state")

    def __init__(self, state: ExecutionState, stamp: Stamp) -> None:
        self.state = state
        self.events: list[Event] = []
        self._stamp = stamp

    def take(self, event: Event) -> None:
        """Add an event that exists already."""
        self.events.append(event)
        self.state = reduce(self.state, event)

    def emit(self, payload: Payload, cause: Event | None, *, actor: Actor = ORCHESTRATOR) -> Event:
        """Make an event, add it and return it; ``cause`` is the event that it follows from."""
        event = self._stamp.event(payload, actor, causation_id=cause.event_id if cause else None)
        self.take(event)
        return event
