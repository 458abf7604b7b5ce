"""The log of a run, its graph, and its state after any event."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from pyoco_server.app.runs.log_notes import log_notes
from pyoco_server.app.runs.run_log import OpenRun
from pyoco_server.core import event_to_dict, fold, graph_to_dict, initial_state, read_graph, state_to_dict
from pyoco_server.core.json_codec import JsonObject, plain
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.parameters import RunId
from pyoco_server.gateway.schemas.responses import EventPageDocument, GraphDocument, StateDocument
from pyoco_server.gateway.services import ServicesDep

router = APIRouter(prefix="/runs", tags=["events"])
MOST_EVENTS: Final = 5_000
LARGEST: Final = 2**53
"""Numbers in JSON are exact up to here."""
ERRORS: Final = ("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0003")

After = Annotated[int, Query(ge=0, le=LARGEST, description="Only events behind this version.")]
Limit = Annotated[int, Query(ge=1, le=MOST_EVENTS)]
At = Annotated[int | None, Query(ge=0, le=LARGEST, description="The version: the state after so many events.")]


@router.get("/{run_id}/events", summary="The log of a run", responses=documented(*ERRORS, ok=EventPageDocument))
async def get_events(run_id: RunId, services: ServicesDep, after: After = 0, limit: Limit = 1_000) -> Json:
    """All events in order."""
    return Json(events_page(await services.run_log.open(run_id), after, limit))


@router.get("/{run_id}/graph", summary="The graph of a run", responses=documented(*ERRORS, ok=GraphDocument))
async def get_graph(run_id: RunId, services: ServicesDep) -> Json:
    """Nodes and edges; those that a loop creates as it runs are in the events."""
    run = await services.run_log.open(run_id)
    return Json(graph_view(run))


@router.get("/{run_id}/state", summary="The state of a run", responses=documented(*ERRORS, ok=StateDocument))
async def get_state(run_id: RunId, services: ServicesDep, at: At = None) -> Json:
    """The state now, or after so many events."""
    return Json(state_at(await services.run_log.open(run_id), at))


def graph_view(run: OpenRun) -> JsonObject:
    """Return the graph from the log; ``notes`` lists where the log is inconsistent, and is left out otherwise.

    Nodes that are not part of the graph are listed all the same, without edges.
    """
    found = read_graph(run.events)
    shown = graph_to_dict(found.graph) | _notes(run)
    if found.left_out:
        shown |= {"nodes": [*shown["nodes"], *map(plain, found.left_out)]}
    return shown


def events_page(run: OpenRun, after: int, limit: int) -> JsonObject:
    """Return the events after a version, and where the next page begins."""
    page = run.events[after : after + limit]
    version = min(after, len(run.events)) + len(page)
    return {
        "events": [{**event_to_dict(event), "version": after + at + 1} for at, event in enumerate(page)],
        "version": version,
        "next_after": version if version < len(run.events) else None,
        **_notes(run),
    }


def state_at(run: OpenRun, at: int | None) -> JsonObject:
    """Return the state after so many events, or now; ``notes`` lists where the log is inconsistent."""
    if at is None:
        return state_to_dict(run.execution.state) | _notes(run)
    if at > len(run.events):
        raise InvalidInputError(f"at: the log has {len(run.events)} events, not {at}")
    return state_to_dict(fold(run.events[:at], initial_state(run.execution.execution_id))) | _notes(run)


def _notes(run: OpenRun) -> JsonObject:
    notes = log_notes(read_graph(run.events), run.events, run.execution.state)
    return {"notes": notes} if notes else {}
