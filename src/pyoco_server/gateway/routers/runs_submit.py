"""Submitting runs: one, or many."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError

from pyoco_server.app.bulk import for_each
from pyoco_server.app.submitting import Submission
from pyoco_server.core.wire import JsonObject, parse_object
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.bodies import SubmitBatch, SubmitRun
from pyoco_server.gateway.documents import BatchAccepted, RunAccepted
from pyoco_server.gateway.errors import MOST_PROBLEMS, language_of, told
from pyoco_server.gateway.headers import Correlation, IdempotencyKey
from pyoco_server.gateway.outages import in_time
from pyoco_server.gateway.principal import Asking, Principal
from pyoco_server.gateway.services import Given, Services
from pyoco_server.gateway.strict_json import StrictRoute
from pyoco_server.messages import Language

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)
_ERRORS = ("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0003")


@router.post("", summary="Submit a run", responses=documented(*_ERRORS, "ERR-PYOCO-0105", ok=RunAccepted))
async def submit_run(
    body: SubmitRun, given: Given, asking: Asking, key: IdempotencyKey = None, correlation: Correlation = None
) -> Json:
    """Accepted when its log, its snapshot and its job are stored, and not before.

    With an ``Idempotency-Key`` the same request again gives the same run.
    """
    submission = _submission(body, given, asking)
    return Json(
        _accepted(await in_time(given.once.submit(submission, asking.actor, key=key, correlation_id=correlation)))
    )


@router.post("/batch", summary="Submit many runs", responses=documented(*_ERRORS, ok=BatchAccepted))
async def submit_batch(
    body: SubmitBatch,
    request: Request,
    given: Given,
    asking: Asking,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
) -> Json:
    """Each run has its own result: a run id, or an error. With a key, each has a key of its own by its place."""

    async def one(entry: tuple[int, Any]) -> JsonObject:
        place, run = entry
        submission = _submission(_entry(place, run), given, asking)
        own = f"{key}#{place}" if key is not None else None
        submitting = given.once.submit(submission, asking.actor, key=own, correlation_id=correlation)
        return _accepted(await in_time(submitting))

    results: Sequence[JsonObject | PyocoServerError] = await for_each([*enumerate(body.runs)], one)
    language = language_of(request)
    return Json({"results": [_refused(end, language) if isinstance(end, PyocoServerError) else end for end in results]})


def _entry(place: int, run: object) -> SubmitRun:
    try:
        return SubmitRun.model_validate(run)
    except ValidationError as error:
        problems = [f"{'.'.join(['runs', str(place), *map(str, at['loc'])])}: {at['msg']}" for at in error.errors()]
        raise InvalidInputError("; ".join(problems[:MOST_PROBLEMS])) from error


def _refused(error: PyocoServerError, language: Language) -> JsonObject:
    return {"run_id": None, "status": None, **told(error, language)[1]}


def _submission(body: SubmitRun, given: Services, asking: Principal) -> Submission:
    return Submission(
        flow_name=body.flow_name,
        params=parse_object(body.params or {}),
        tag=body.tag or given.settings.routing.default_tag,
        tags=tuple(body.tags) if body.tags is not None else None,
        tenant_id=asking.tenant_id,
        api_key_id=asking.api_key_id,
    )


def _accepted(snapshot: JsonObject) -> dict[str, Any]:
    return {"run_id": snapshot["run_id"], "status": snapshot["status"]}
