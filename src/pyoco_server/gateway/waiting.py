"""Waiting for a run's end within one request: the answer comes when the run is over, or when the time is up.

Who asks again and again keeps the gateway busy and hears late; who waits costs next to nothing meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import Query, Request

from pyoco_server.app.ports import StoredSnapshot
from pyoco_server.app.run_desk import RunNotFoundError
from pyoco_server.app.run_queries import visible, visible_snapshot
from pyoco_server.app.snapshot_reading import readable
from pyoco_server.app.statuses import TERMINAL_RUN
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.event_stream import left
from pyoco_server.gateway.patience import patiently
from pyoco_server.gateway.principal import Principal
from pyoco_server.gateway.run_ends import News
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
"""What is known to be there, and is not, is behind: this is how often it is looked for."""


@contextlib.contextmanager
def heard_from_the_start(given: Services, request: Request, asking: Principal, run_id: str) -> Iterator[News | None]:
    """For whoever is about to submit a run of this id: all there will be of it, so that nobody has to look.

    None if so many wait already that they will have to do without.
    """
    with contextlib.ExitStack() as stack:
        try:
            news = stack.enter_context(given.ends.watched(run_id, asking.counted_as(request)))
        except TooManyError:
            news = None
        yield news


async def newest_within(
    given: Services, request: Request, asking: Principal, run_id: str, wait_sec: float, *, must_be_there: bool = False
) -> JsonObject:
    """The run's last snapshot, or after ``wait_sec`` the newest; RunNotFoundError if there is none.

    It comes earlier if whoever asked has gone, or if the gateway stops. ``must_be_there``: the run has been accepted,
    so that a replica that does not know it will soon.
    """
    with given.ends.watched(run_id, asking.counted_as(request)) as news:
        news.tell(None)  # what happened before is not told of
        return await newest_told(given, request, asking, run_id, wait_sec, news, must_be_there=must_be_there)


async def newest_told(
    given: Services,
    request: Request,
    asking: Principal,
    run_id: str,
    wait_sec: float,
    news: News,
    *,
    must_be_there: bool = True,
) -> JsonObject:
    """The same for whoever is told the news; what they have not heard yet is waited for, and not looked for."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_sec

    async def newest() -> StoredSnapshot:
        return await visible_snapshot(given.snapshots, run_id, tenant_id=asking.tenant_id)

    leaving = asyncio.create_task(left(request.receive), name="waiting request")
    leaving.add_done_callback(lambda _: news.set())
    try:
        while True:
            look_at = ends_at
            may_wait = not (loop.time() >= ends_at or leaving.done() or given.ends.is_closed)
            if news.is_set() or not may_wait:
                announced = news.take()
                try:
                    if announced is not None:
                        stored = visible(StoredSnapshot(run_id, announced, 0, 0), tenant_id=asking.tenant_id)
                    else:
                        stored = await given.hub.reads.read((asking.tenant_id, run_id), lambda: patiently(newest))
                except RunNotFoundError:
                    if not (must_be_there and may_wait):
                        raise
                    look_at = min(ends_at, loop.time() + _LOOK_AGAIN_SEC)
                else:
                    snapshot = readable(stored)
                    if snapshot.get("status") in TERMINAL_RUN or not may_wait:
                        return snapshot
            try:
                async with asyncio.timeout_at(look_at):
                    await news.wait()
            except TimeoutError:
                news.tell(None)
    finally:
        leaving.cancel()
