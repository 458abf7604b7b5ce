"""The beginning of an execution, worked out once for each graph.

Whatever follows from the start of an execution follows from its graph alone: all nodes are created, the start is
passed, and what is behind it becomes ready. So the first execution of a graph is followed step by step, and those after
it take the same steps without working them out again.
"""

from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.core.draft import Commit
from pyoco_server.core.events import ORCHESTRATOR, Event, Stamp
from pyoco_server.core.graph import Graph
from pyoco_server.core.payloads import NodeCreated, Payload
from pyoco_server.core.state import ExecutionState
from pyoco_server.core.transitions import ExecutionStatus

_replace: Final = msgspec.structs.replace


class _Step(NamedTuple):
    """One event that follows from the start."""

    made_of: type[Payload]
    fields: dict[str, Any]
    cause: int
    """Which event of the commit brought it about."""


class Opening:
    """What follows from the start of any execution of one graph."""

    __slots__ = ("__weakref__", "_after", "_steps")

    def __init__(self, steps: tuple[_Step, ...], after: ExecutionState) -> None:
        self._steps = steps
        # Nothing of the execution it was seen of is kept.
        self._after = _replace(after, execution_id="", created_at=None, started_at=None, input=None)

    def of(self, graph: Graph, state: ExecutionState, started: Event, stamp: Stamp) -> Commit:
        """The commit that begins with ``started``; ``state`` is as it was before, see :func:`is_about_to_open`."""
        events = [started]
        for made_of, fields, cause in self._steps:
            # Payloads are made anew, and with them what they hold: whoever has one may keep it, and change it.
            payload = (
                NodeCreated(**fields, meta=graph.told_place(fields["node_id"]))
                if made_of is NodeCreated
                else made_of(**fields)
            )
            events.append(stamp.event(payload, ORCHESTRATOR, causation_id=events[cause].event_id))
        after = _replace(
            self._after,
            execution_id=state.execution_id,
            version=state.version + len(events),
            created_at=state.created_at,
            started_at=started.occurred_at,
            input=state.input,
        )
        return Commit(events, after)


def is_about_to_open(state: ExecutionState) -> bool:
    """Was the execution created, and did nothing happen since?"""
    return state.version == 1 and state.exists and state.started_at is None and not state.nodes


def opening_of(graph: Graph) -> Opening | None:
    """What is remembered of the graph."""
    found: Opening | None = graph.remembered.get(Opening)
    return found


def remember(graph: Graph, opened: Commit) -> None:
    """Keep what the first execution of a graph shows of all others, unless it came further than to its first nodes.

    Everything that follows from the start has its cause in the commit.
    """
    events, after = opened
    if after.status is not ExecutionStatus.ACTIVE or after.is_cancel_requested:
        return
    places = {event.event_id: place for place, event in enumerate(events)}
    if len(places) < len(events):  # whoever makes the ids gives the same more than once: nobody knows which is meant
        return
    steps = [
        _Step(type(event.payload), _fields(event.payload), places[event.causation_id or ""]) for event in events[1:]
    ]
    graph.remembered[Opening] = Opening(tuple(steps), after)


def _fields(payload: Payload) -> dict[str, Any]:
    """But for what a graph tells of a node, which is asked for anew; the orchestrator adds nothing of its own."""
    return {name: getattr(payload, name) for name in payload.__struct_fields__ if name not in {"extra", "meta"}}
