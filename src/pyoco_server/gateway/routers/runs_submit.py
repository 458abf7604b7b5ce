"""Submitting runs: one, or many."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from pyoco_server.app.bulk import for_each
from pyoco_server.app.outside_values import check_params
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.app.snapshot_reading import SnapshotUnreadableError
from pyoco_server.app.submitting import Submission
from pyoco_server.core.wire import JsonObject, parse_object
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway import run_views
from pyoco_server.gateway.answers import Json, documented
from pyoco_server.gateway.bodies import SubmitBatch, SubmitRun
from pyoco_server.gateway.documents import BatchAccepted, RunSubmitted
from pyoco_server.gateway.errors import MOST_PROBLEMS, TooManyError, language_of, message_of, told
from pyoco_server.gateway.headers import Correlation, IdempotencyKey
from pyoco_server.gateway.principal import Asking, Principal, principal
from pyoco_server.gateway.run_ends import News
from pyoco_server.gateway.services import Given, Services, connected, must_reach
from pyoco_server.gateway.strict_json import StrictRoute, quick_route
from pyoco_server.gateway.waiting import LONGEST_SEC, WaitSec, heard_from_the_start, newest_told, newest_within
from pyoco_server.messages import Language

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)
_ERRORS = ("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0003")


async def submit_run(
    body: SubmitRun,
    request: Request,
    given: Given,
    asking: Asking,
    *,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
    wait_sec: WaitSec = 0.0,
) -> Json:
    """Accepted when its log, its snapshot and its job are stored, and not before.

    With an ``Idempotency-Key`` the same request again gives the same run. With ``wait_sec`` the answer comes when the
    run has ended, if that is soon enough, and says how.
    """
    submission = _submission(body, given, asking)

    async def accepted(run_id: str | None = None) -> JsonObject:
        once = given.once.submit(submission, asking.actor, key=key, run_id=run_id, correlation_id=correlation)
        return _accepted(await given.writes.noted(once))

    if not wait_sec:
        return Json(await accepted())
    if key is not None:  # under a key it is known which run it is only when it was accepted
        return Json(await _in_the_end(await accepted(), None, request, given, asking, wait_sec))
    run_id = given.new_id()
    with heard_from_the_start(given, request, asking, run_id) as news:
        return Json(await _in_the_end(await accepted(run_id), news, request, given, asking, wait_sec))


async def _in_the_end(
    accepted: JsonObject, news: News | None, request: Request, given: Services, asking: Principal, wait_sec: float
) -> JsonObject:
    """How the run ended. It is accepted whatever happens from here on: whoever cannot be told more is told that."""
    run_id = accepted["run_id"]
    try:
        if news is None:
            newest = await newest_within(given, request, asking, run_id, wait_sec, must_be_there=True)
        else:
            newest = await newest_told(given, request, asking, run_id, wait_sec, news)
    except (UnavailableError, TooManyError, RunNotFoundError, SnapshotUnreadableError):  # a replica may lag behind
        return accepted
    snapshot = run_views.snapshot_view(newest, records=True)
    return {"run_id": run_id, "status": snapshot["status"], "snapshot": snapshot}


async def _quickly(request: Request) -> Response | None:
    """The answer to a request as most are: a run, and how long to wait for it. None for any other, and for mistakes.

    Two thirds of what the framework does to find out what a request says are saved; the rest goes its usual way.
    """
    query, headers = request.scope["query_string"], request.headers
    wait_sec = _wait_sec(query)
    if wait_sec is None or headers.get("content-type") != "application/json" or not _UNUSUAL.isdisjoint(headers):
        return None
    try:
        body = SubmitRun.model_validate(await request.json())
    except (ValidationError, json.JSONDecodeError):
        return None
    except ClientDisconnect as error:  # nobody is there to be answered
        raise HTTPException(400, "There was an error parsing the body") from error
    asking = await principal(request)
    return await submit_run(body, request, await connected(request, asking), asking, wait_sec=wait_sec)


def _wait_sec(query: bytes) -> float | None:
    """How long to wait, if that is all a query says and it says so plainly."""
    if not query:
        return 0.0
    said = _ONLY_WAIT.fullmatch(query)
    return float(said[1]) if said is not None and float(said[1]) <= LONGEST_SEC else None


_ONLY_WAIT: Final = re.compile(rb"wait_sec=(\d{1,4}(?:\.\d{1,6})?)")
_UNUSUAL: Final = frozenset({"idempotency-key", "x-correlation-id"})
router.add_api_route(
    "",
    submit_run,
    methods=["POST"],
    summary="Submit a run",
    responses=documented(*_ERRORS, "ERR-PYOCO-0105", ok=RunSubmitted),
    route_class_override=quick_route(_quickly),
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
    must_reach(given)

    async def one(entry: tuple[int, Any]) -> JsonObject:
        place, run = entry
        submission = _submission(_entry(place, run), given, asking)
        own = f"{key}#{place}" if key is not None else None
        submitting = given.once.submit(submission, asking.actor, key=own, correlation_id=correlation)
        return _accepted(await given.writes.noted(submitting))

    results: Sequence[JsonObject | PyocoServerError] = await for_each([*enumerate(body.runs)], one)
    language = language_of(request)
    return Json({"results": [_refused(end, language) if isinstance(end, PyocoServerError) else end for end in results]})


def _entry(place: int, run: object) -> SubmitRun:
    try:
        return SubmitRun.model_validate(run)
    except ValidationError as error:
        problems = [
            f"{'.'.join(['runs', str(place), *map(str, at['loc'])])}: {message_of(at)}" for at in error.errors()
        ]
        raise InvalidInputError("; ".join(problems[:MOST_PROBLEMS])) from error


def _refused(error: PyocoServerError, language: Language) -> JsonObject:
    return {"run_id": None, "status": None, **told(error, language)[1]}


def _submission(body: SubmitRun, given: Services, asking: Principal) -> Submission:
    return Submission(
        flow_name=body.flow_name,
        params=parse_object(body.params or {}),
        **(check_params({"params": body.params, "params_kind": body.params_kind}) if body.params_kind else {}),
        tag=body.tag or given.settings.routing.default_tag,
        tags=tuple(body.tags) if body.tags is not None else None,
        tenant_id=asking.tenant_id,
        api_key_id=asking.api_key_id,
    )


def _accepted(snapshot: JsonObject) -> dict[str, Any]:
    return {"run_id": snapshot["run_id"], "status": snapshot["status"]}
