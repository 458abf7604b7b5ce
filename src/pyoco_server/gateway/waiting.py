"""Requests that wait for a run's end (``wait_sec``): answered when the run has ended, or when the time is up.

A waiting request costs next to nothing; a client that polls keeps the gateway busy and learns of the end late.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import Query, Request

from pyoco_server.app.ports import StoredSnapshot
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.snapshots.codec import json_object, readable
from pyoco_server.app.snapshots.status import TERMINAL_RUN
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.live.event_stream import left
from pyoco_server.gateway.live.snapshot_hub import Watcher
from pyoco_server.gateway.principal import Principal
from pyoco_server.gateway.services import Services

LONGEST_SEC: Final = 30.0
WaitSec = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_SEC,
        allow_inf_nan=False,
        description="Answer when the run has ended, or after so many seconds with how it stands then.",
    ),
]


_LOOK_AGAIN_SEC: Final = 0.1
"""The pause between reads of a run that was accepted and that this replica does not have yet."""


@contextlib.contextmanager
def watched_from_start(
    services: Services, request: Request, principal: Principal, run_id: str
) -> Iterator[Watcher | None]:
    """Watch a run that the request is about to submit, so that no snapshot needs to be read.

    None if too many requests wait: this one must do without.
    """
    with contextlib.ExitStack() as stack:
        try:
            watcher = stack.enter_context(services.hub.wait_for(run_id, principal.counted_as(request)))
        except TooManyError:
            watcher = None
        yield watcher


async def newest_within(
    services: Services,
    request: Request,
    principal: Principal,
    run_id: str,
    wait_sec: float,
    *,
    must_exist: bool = False,
) -> JsonObject:
    """Return the run's last snapshot, or after ``wait_sec`` the newest; RunNotFoundError if there is none.

    It returns earlier if the client has gone, or if the gateway stops. ``must_exist``: the run was accepted, so that a
    replica that does not have it yet will have it soon.
    """
    with services.hub.wait_for(run_id, principal.counted_as(request)) as watcher:
        watcher.wake()  # a change before now reaches no watcher
        return await newest_watched(services, request, principal, run_id, wait_sec, watcher, must_exist=must_exist)


async def newest_watched(
    services: Services,
    request: Request,
    principal: Principal,
    run_id: str,
    wait_sec: float,
    watcher: Watcher,
    *,
    must_exist: bool = True,
) -> JsonObject:
    """Do the same with a watcher that is older than the run; a snapshot is read only if the watcher has none."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_sec

    async def stored() -> StoredSnapshot:
        return await snapshot_of(services.snapshots, services.run_log, run_id)

    async def newest(*, may_be_missing: bool) -> JsonObject | None:
        # The run is the caller's: this request submitted it, or has read it through the caller's ports.
        update = watcher.take()
        snapshot = json_object(update.body) if update is not None else None
        if snapshot is not None:
            return snapshot
        try:  # the watcher has none, or another program damaged it
            return readable(await services.hub.reads.read((principal.tenant_id, run_id), stored))
        except RunNotFoundError:
            if may_be_missing:
                return None
            raise

    leaving = asyncio.create_task(left(request.receive), name="waiting request")
    leaving.add_done_callback(lambda _: watcher.wake())
    try:
        while True:
            look_at = ends_at
            may_wait = not (loop.time() >= ends_at or leaving.done() or services.hub.is_closed)
            if watcher.is_changed or not may_wait:
                snapshot = await newest(may_be_missing=must_exist and may_wait)
                if snapshot is None:
                    look_at = min(ends_at, loop.time() + _LOOK_AGAIN_SEC)
                elif snapshot.get("status") in TERMINAL_RUN or not may_wait:
                    return snapshot
            await _wait_until(look_at, watcher)
    finally:
        leaving.cancel()


async def _wait_until(moment: float, watcher: Watcher) -> None:
    """Return when the watcher is woken; at this moment of the loop's clock, wake it."""
    try:
        async with asyncio.timeout_at(moment):
            await watcher.wait()
    except TimeoutError:
        watcher.wake()
