"""Redrives: an ended run is repeated as a new one, from what failed, from the start, or from chosen nodes."""

from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request

from pyoco_server.app.ports import IndexedRun, RunQuery
from pyoco_server.app.runs.job import check_params
from pyoco_server.app.runs.redrive import RedriveRequest, cut_of
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.core.json_codec import JsonObject, parse_object
from pyoco_server.errors import PyocoServerError
from pyoco_server.gateway.errors import language_of, status_and_body
from pyoco_server.gateway.principal import Principal, PrincipalDep
from pyoco_server.gateway.responses import Json, documented
from pyoco_server.gateway.routers.runs_submit import QUOTAS_REACHED
from pyoco_server.gateway.schemas.parameters import IdempotencyKey, RunId, decode_cursor, encode_cursor
from pyoco_server.gateway.schemas.requests import RedriveFilter, RedriveRun, RedriveRuns
from pyoco_server.gateway.schemas.responses import RedrivePlanned, RedriveResults, RunRedriven
from pyoco_server.gateway.schemas.strict_json import StrictRoute
from pyoco_server.gateway.services import Services, ServicesDep, must_reach
from pyoco_server.messages import Language
from pyoco_server.values.codec import received

router = APIRouter(prefix="/runs", tags=["runs"], route_class=StrictRoute)
LONGEST_SEC: Final = 20.0
"""How long one request begins new runs at most; its answer says where the next one continues."""
_PAGE: Final = 200
_MOST_LOOKED_AT: Final = 5_000
_BULK: Final = "bulk"
"""Stands for the key of a redrive among many: each run is redriven once in this way."""
_ERRORS = (
    "ERR-PYOCO-0005",
    "ERR-PYOCO-0002",
    "ERR-PYOCO-0101",
    "ERR-PYOCO-0103",
    "ERR-PYOCO-0105",
    "ERR-PYOCO-0003",
    *QUOTAS_REACHED,
)


@router.post(
    "/redrive",
    summary="Redrive many runs",
    responses=documented("ERR-PYOCO-0002", "ERR-PYOCO-0101", "ERR-PYOCO-0003", ok=RedriveResults),
)
async def redrive_runs(body: RedriveRuns, request: Request, services: ServicesDep, principal: PrincipalDep) -> Json:
    """Redrive the runs that fit and were not redriven yet, the oldest first, at no more than ``per_sec``.

    A request takes about 20 seconds at most. Sent again, also after a lost answer, it redrives no run twice.
    """
    must_reach(services)
    bulk = _Bulk(body, services, principal, language_of(request))
    results = [result async for result in bulk.results()]
    following = None if bulk.following is None else encode_cursor(bulk.following, principal.tenant_id)
    return Json({"results": results, "next_cursor": following})


@router.post(
    "/{run_id}/redrive",
    summary="Redrive a run",
    responses=documented(*_ERRORS, ok=RunRedriven | RedrivePlanned),
)
async def redrive_run(
    run_id: RunId,
    services: ServicesDep,
    principal: PrincipalDep,
    body: RedriveRun | None = None,
    key: IdempotencyKey = None,
) -> Json:
    """Repeat an ended run as a new one: what succeeded is kept, what failed and everything behind it runs again.

    The old run does not change. With an ``Idempotency-Key``, the same request again returns the same new run.
    """
    given = body or RedriveRun()
    wanted = RedriveRequest(
        cut=cut_of(given.from_),
        params=_params(given),
        tag=given.tag,
        ask_again=tuple(given.ask_again),
        reason=given.reason,
    )
    if given.dry_run:
        plan = await services.redrives.plan(run_id, wanted, principal.actor)
        return Json({"plan": plan.to_json()})
    answer, planned = await _redriven(services, principal, run_id, wanted, key)
    return Json({**answer, "plan": planned})


def _params(given: RedriveRun) -> JsonObject:
    """Return the parameters of the body as values."""
    plain = parse_object(given.params or {})
    if given.params_kind is None:
        return plain
    check_params({"params": plain, "params_kind": given.params_kind})
    values: JsonObject = received("params", {"params": plain, "params_kind": given.params_kind})
    return values


async def _redriven(
    services: Services, principal: Principal, run_id: str, wanted: RedriveRequest, key: str | None
) -> tuple[JsonObject, JsonObject]:
    redriving = services.redrives.redrive(
        run_id, wanted, principal.actor, key=key, api_key_id=principal.api_key_id, tenant_id=principal.tenant_id
    )
    snapshot, plan = await services.writes.noted(redriving)
    return {name: snapshot[name] for name in ("run_id", "status", "redrive")}, plan.to_json()


class _Bulk:
    """One request to redrive many runs."""

    def __init__(self, body: RedriveRuns, services: Services, principal: Principal, language: Language) -> None:
        self.following = None if body.cursor is None else decode_cursor(body.cursor, principal.tenant_id)
        """Behind which run the next request continues; None at the end."""
        self._looked_up_to = self.following
        self._body = body
        self._services = services
        self._principal = principal
        self._language = language
        self._wanted = RedriveRequest(cut=cut_of(body.from_), reason=body.reason)

    async def results(self) -> AsyncIterator[JsonObject]:
        """Redrive the runs, and yield the result for each."""
        clock, began, done = self._services.clock, self._services.now, 0
        async for run in self._matching():
            if done >= self._body.limit or self._services.now - began > LONGEST_SEC:
                return
            late = began + done / self._body.per_sec - self._services.now
            if late > 0 and not self._body.dry_run:
                await clock.sleep(late)
            yield await self._result(run.cursor.run_id)
            self.following = run.cursor
            done += 1
        self.following = self._looked_up_to

    async def _matching(self) -> AsyncIterator[IndexedRun]:
        index, filtered = await self._services.up_to_date_index(), self._body.filter
        self._looked_up_to, looked_at = self.following, 0
        while looked_at < _MOST_LOOKED_AT:
            query = RunQuery(
                status=filtered.status or RunStatus.FAILED.value,
                flow=filtered.flow,
                tag=filtered.tag,
                before=self._looked_up_to,
                oldest_first=True,
                limit=_PAGE,
            )
            page = await index.page(query)
            redriven = await index.redriven([run.cursor.run_id for run in page])
            for run in page:
                if run.cursor.run_id not in redriven and _fits(run.summary, filtered):
                    yield run
            self._looked_up_to = page[-1].cursor if len(page) == _PAGE else None
            if self._looked_up_to is None:
                return
            looked_at += _PAGE

    async def _result(self, run_id: str) -> JsonObject:
        try:
            if self._body.dry_run:
                plan = await self._services.redrives.plan(run_id, self._wanted, self._principal.actor)
                return {"of": run_id, "run_id": None, "status": None, "plan": plan.to_json()}
            answer, _ = await _redriven(self._services, self._principal, run_id, self._wanted, _BULK)
        except PyocoServerError as error:
            return {"of": run_id, "run_id": None, "status": None, **status_and_body(error, self._language)[1]}
        return {"of": run_id, **answer}


def _fits(summary: dict[str, Any], wanted: RedriveFilter) -> bool:
    ended_at = summary.get("end_time") or 0.0
    return (
        (wanted.error_code is None or summary.get("error_code") == wanted.error_code)
        and (wanted.ended_after is None or ended_at > wanted.ended_after)
        and (wanted.ended_before is None or ended_at < wanted.ended_before)
    )
