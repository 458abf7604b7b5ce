"""Waiting for a run's end within one request: the answer comes when the run is over, or when the time is up.

Who asks again and again keeps the gateway busy and hears late; who waits costs next to nothing meanwhile.
"""

import asyncio
import contextlib
from typing import Annotated, Final

from fastapi import Query

from pyoco_server.app.ports import StoredSnapshot
from pyoco_server.app.run_queries import visible_snapshot
from pyoco_server.app.snapshot_reading import readable
from pyoco_server.app.statuses import TERMINAL_RUN
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.patience import patiently
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


async def newest_within(given: Services, run_id: str, wait_sec: float, *, tenant_id: str | None) -> JsonObject:
    """The run's last snapshot, or after ``wait_sec`` the newest; RunNotFoundError if there is none."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_sec

    async def newest() -> StoredSnapshot:
        return await visible_snapshot(given.snapshots, run_id, tenant_id=tenant_id)

    with given.ends.watched(run_id) as changed:
        while True:
            changed.clear()
            snapshot = readable(await given.hub.reads.read((tenant_id, run_id), lambda: patiently(newest)))
            if snapshot.get("status") in TERMINAL_RUN or loop.time() >= ends_at:
                return snapshot
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(ends_at):
                    await changed.wait()
