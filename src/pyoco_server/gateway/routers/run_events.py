"""The log of a run, its graph, and its state as it was."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from pyoco_server.app.run_desk import OpenRun
from pyoco_server.app.run_queries import visible_run
from pyoco_server.core import event_to_dict, fold, graph_to_dict, initial_state, read_graph, state_to_dict
from pyoco_server.core.wire import JsonObject, plain
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.documents import EventPage, GraphDocument, StateDocument
from pyoco_server.gateway.ids import RunId
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.services import Given

router = APIRouter(prefix="/runs", tags=["events"])
MOST_EVENTS: Final = 5_000
LARGEST: Final = 2**53
"""JSON's numbers are exact up to here."""
ERRORS: Final = ("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0003")

After = Annotated[int, Query(ge=0, le=LARGEST, description="Only events behind this version.")]
Limit = Annotated[int, Query(ge=1, le=MOST_EVENTS)]
At = Annotated[int | None, Query(ge=0, le=LARGEST, description="The version: the state after so many events.")]


@router.get("/{run_id}/events", summary="The log of a run", responses=documented(*ERRORS, ok=EventPage))
async def get_events(run_id: RunId, given: Given, asking: Asking, after: After = 0, limit: Limit = 1_000) -> Json:
    """Everything that happened, in order."""
    return Json(events_page(await visible_run(given.desk, run_id, tenant_id=asking.tenant_id), after, limit))


@router.get("/{run_id}/graph", summary="The graph of a run", responses=documented(*ERRORS, ok=GraphDocument))
async def get_graph(run_id: RunId, given: Given, asking: Asking) -> Json:
    """Nodes and edges; those a loop made on the way are told by the events."""
    run = await visible_run(given.desk, run_id, tenant_id=asking.tenant_id)
    return Json(graph_view(run))


@router.get("/{run_id}/state", summary="The state, now or then", responses=documented(*ERRORS, ok=StateDocument))
async def get_state(run_id: RunId, given: Given, asking: Asking, at: At = None) -> Json:
    """The state after so many events."""
    return Json(state_at(await visible_run(given.desk, run_id, tenant_id=asking.tenant_id), at))


def graph_view(run: OpenRun) -> JsonObject:
    """The structure as the log has it; ``notes`` says where the log is inconsistent, and is left out where it is not.

    Nodes that are not part of the graph are listed all the same, without edges.
    """
    graph, notes, left_out = read_graph(run.events)
    shown = graph_to_dict(graph)
    if notes:
        shown |= {"nodes": [*shown["nodes"], *map(plain, left_out)], "notes": notes}
    return shown


def events_page(run: OpenRun, after: int, limit: int) -> JsonObject:
    """Events behind a version, and where to go on."""
    page = run.events[after : after + limit]
    version = min(after, len(run.events)) + len(page)
    return {
        "events": [{**event_to_dict(event), "version": after + at + 1} for at, event in enumerate(page)],
        "version": version,
        "next_after": version if version < len(run.events) else None,
        **({"notes": notes} if (notes := read_graph(run.events).notes) else {}),
    }


def state_at(run: OpenRun, at: int | None) -> JsonObject:
    """The state after so many events; now, if none are named."""
    if at is None:
        return state_to_dict(run.execution.state)
    if at > len(run.events):
        raise InvalidInputError(f"at: the log has {len(run.events)} events, not {at}")
    return state_to_dict(fold(run.events[:at], initial_state(run.execution.execution_id)))
