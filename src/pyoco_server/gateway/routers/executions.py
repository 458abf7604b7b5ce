"""The core's own view: executions, and all twelve commands, so that a worker in any language can drive one."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query, Response

from pyoco_server.app.command_desk import Answer
from pyoco_server.core import event_to_dict, graph_from_log, graph_to_dict
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.errors import NotFoundError
from pyoco_server.gateway.ids import checked_id, is_id
from pyoco_server.gateway.principal import Asking, Principal
from pyoco_server.gateway.routers.run_events import MOST_EVENTS, events_page, open_visible, state_at
from pyoco_server.gateway.services import Services, services

router = APIRouter(prefix="/executions", tags=["executions"])
Given = Annotated[Services, Depends(services)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", max_length=200)]
Correlation = Annotated[str | None, Header(alias="X-Correlation-Id", max_length=200)]
Fields = Annotated[dict[str, Any] | None, Body()]


class ExecutionVerb(StrEnum):
    """What may be asked of an execution."""

    START = "start"
    CANCEL = "cancel"
    ARCHIVE = "archive"


class NodeVerb(StrEnum):
    """What may be said of a node."""

    READY = "ready"
    START = "start"
    PROGRESS = "progress"
    WAIT = "wait"
    REQUEST_RESUME = "request-resume"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"


_EXECUTION_COMMANDS = {
    ExecutionVerb.START: "StartExecution",
    ExecutionVerb.CANCEL: "CancelExecution",
    ExecutionVerb.ARCHIVE: "ArchiveExecution",
}
_NODE_COMMANDS = {
    NodeVerb.READY: "MarkNodeReady",
    NodeVerb.START: "StartNode",
    NodeVerb.PROGRESS: "ReportNodeProgress",
    NodeVerb.WAIT: "PutNodeWaiting",
    NodeVerb.REQUEST_RESUME: "RequestResumeNode",
    NodeVerb.RESUME: "ResumeNode",
    NodeVerb.SUCCEED: "SucceedNode",
    NodeVerb.FAIL: "FailNode",
}


@router.post("", summary="CreateExecution", status_code=202)
async def create(
    given: Given,
    asking: Asking,
    response: Response,
    body: Fields = None,
    key: Key = None,
    correlation: Correlation = None,
) -> JsonObject:
    """Create an execution on a registered graph: ``{graphId, input?, executionId?}``."""
    fields = _fields(body, asking, correlation)
    if fields.get("executionId") is not None:
        checked_id(str(fields["executionId"]), "executionId")
    answer = await given.commands.create(fields, key=key, tenant_id=asking.tenant_id)
    return _told(answer, response)


@router.get("/{execution_id}", summary="The state of an execution")
async def get(
    execution_id: str, given: Given, asking: Asking, at: Annotated[int | None, Query(ge=0)] = None
) -> JsonObject:
    """Now, or after so many events."""
    return state_at(await open_visible(given, asking, execution_id), at)


@router.get("/{execution_id}/events", summary="The log of an execution")
async def get_events(
    execution_id: str,
    given: Given,
    asking: Asking,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 1_000,
) -> JsonObject:
    """Everything that happened, in order."""
    return events_page(await open_visible(given, asking, execution_id), after, limit)


@router.get("/{execution_id}/graph", summary="The graph of an execution")
async def get_graph(execution_id: str, given: Given, asking: Asking) -> JsonObject:
    """The structure, from the log."""
    return graph_to_dict(graph_from_log((await open_visible(given, asking, execution_id)).events))


@router.post("/{execution_id}/{verb}", summary="StartExecution, CancelExecution, ArchiveExecution", status_code=202)
async def command(
    execution_id: str,
    verb: ExecutionVerb,
    given: Given,
    asking: Asking,
    response: Response,
    body: Fields = None,
    key: Key = None,
    correlation: Correlation = None,
) -> JsonObject:
    """202 with the events it led to, 200 without any if it was given before, 409 if a guard refuses."""
    fields = {**_fields(body, asking, correlation), "type": _EXECUTION_COMMANDS[verb]}
    return await _give(given, asking, execution_id, fields, key, response)


@router.post("/{execution_id}/nodes/{node_id:path}/{verb}", summary="The eight node commands", status_code=202)
async def node_command(
    execution_id: str,
    node_id: str,
    verb: NodeVerb,
    given: Given,
    asking: Asking,
    response: Response,
    body: Fields = None,
    key: Key = None,
    correlation: Correlation = None,
) -> JsonObject:
    """202 with the events it led to, 200 without any if it was given before, 409 if a guard refuses."""
    fields = {**_fields(body, asking, correlation), "nodeId": node_id, "type": _NODE_COMMANDS[verb]}
    return await _give(given, asking, execution_id, fields, key, response)


async def _give(
    given: Services, asking: Principal, execution_id: str, fields: JsonObject, key: str | None, response: Response
) -> JsonObject:
    if not is_id(execution_id):
        raise NotFoundError(f"there is no execution '{execution_id:.80}'")
    answer = await given.commands.give(execution_id, fields, key=key, tenant_id=asking.tenant_id)
    return _told(answer, response)


def _fields(body: dict[str, Any] | None, asking: Principal, correlation: str | None) -> JsonObject:
    fields = dict(body or {})
    actor = asking.actor
    fields["actor"] = {"kind": actor.kind.value} | ({"id": actor.id} if actor.id else {})
    if correlation is not None:
        fields["correlationId"] = correlation
    return fields


def _told(answer: Answer, response: Response) -> JsonObject:
    if not answer.events:
        response.status_code = 200
    return {
        "executionId": answer.execution_id,
        "version": answer.version,
        "events": [event_to_dict(event) for event in answer.events],
    }
