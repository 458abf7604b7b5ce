"""A commit in the making: the events so far, and the state they lead to."""

from typing import NamedTuple

from pyoco_server.core.events import ORCHESTRATOR, Actor, Event, Stamp
from pyoco_server.core.payloads import Payload
from pyoco_server.core.reducer import reduce
from pyoco_server.core.state import ExecutionState


class Commit(NamedTuple):
    """Events that belong together, and the state they lead to, so that nobody need fold them again."""

    events: list[Event]
    state: ExecutionState


class Draft:
    """Collects events; every rule that adds one sees the state all earlier ones made.

    This is the one mutable object in the core, but for what a graph remembers. It lives for a single call and is never
    handed out.
    """

    __slots__ = ("_stamp", "events", "state")

    def __init__(self, state: ExecutionState, stamp: Stamp) -> None:
        self.state = state
        self.events: list[Event] = []
        self._stamp = stamp

    def take(self, event: Event) -> None:
        """Take an event somebody else made."""
        self.events.append(event)
        self.state = reduce(self.state, event)

    def emit(self, payload: Payload, cause: Event | None, *, actor: Actor = ORCHESTRATOR) -> Event:
        """Make an event and take it; ``cause`` is the event that brought it about."""
        event = self._stamp.event(payload, actor, causation_id=cause.event_id if cause else None)
        self.take(event)
        return event
