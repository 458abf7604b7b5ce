"""``GET /runs/{run_id}/watch``: the changes of a run as server-sent events."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from pyoco_server.app.ports import Clock, StoredSnapshot
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.gateway import run_views
from pyoco_server.gateway.live.event_stream import Events, EventStream, event
from pyoco_server.gateway.live.snapshot_hub import SnapshotUpdate, Watcher
from pyoco_server.gateway.principal import PrincipalDep
from pyoco_server.gateway.responses import Documented, documented
from pyoco_server.gateway.run_views import Include
from pyoco_server.gateway.schemas.parameters import RunId
from pyoco_server.gateway.services import ServicesDep

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
    services: ServicesDep,
    principal: PrincipalDep,
    *,
    include: Include = None,
    since: Annotated[
        float | None, Query(allow_inf_nan=False, description="Only snapshots updated later than this; Unix seconds.")
    ] = None,
    timeout_sec: Annotated[
        float, Query(ge=1, le=LONGEST_WATCH_SEC, allow_inf_nan=False, description="The stream ends after so long.")
    ] = LONGEST_WATCH_SEC,
) -> EventStream:
    """Sends ``snapshot`` when the run changes, of several changes the newest; ``heartbeat`` in between."""
    client = principal.counted_as(request)
    records = run_views.wants_records(include)

    async def newest() -> StoredSnapshot:
        return await snapshot_of(services.snapshots, services.run_log, run_id)

    @asynccontextmanager
    async def watching() -> AsyncIterator[Events]:
        with services.hub.watch(run_id, client, tenant_id=principal.tenant_id) as watcher:
            stored = await services.hub.reads.read((principal.tenant_id, run_id), newest)
            watcher.put(SnapshotUpdate(stored.body, stored.revision))
            del stored  # the watcher holds it until it is sent
            stream = _events(watcher, run_id, services.clock, since=since, timeout_sec=timeout_sec, records=records)
            async with aclosing(stream) as events:
                yield events

    return EventStream(watching())


async def _events(
    watcher: Watcher, run_id: str, clock: Clock, *, since: float | None, timeout_sec: float, records: bool
) -> Events:
    ends_at = clock.now().timestamp() + timeout_sec
    while (left := ends_at - clock.now().timestamp()) > 0:
        update = await watcher.next(min(left, HEARTBEAT_SEC))
        now = clock.now().timestamp()
        if update is None:
            yield event("heartbeat", {"run_id": run_id, "ts": now})
            continue
        snapshot = update.snapshot(records=records)  # None if it is damaged: the gateway repairs it, which is a change
        if snapshot is not None and (since is None or update.updated_at > since):
            yield event("snapshot", {"run_id": run_id, "snapshot": snapshot, "ts": now})
