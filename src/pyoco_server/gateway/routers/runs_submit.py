"""``POST /runs`` and ``POST /runs/batch``: submissions of one run, or of many."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.commands import for_each
from pyoco_server.app.runs.job import check_params
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.runs.submit import Submission
from pyoco_server.app.snapshots.codec import SnapshotUnreadableError
from pyoco_server.core.json_codec import JsonObject, parse_object
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.gateway import run_views
from pyoco_server.gateway.errors import MOST_PROBLEMS, TooManyError, language_of, message_of, status_and_body
from pyoco_server.gateway.live.snapshot_hub import Watcher
from pyoco_server.gateway.principal import Principal, PrincipalDep, principal_of
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.schemas.parameters import CORRELATION, Correlation, IdempotencyKey
from pyoco_server.gateway.schemas.requests import SubmitBatch, SubmitRun
from pyoco_server.gateway.schemas.responses import BatchAccepted, RunSubmitted
from pyoco_server.gateway.schemas.strict_json import StrictRoute, read_json
from pyoco_server.gateway.services import Services, ServicesDep, connected, must_reach
from pyoco_server.gateway.waiting import WaitSec, newest_watched, newest_within, watched_from_start
from pyoco_server.messages import Language

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)
QUOTAS_REACHED = ("ERR-PYOCO-0114", "ERR-PYOCO-0115", "ERR-PYOCO-0116")
_ERRORS = ("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0003", *QUOTAS_REACHED)


async def submit_run(
    body: SubmitRun,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    *,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
    wait_sec: WaitSec = 0.0,
) -> Json:
    """The run is accepted when its log, its snapshot and its job are stored.

    With an ``Idempotency-Key``, the same request again returns the same run. With ``wait_sec``, the answer comes when
    the run has ended or the time is up, and has its snapshot.
    """
    submission = _submission(body, services, principal)

    async def accepted(run_id: str | None = None) -> JsonObject:
        once = services.once.submit(submission, principal.actor, key=key, run_id=run_id, correlation_id=correlation)
        return _accepted(await services.writes.noted(once))

    if not wait_sec:
        return Json(await accepted())
    if key is not None:  # the key may belong to a run that exists
        return Json(await _with_end(await accepted(), None, request, services, principal, wait_sec))
    run_id = services.new_id()
    with watched_from_start(services, request, principal, run_id) as watcher:
        return Json(await _with_end(await accepted(run_id), watcher, request, services, principal, wait_sec))


async def _with_end(
    accepted: JsonObject,
    watcher: Watcher | None,
    request: Request,
    services: Services,
    principal: Principal,
    wait_sec: float,
) -> JsonObject:
    """Wait for the end of an accepted run, and add its snapshot; without it if that cannot be read."""
    run_id = accepted["run_id"]
    try:
        if watcher is None:
            newest = await newest_within(services, request, principal, run_id, wait_sec, must_exist=True)
        else:
            newest = await newest_watched(services, request, principal, run_id, wait_sec, watcher)
    except (UnavailableError, TooManyError, RunNotFoundError, SnapshotUnreadableError):  # a replica may lag behind
        return accepted
    snapshot = run_views.snapshot_view(newest, records=True)
    return {"run_id": run_id, "status": snapshot["status"], "snapshot": snapshot}


class _SubmitRoute(APIRoute):
    """Handles ``POST /runs``, the busiest route, without FastAPI's dependencies: those take twice as long as the rest.

    The signature of :func:`submit_run` documents the route and says how its parts are validated.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return _handle_submission


async def _handle_submission(request: Request) -> Response:
    body = await read_json(request)
    problems: list[Any] = []
    principal = await principal_of(request)
    services = await connected(request, principal)
    wait_sec = _checked(problems, _WAIT_SEC, request.query_params.get("wait_sec", 0.0), "query", "wait_sec")
    key = _checked(problems, _KEY, request.headers.get("idempotency-key"), "header", "Idempotency-Key")
    correlation = _checked(problems, _CORRELATION, request.headers.get(CORRELATION), "header", CORRELATION)
    run = _checked(problems, _RUN, body, "body")
    if problems:
        raise RequestValidationError(problems, body=body)
    return await submit_run(run, request, services, principal, key=key, correlation=correlation, wait_sec=wait_sec)


def _checked(problems: list[Any], adapter: TypeAdapter[Any], value: object, *loc: str) -> Any:  # noqa: ANN401
    """Validate one part of a request, and add its errors to ``problems``."""
    if value is None and adapter is _RUN:
        problems.append({"type": "missing", "loc": loc, "msg": "Field required", "input": None})
        return None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problems += [{**found, "loc": (*loc, *found["loc"])} for found in error.errors(include_url=False)]
        return None


_WAIT_SEC: Final[TypeAdapter[Any]] = TypeAdapter(WaitSec)
_KEY: Final[TypeAdapter[Any]] = TypeAdapter(IdempotencyKey)
_CORRELATION: Final[TypeAdapter[Any]] = TypeAdapter(Correlation)
_RUN: Final[TypeAdapter[Any]] = TypeAdapter(SubmitRun)
router.add_api_route(
    "",
    submit_run,
    methods=["POST"],
    summary="Submit a run",
    responses=documented(*_ERRORS, "ERR-PYOCO-0105", ok=RunSubmitted),
    route_class_override=_SubmitRoute,
)


@router.post("/batch", summary="Submit many runs", responses=documented(*_ERRORS, ok=BatchAccepted))
async def submit_batch(
    body: SubmitBatch,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    key: IdempotencyKey = None,
    correlation: Correlation = None,
) -> Json:
    """Each run has its own result: a run id, or an error. With a key, each has a key of its own by its position."""
    must_reach(services)

    async def one(entry: tuple[int, Any]) -> JsonObject:
        place, run = entry
        submission = _submission(_entry(place, run), services, principal)
        own = f"{key}#{place}" if key is not None else None
        submitting = services.once.submit(submission, principal.actor, key=own, correlation_id=correlation)
        return _accepted(await services.writes.noted(submitting))

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
    return {"run_id": None, "status": None, **status_and_body(error, language)[1]}


def _submission(body: SubmitRun, services: Services, principal: Principal) -> Submission:
    return Submission(
        flow_name=body.flow_name,
        params=parse_object(body.params or {}),
        **(check_params({"params": body.params, "params_kind": body.params_kind}) if body.params_kind else {}),
        tag=body.tag or services.settings.routing.default_tag,
        tags=tuple(body.tags) if body.tags is not None else None,
        tenant_id=principal.tenant_id,
        api_key_id=principal.api_key_id,
    )


def _accepted(snapshot: JsonObject) -> dict[str, Any]:
    return {"run_id": snapshot["run_id"], "status": snapshot["status"]}
