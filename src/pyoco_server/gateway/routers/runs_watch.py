"""Watching a run: server-sent events."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from pyoco_server.app.ports import Clock, StoredSnapshot
from pyoco_server.app.run_queries import visible_snapshot
from pyoco_server.gateway import run_views
from pyoco_server.gateway.answers import Documented, documented
from pyoco_server.gateway.event_stream import Events, EventStream, event
from pyoco_server.gateway.ids import RunId
from pyoco_server.gateway.patience import patiently
from pyoco_server.gateway.principal import Asking
from pyoco_server.gateway.run_views import Include
from pyoco_server.gateway.services import Given
from pyoco_server.gateway.watching import Told, Watcher

router = APIRouter(prefix="/runs", tags=["runs"])

HEARTBEAT_SEC: Final = 3.0
LONGEST_WATCH_SEC: Final = 600.0

_EXAMPLE: Final = """\
event: snapshot
data: {"run_id": "…", "snapshot": {"run_id": "…", "status": "RUNNING"}, "ts": 1760000000.25}

event: heartbeat
data: {"run_id": "…", "ts": 1760000003.25}

"""
_STREAM: Final[dict[str, Any]] = {
    "description": "Events; `data` is JSON with `run_id` and `ts`, and for `snapshot` the snapshot.",
    "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
}
_ANSWERS: Final[Documented] = {
    200: _STREAM,
    **documented("ERR-PYOCO-0005", "ERR-PYOCO-0002", "ERR-PYOCO-0102", "ERR-PYOCO-0003"),
}


@router.get("/{run_id}/watch", summary="Watch a run", response_class=Response, responses=_ANSWERS)
async def watch_run(
    run_id: RunId,
    request: Request,
    given: Given,
    asking: Asking,
    *,
    include: Include = None,
    since: Annotated[
        float | None, Query(allow_inf_nan=False, description="Only snapshots updated later than this; Unix seconds.")
    ] = None,
    timeout_sec: Annotated[
        float, Query(ge=1, le=LONGEST_WATCH_SEC, allow_inf_nan=False, description="The stream ends after so long.")
    ] = LONGEST_WATCH_SEC,
) -> EventStream:
    """``snapshot`` whenever the run changes, the newest only if there were several; ``heartbeat`` in between."""
    client = asking.counted_as(request)
    records = run_views.wants_records(include)

    async def newest() -> StoredSnapshot:
        return await visible_snapshot(given.snapshots, run_id, tenant_id=asking.tenant_id)

    def announced() -> None:
        given.hub.announced(run_id, lambda: given.snapshots.read(run_id))

    @asynccontextmanager
    async def watching() -> AsyncIterator[Events]:
        with given.hub.watch(run_id, client) as watcher, given.keeper.announcing(run_id, announced):
            stored = await given.hub.reads.read((asking.tenant_id, run_id), lambda: patiently(newest))
            watcher.put(Told(stored.body, stored.revision))
            del stored  # it is held as long as it was not shown, and no longer
            stream = _events(watcher, run_id, given.clock, since=since, timeout_sec=timeout_sec, records=records)
            async with aclosing(stream) as events:
                yield events

    return EventStream(watching())


async def _events(
    watcher: Watcher, run_id: str, clock: Clock, *, since: float | None, timeout_sec: float, records: bool
) -> Events:
    ends_at = clock.now().timestamp() + timeout_sec
    while (left := ends_at - clock.now().timestamp()) > 0:
        told = await watcher.next(min(left, HEARTBEAT_SEC))
        now = clock.now().timestamp()
        if told is None:
            yield event("heartbeat", {"run_id": run_id, "ts": now})
        elif since is None or told.updated_at > since:
            yield event("snapshot", {"run_id": run_id, "snapshot": told.snapshot(records=records), "ts": now})
