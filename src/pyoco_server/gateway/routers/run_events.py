"""The log of a run, its graph, and its state as it was."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query

from pyoco_server.app.run_desk import OpenRun, RunNotFoundError
from pyoco_server.core import event_to_dict, fold, graph_from_log, graph_to_dict, initial_state, state_to_dict
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError
from pyoco_server.gateway.ids import is_id
from pyoco_server.gateway.principal import Asking, Principal
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/runs", tags=["events"])
Given = Annotated[Services, Depends(services)]
MOST_EVENTS: Final = 5_000


async def open_visible(given: Services, asking: Principal, run_id: str) -> OpenRun:
    """The run, read from its log; RunNotFoundError if there is none this one may know of."""
    if not is_id(run_id):
        raise RunNotFoundError(run_id)
    run = await given.desk.open(run_id)
    if not asking.may_see(run.projection.input.tenant_id):
        raise RunNotFoundError(run_id)
    return run


def events_page(run: OpenRun, after: int, limit: int) -> JsonObject:
    """Events behind a version, and where to go on."""
    page = run.events[after : after + limit]
    version = after + len(page)
    return {
        "events": [{**event_to_dict(event), "version": after + at + 1} for at, event in enumerate(page)],
        "version": version,
        "next_after": version if version < len(run.events) else None,
    }


def state_at(run: OpenRun, at: int | None) -> JsonObject:
    """The state after so many events; now, if none are named."""
    if at is None:
        return state_to_dict(run.execution.state)
    if at > len(run.events):
        raise InvalidInputError(f"at: the log has {len(run.events)} events, not {at}")
    return state_to_dict(fold(run.events[:at], initial_state(run.execution.execution_id)))


@router.get("/{run_id}/events", summary="The log of a run")
async def get_events(
    run_id: str,
    given: Given,
    asking: Asking,
    after: Annotated[int, Query(ge=0, description="Only events behind this version.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 1_000,
) -> dict[str, Any]:
    """Everything that happened, in order."""
    return events_page(await open_visible(given, asking, run_id), after, limit)


@router.get("/{run_id}/graph", summary="The graph of a run")
async def get_graph(run_id: str, given: Given, asking: Asking) -> JsonObject:
    """Nodes and edges; those a loop made on the way are told by the events."""
    return graph_to_dict(graph_from_log((await open_visible(given, asking, run_id)).events))


@router.get("/{run_id}/state", summary="The state of a run, now or then")
async def get_state(
    run_id: str, given: Given, asking: Asking, at: Annotated[int | None, Query(ge=0)] = None
) -> JsonObject:
    """The state after so many events."""
    return state_at(await open_visible(given, asking, run_id), at)
