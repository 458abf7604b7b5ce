"""``/executions``: the core's view of runs, and all twelve commands, so that a worker in any language can drive one."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body

from pyoco_server.app.runs.commands import CommandResult
from pyoco_server.core import event_to_dict
from pyoco_server.gateway.commands import CommandDep
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.routers.run_events import ERRORS, After, At, Limit, events_page, graph_view, state_at
from pyoco_server.gateway.routers.runs_submit import QUOTAS_REACHED
from pyoco_server.gateway.schemas import commands as command_fields
from pyoco_server.gateway.schemas.commands import EXECUTION_VERBS, NODE_VERBS, Verb
from pyoco_server.gateway.schemas.parameters import ExecutionId, NodeId
from pyoco_server.gateway.schemas.responses import CommandAnswer, EventPageDocument, GraphDocument, StateDocument
from pyoco_server.gateway.schemas.strict_json import StrictRoute
from pyoco_server.gateway.services import ServicesDep
from pyoco_server.identifiers import RUN_ID

router = APIRouter(prefix="/executions", tags=["executions"], route_class=StrictRoute)
Fields = Annotated[dict[str, Any] | None, Body()]
_REFUSALS: Final = ("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0103", "ERR-PYOCO-0105", "ERR-PYOCO-0003")
_UNKNOWN: Final = ("ERR-PYOCO-0005", "ERR-PYOCO-0104")
_ANSWERS: Final = "202 with the events it led to; 200 without any if it was given before; 409 if a guard refuses."


@router.post(
    "",
    summary="CreateExecution",
    status_code=202,
    responses=documented(*_REFUSALS, *QUOTAS_REACHED, ok=CommandAnswer, accepted=CommandAnswer),
    openapi_extra=command_fields.document(command_fields.CREATE),
)
async def create(commands: CommandDep, body: Fields = None) -> Json:
    """Create an execution on a registered graph: ``{graphId, input?, executionId?}``."""
    fields = dict(body or {})
    if fields.get("executionId") is not None:
        RUN_ID.checked(str(fields["executionId"]), "executionId")
    return _answer(await commands.create_from(fields))


@router.get("/{execution_id}", summary="The state of an execution", responses=documented(*ERRORS, ok=StateDocument))
async def get(execution_id: ExecutionId, services: ServicesDep, at: At = None) -> Json:
    """The state now, or after so many events."""
    return Json(state_at(await services.run_log.open(execution_id), at))


@router.get(
    "/{execution_id}/events", summary="The log of an execution", responses=documented(*ERRORS, ok=EventPageDocument)
)
async def get_events(execution_id: ExecutionId, services: ServicesDep, after: After = 0, limit: Limit = 1_000) -> Json:
    """All events in order."""
    return Json(events_page(await services.run_log.open(execution_id), after, limit))


@router.get(
    "/{execution_id}/graph", summary="The graph of an execution", responses=documented(*ERRORS, ok=GraphDocument)
)
async def get_graph(execution_id: ExecutionId, services: ServicesDep) -> Json:
    """The nodes and edges, from the log."""
    run = await services.run_log.open(execution_id)
    return Json(graph_view(run))


def _execution_command(verb: Verb) -> Callable[..., Awaitable[Json]]:
    async def command(execution_id: ExecutionId, commands: CommandDep, body: Fields = None) -> Json:
        return _answer(await commands.give_from(execution_id, {**(body or {}), "type": verb.command}))

    return command


def _node_command(verb: Verb) -> Callable[..., Awaitable[Json]]:
    async def command(execution_id: ExecutionId, node_id: NodeId, commands: CommandDep, body: Fields = None) -> Json:
        return _answer(
            await commands.give_from(execution_id, {**(body or {}), "nodeId": node_id, "type": verb.command})
        )

    return command


def _answer(result: CommandResult) -> Json:
    body = {
        "executionId": result.execution_id,
        "version": result.version,
        "events": [event_to_dict(event) for event in result.events],
    }
    return Json(body, status_code=202 if result.events else 200)


def _add(path: str, verb: Verb, endpoint: Callable[..., Awaitable[Json]]) -> None:
    router.add_api_route(
        f"{path}/{verb.name}",
        endpoint,
        methods=["POST"],
        name=verb.command,
        summary=verb.command,
        description=f"{verb.description} {_ANSWERS}",
        status_code=202,
        responses=documented(*_UNKNOWN, *_REFUSALS, "ERR-PYOCO-0113", ok=CommandAnswer, accepted=CommandAnswer),
        openapi_extra=command_fields.document(verb),
    )


for _verb in EXECUTION_VERBS:
    _add("/{execution_id}", _verb, _execution_command(_verb))
for _verb in NODE_VERBS:
    _add("/{execution_id}/nodes/{node_id:path}", _verb, _node_command(_verb))
