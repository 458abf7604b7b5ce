"""A cache of the events that follow from the start of an execution: they depend on its graph alone.

All nodes are created, the start is passed, and the nodes behind it become ready. The first execution of a graph goes
through the orchestrator; :func:`remember` keeps its events, and later executions of the same graph reuse them.
"""

from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.core.commit import Commit
from pyoco_server.core.events import ORCHESTRATOR, Event, Stamp
from pyoco_server.core.graph import Graph
from pyoco_server.core.payloads import NodeCreated, Payload
from pyoco_server.core.state import ExecutionState
from pyoco_server.core.transitions import ExecutionStatus

_replace: Final = msgspec.structs.replace


class _Step(NamedTuple):
    """One event that follows from the start."""

    payload_type: type[Payload]
    fields: dict[str, Any]
    cause: int
    """The index of the event in the commit that it follows from."""


class StartCache:
    """What follows from the start of any execution of one graph."""

    __slots__ = ("__weakref__", "_after", "_steps")

    def __init__(self, steps: tuple[_Step, ...], after: ExecutionState) -> None:
        self._steps = steps
        # Nothing that belongs to the first execution is kept.
        self._after = _replace(after, execution_id="", created_at=None, started_at=None, input=None)

    def commit(self, graph: Graph, state: ExecutionState, started: Event, stamp: Stamp) -> Commit:
        """Return the commit that begins with ``started``; ``state`` is that before it, see :func:`is_unstarted`."""
        events = [started]
        for payload_type, fields, cause in self._steps:
            # Every commit gets its own payloads: a caller may keep and change what they hold.
            payload = (
                NodeCreated(**fields, meta=graph.place_as_json(fields["node_id"]))
                if payload_type is NodeCreated
                else payload_type(**fields)
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


def is_unstarted(state: ExecutionState) -> bool:
    """Is the creation of the execution its only event?"""
    return state.version == 1 and state.exists and state.started_at is None and not state.nodes


def cached_start(graph: Graph) -> StartCache | None:
    """Return the start that :func:`remember` kept for the graph, or None."""
    found: StartCache | None = graph.remembered.get(StartCache)
    return found


def remember(graph: Graph, start: Commit) -> None:
    """Keep the start of an execution for later executions of the graph, unless this one ended at once.

    Every event after the first one is caused by another event of the same commit.
    """
    events, after = start
    if after.status is not ExecutionStatus.ACTIVE or after.is_cancel_requested:
        return
    places = {event.event_id: place for place, event in enumerate(events)}
    if len(places) < len(events):  # the caller's ids are not unique, so causes cannot be identified
        return
    steps = [
        _Step(type(event.payload), _fields(event.payload), places[event.causation_id or ""]) for event in events[1:]
    ]
    graph.remembered[StartCache] = StartCache(tuple(steps), after)


def _fields(payload: Payload) -> dict[str, Any]:
    """Return the payload's fields without ``meta``, which comes from the graph, and ``extra``, which is empty."""
    return {name: getattr(payload, name) for name in payload.__struct_fields__ if name not in {"extra", "meta"}}
