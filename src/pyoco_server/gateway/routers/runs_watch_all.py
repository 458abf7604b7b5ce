"""Watching the list of runs: server-sent events."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from pyoco_server.app.ports import RunFilter, UnavailableError
from pyoco_server.app.statuses import RunStatus
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway import run_views
from pyoco_server.gateway.answers import Documented, documented
from pyoco_server.gateway.event_stream import Events, EventStream, event
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.routers.runs_watch import HEARTBEAT_SEC, LONGEST_WATCH_SEC
from pyoco_server.gateway.run_changes import RecentRuns
from pyoco_server.gateway.services import Given, Services
from pyoco_server.identifiers import RUN_ID

router = APIRouter(prefix="/runs", tags=["runs"])

PACE_SEC: Final = 0.25
"""Between two looks at what changed at least: a run that changes often is told of once."""
AT_FULL_PACE: Final = 50
"""So many are told that often; if more watch, each is told less often, and all together cost no more than these."""
MOST_ITEMS: Final = 200
ALL_RUNS: Final = "~"
"""What stands for all runs. It cannot be a run's id, so no run is hidden behind it."""

_EXAMPLE: Final = """\
event: ready
data: {"counts": {"PENDING": 0, "RUNNING": 1}, "counts_complete": true, "ts": 1760000000.25}

event: runs
data: {"items": [{"run_id": "…", "status": "COMPLETED"}], "counts": {"PENDING": 0, "RUNNING": 0}, "counts_complete": true, "ts": 1760000001.5}

event: heartbeat
data: {"ts": 1760000004.5}

"""  # noqa: E501 as it goes over the wire
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
    given: Given,
    asking: Asking,
    *,
    flow: Annotated[str | None, Query(description="The flow's name.")] = None,
    tag: Annotated[str | None, Query(description="The tag its jobs are queued by.")] = None,
    run_id_prefix: Annotated[str | None, Query(max_length=RUN_ID.longest, description="How the id begins.")] = None,
    timeout_sec: Annotated[
        float, Query(ge=1, le=LONGEST_WATCH_SEC, allow_inf_nan=False, description="The stream ends after so long.")
    ] = LONGEST_WATCH_SEC,
) -> EventStream:
    """``ready`` at once: what changes from then on is told, so now is the time to read the list.

    Then ``runs`` with those that changed, as the list has them; of several changes of one run, the newest. ``reset``
    if so much changed that the list had better be read anew; ``heartbeat`` in between. There is no filter by status,
    because a run that leaves one has to be told of.
    """
    client = asking.counted_as(request)
    wanted = RunFilter(tenant_id=asking.tenant_id, flow=flow, tag=tag, run_id_prefix=run_id_prefix)

    @asynccontextmanager
    async def watching() -> AsyncIterator[Events]:
        # It counts as one more connection that watches, like those that watch a single run.
        with given.hub.watch(ALL_RUNS, client), given.changes.watch(asking.tenant_id) as recent:
            async with aclosing(_events(given, recent, wanted, timeout_sec)) as events:
                yield events

    return EventStream(watching())


async def _events(given: Services, recent: RecentRuns, wanted: RunFilter, timeout_sec: float) -> Events:
    """Ends when the index cannot be asked: whoever comes back is told why."""
    with contextlib.suppress(UnavailableError):
        async with aclosing(_told(given, recent, wanted, timeout_sec)) as told:
            async for one in told:
                yield one


async def _told(given: Services, recent: RecentRuns, wanted: RunFilter, timeout_sec: float) -> Events:
    mark = recent.mark
    yield event("ready", await _counts(given, wanted))
    said_at = given.now
    ends_at = said_at + timeout_sec
    while (left := ends_at - given.now) > 0:
        quiet = max(0.0, said_at + HEARTBEAT_SEC - given.now)
        if await recent.wait(mark, min(left, quiet)):
            changed, mark = recent.since(mark), recent.mark
            for name, data in await _news(given, wanted, changed):
                yield event(name, {**data, **await _counts(given, wanted)})
                said_at = given.now
            await asyncio.sleep(min(PACE_SEC * max(1.0, recent.readers / AT_FULL_PACE), HEARTBEAT_SEC))
        if given.now - said_at >= HEARTBEAT_SEC:
            yield event("heartbeat", {"ts": given.now})
            said_at = given.now


async def _news(given: Services, wanted: RunFilter, changed: list[str] | None) -> list[tuple[str, JsonObject]]:
    """What there is to tell of these runs; None: of so many that it is not worth it."""
    if changed is None:
        return [("reset", {})]
    found = await given.index.among(changed, wanted)
    items = [run_views.snapshot_view(run.summary, records=False) for run in found]
    return [("runs", {"items": items[begin : begin + MOST_ITEMS]}) for begin in range(0, len(items), MOST_ITEMS)]


async def _counts(given: Services, wanted: RunFilter) -> JsonObject:
    found = await given.index.tally(wanted)
    counts = {status.value: found.counts.get(status.value, 0) for status in RunStatus}
    return {"counts": counts, "counts_complete": found.is_complete, "ts": given.now}
