"""``GET /runs/~/watch``: the changes of the list of runs as server-sent events."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from pyoco_server.app.ports import RunFilter, UnavailableError
from pyoco_server.app.snapshots.status import RunStatus
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.gateway import run_views
from pyoco_server.gateway.live.event_stream import Events, EventStream, event
from pyoco_server.gateway.live.run_changes import RecentRuns
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.responses import Documented, documented
from pyoco_server.gateway.routers.runs_watch import HEARTBEAT_SEC, LONGEST_WATCH_SEC
from pyoco_server.gateway.services import Services, ServicesDep
from pyoco_server.identifiers import RUN_ID

router = APIRouter(prefix="/runs", tags=["runs"])

PACE_SEC: Final = 0.25
"""The pause between two reads of changes: several changes of one run in that time are sent once."""
AT_FULL_PACE: Final = 50
"""The most readers at that pace; with more, each is sent changes less often, so that the total cost stays the same."""
MOST_ITEMS: Final = 200
ALL_RUNS: Final = "~"
"""The path of all runs. It cannot be the id of a run."""

_EXAMPLE: Final = """\
event: ready
data: {"counts": {"PENDING": 0, "RUNNING": 1}, "counts_complete": true, "ts": 1760000000.25}

event: runs
data: {"items": [{"run_id": "…", "status": "COMPLETED"}], "counts": {"PENDING": 0, "RUNNING": 0}, "counts_complete": true, "ts": 1760000001.5}

event: heartbeat
data: {"ts": 1760000004.5}

"""  # noqa: E501 as it is sent
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "enum": ["ready", "runs", "reset", "heartbeat"]},
        "data": {"type": "string"},
    },
}
_STREAM: Final[dict[str, Any]] = {
    "description": "Events; `data` is JSON with `ts`, and all but `heartbeat` have `counts` by status.",
    "content": {"text/event-stream": {"schema": _EVENT, "example": _EXAMPLE}},
}
_ANSWERS: Final[Documented] = {200: _STREAM, **documented("ERR-PYOCO-0002", "ERR-PYOCO-0102", "ERR-PYOCO-0003")}


@router.get(f"/{ALL_RUNS}/watch", summary="Watch the list of runs", response_class=Response, responses=_ANSWERS)
async def watch_runs(
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    *,
    flow: Annotated[str | None, Query(description="The flow's name.")] = None,
    tag: Annotated[str | None, Query(description="The tag its jobs are queued by.")] = None,
    run_id_prefix: Annotated[str | None, Query(max_length=RUN_ID.longest, description="How the id begins.")] = None,
    timeout_sec: Annotated[
        float, Query(ge=1, le=LONGEST_WATCH_SEC, allow_inf_nan=False, description="The stream ends after so long.")
    ] = LONGEST_WATCH_SEC,
) -> EventStream:
    """Sends ``ready`` at once: read the list then, as every later change is sent.

    Then ``runs`` with those that changed, as in the list; of several changes of one run, the newest. ``reset`` if so
    much changed that the list has to be read again; ``heartbeat`` in between. There is no filter by status: a reader
    has to learn of a run that leaves its status.
    """
    client = principal.counted_as(request)
    wanted = RunFilter(flow=flow, tag=tag, run_id_prefix=run_id_prefix)

    @asynccontextmanager
    async def watching() -> AsyncIterator[Events]:
        # It counts toward the same limit as streams that watch a single run.
        tenant_id = principal.tenant_id
        with (
            services.hub.watch(ALL_RUNS, client, tenant_id=tenant_id),
            services.hub.changes.watch(tenant_id) as recent,
        ):
            async with aclosing(_events(services, recent, wanted, timeout_sec)) as events:
                yield events

    return EventStream(watching())


async def _events(services: Services, recent: RecentRuns, wanted: RunFilter, timeout_sec: float) -> Events:
    """Yield events, and end when the index is not available: the reader learns the reason when it reconnects."""
    with contextlib.suppress(UnavailableError):
        async with aclosing(_changes(services, recent, wanted, timeout_sec)) as changes:
            async for one in changes:
                yield one


async def _changes(services: Services, recent: RecentRuns, wanted: RunFilter, timeout_sec: float) -> Events:
    seen = recent.count
    yield event("ready", await _counts(services, wanted))
    sent_at = services.now
    ends_at = sent_at + timeout_sec
    while (left := ends_at - services.now) > 0:
        quiet = max(0.0, sent_at + HEARTBEAT_SEC - services.now)
        if await recent.wait(seen, min(left, quiet)):
            changed, seen = recent.since(seen), recent.count
            for name, data in await _changed_items(services, wanted, changed):
                yield event(name, {**data, **await _counts(services, wanted)})
                sent_at = services.now
            await asyncio.sleep(min(PACE_SEC * max(1.0, recent.readers / AT_FULL_PACE), HEARTBEAT_SEC))
        if services.now - sent_at >= HEARTBEAT_SEC:
            yield event("heartbeat", {"ts": services.now})
            sent_at = services.now


async def _changed_items(
    services: Services, wanted: RunFilter, changed: list[str] | None
) -> list[tuple[str, JsonObject]]:
    """Return the events for changed runs; None stands for more than are remembered."""
    if changed is None:
        return [("reset", {})]
    found = await services.index.among(changed, wanted)
    items = [run_views.snapshot_view(run.summary, records=False) for run in found]
    return [("runs", {"items": items[begin : begin + MOST_ITEMS]}) for begin in range(0, len(items), MOST_ITEMS)]


async def _counts(services: Services, wanted: RunFilter) -> JsonObject:
    found = await services.index.tally(wanted)
    counts = {status.value: found.counts.get(status.value, 0) for status in RunStatus}
    return {"counts": counts, "counts_complete": found.is_complete, "ts": services.now}
