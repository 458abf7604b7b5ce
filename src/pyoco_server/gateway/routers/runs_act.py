"""Cancel, resume and archive runs. Each is a command of the core, and becomes events in the log."""

from fastapi import APIRouter, Request

from pyoco_server.app.ports import RunQuery
from pyoco_server.app.runs.commands import for_each
from pyoco_server.app.runs.queries import ids_under_way
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.snapshots.codec import json_object
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway import run_views
from pyoco_server.gateway.commands import CommandContext, CommandDep
from pyoco_server.gateway.errors import language_of, status_and_body
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.parameters import NodeId, RunId
from pyoco_server.gateway.schemas.requests import LONGEST_REASON, CancelRun, CancelRuns, ResumeWait
from pyoco_server.gateway.schemas.responses import CancelResults, RunSnapshot
from pyoco_server.gateway.schemas.strict_json import StrictRoute
from pyoco_server.gateway.services import Services, ServicesDep, must_reach
from pyoco_server.identifiers import RUN_ID

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)
MOST_CANCELS = 1_000
_COMMAND = ("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0105", "ERR-PYOCO-0003")
_GUARDED = (*_COMMAND, "ERR-PYOCO-0103", "ERR-PYOCO-0104")
_ANY_BODY: JsonObject = {
    "requestBody": {"required": False, "content": {"application/json": {"schema": CancelRun.model_json_schema()}}}
}


@router.post(
    "/cancel",
    summary="Cancel many runs",
    responses=documented("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0003", ok=CancelResults),
)
async def cancel_runs(body: CancelRuns, request: Request, services: ServicesDep, commands: CommandDep) -> Json:
    """Cancel the runs named, or the newest ones that fit the filter and have not ended; at most 1,000 at a time."""
    ids = body.run_ids if body.run_ids is not None else await _matching(services, body)
    must_reach(services)

    async def one(run_id: str) -> JsonObject:
        return await _cancelled(commands, run_id, body.reason)

    results = await for_each(ids, one)
    language = language_of(request)
    shown: list[JsonObject] = []
    for run_id, end in zip(ids, results, strict=True):
        if isinstance(end, PyocoServerError):
            shown.append({"run_id": run_id, "status": None, **status_and_body(end, language)[1]})
        else:
            shown.append({"run_id": run_id, "status": end["status"]})
    return Json({"results": shown})


@router.post(
    "/{run_id}/cancel",
    summary="Cancel a run",
    responses=documented(*_COMMAND, ok=RunSnapshot),
    openapi_extra=_ANY_BODY,
)
async def cancel_run(run_id: RunId, commands: CommandDep, request: Request) -> Json:
    """Record the cancel; the answer is ``CANCELLING``. A run that has ended stays as it is.

    The body is optional: JSON that cannot be read is ignored, and the run is cancelled.
    """
    snapshot = await _cancelled(commands, run_id, _reason(await request.body()))
    return Json(run_views.snapshot_view(snapshot, records=False))


@router.post(
    "/{run_id}/nodes/{node_id:path}/resume",
    summary="Resume a wait",
    responses=documented(*_GUARDED, ok=RunSnapshot),
)
async def resume_node(run_id: RunId, node_id: NodeId, commands: CommandDep, body: ResumeWait | None = None) -> Json:
    """Resume a waiting node; the input becomes its result."""
    answer = body or ResumeWait()
    result = await commands.resume(
        run_id, node_id, answer.input, value_kind=answer.input_kind, resume_key=answer.resume_key
    )
    return Json(run_views.snapshot_view(result.snapshot(), records=False))


@router.post("/{run_id}/archive", summary="Archive an ended run", responses=documented(*_GUARDED, ok=RunSnapshot))
async def archive_run(run_id: RunId, commands: CommandDep) -> Json:
    """Only a run that has ended can be archived."""
    result = await commands.archive(run_id)
    return Json(run_views.snapshot_view(result.snapshot(), records=False))


async def _cancelled(commands: CommandContext, run_id: str, reason: str | None) -> JsonObject:
    if not RUN_ID.fits(run_id):
        raise RunNotFoundError(run_id)
    return await commands.cancel(run_id, reason)


def _reason(body: bytes) -> str | None:
    """Return the reason in the body, cut to the limit; None if the body is not a JSON object with one."""
    reason = (json_object(body) or {}).get("reason")
    return reason[:LONGEST_REASON] if isinstance(reason, str) else None


async def _matching(services: Services, body: CancelRuns) -> list[str]:
    if body.status is None and body.flow is None and body.tag is None:
        raise InvalidInputError("name the runs: run_ids, or at least one of status, flow and tag")
    query = RunQuery(status=body.status, flow=body.flow, tag=body.tag, limit=MOST_CANCELS)
    return await ids_under_way(await services.up_to_date_index(), query)
