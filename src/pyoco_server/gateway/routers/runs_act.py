"""Doing something about runs: cancel, resume, archive. Each is a command of the core, and is kept in the log."""

from fastapi import APIRouter, Request

from pyoco_server.app.bulk import for_each
from pyoco_server.app.ports import RunQuery
from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.app.run_queries import ids_under_way
from pyoco_server.app.snapshot_reading import json_object
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway import run_views
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.bodies import LONGEST_REASON, CancelRun, CancelRuns, ResumeNode
from pyoco_server.gateway.commanding import Asker, Commanding
from pyoco_server.gateway.documents import CancelResults, RunSnapshot
from pyoco_server.gateway.errors import language_of, told
from pyoco_server.gateway.ids import NodeId, RunId
from pyoco_server.gateway.principal import Principal
from pyoco_server.gateway.services import Given, Services, must_reach
from pyoco_server.gateway.strict_json import StrictRoute
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
async def cancel_runs(body: CancelRuns, request: Request, given: Given, asker: Commanding) -> Json:
    """Cancel the runs named, or the newest ones that fit the filter and have not ended; at most 1,000 at a time."""
    ids = body.run_ids if body.run_ids is not None else await _matching(given, asker.principal, body)
    must_reach(given)

    async def one(run_id: str) -> JsonObject:
        return await _cancelled(asker, run_id, body.reason)

    results = await for_each(ids, one)
    language = language_of(request)
    shown: list[JsonObject] = []
    for run_id, end in zip(ids, results, strict=True):
        if isinstance(end, PyocoServerError):
            shown.append({"run_id": run_id, "status": None, **told(end, language)[1]})
        else:
            shown.append({"run_id": run_id, "status": end["status"]})
    return Json({"results": shown})


@router.post(
    "/{run_id}/cancel",
    summary="Cancel a run",
    responses=documented(*_COMMAND, ok=RunSnapshot),
    openapi_extra=_ANY_BODY,
)
async def cancel_run(run_id: RunId, asker: Commanding, request: Request) -> Json:
    """Recorded at once; the answer is ``CANCELLING``. A run that has ended stays as it is.

    There need not be a body: of one that is not understood nothing is taken, and the run is cancelled all the same.
    """
    snapshot = await _cancelled(asker, run_id, _reason(await request.body()))
    return Json(run_views.snapshot_view(snapshot, records=False))


@router.post(
    "/{run_id}/nodes/{node_id:path}/resume",
    summary="Resume a wait",
    responses=documented(*_GUARDED, ok=RunSnapshot),
)
async def resume_node(run_id: RunId, node_id: NodeId, asker: Commanding, body: ResumeNode | None = None) -> Json:
    """Let a waiting node go on; what is given becomes its result."""
    given = body or ResumeNode()
    fields: JsonObject = {"type": "ResumeNode", "nodeId": node_id, "input": given.input}
    if given.input_kind is not None:
        fields["input_kind"] = given.input_kind
    if given.resume_key is not None:
        fields["resumeKey"] = given.resume_key
    answer = await asker.give(run_id, fields)
    return Json(run_views.snapshot_view(answer.snapshot(), records=False))


@router.post("/{run_id}/archive", summary="Put an ended run away", responses=documented(*_GUARDED, ok=RunSnapshot))
async def archive_run(run_id: RunId, asker: Commanding) -> Json:
    """Only a run that has ended can be archived."""
    answer = await asker.give(run_id, {"type": "ArchiveExecution"})
    return Json(run_views.snapshot_view(answer.snapshot(), records=False))


async def _cancelled(asker: Asker, run_id: str, reason: str | None) -> JsonObject:
    if not RUN_ID.fits(run_id):
        raise RunNotFoundError(run_id)
    return await asker.cancel(run_id, reason)


def _reason(body: bytes) -> str | None:
    """Why, if the body is a JSON object that says so; one that is too long is cut."""
    said = (json_object(body) or {}).get("reason")
    return said[:LONGEST_REASON] if isinstance(said, str) else None


async def _matching(given: Services, asking: Principal, body: CancelRuns) -> list[str]:
    if body.status is None and body.flow is None and body.tag is None:
        raise InvalidInputError("say which runs: run_ids, or at least one of status, flow and tag")
    query = RunQuery(tenant_id=asking.tenant_id, status=body.status, flow=body.flow, tag=body.tag, limit=MOST_CANCELS)
    return await ids_under_way(await given.up_to_date_index(), query)
