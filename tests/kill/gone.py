"""Workers that are gone: runs in their hands, and what the gateway and the log know of whose those are."""

import asyncio
from typing import Final

from pyoco_server.core.payloads import NodeStarted
from tests.kill.crew import Crew, Snapshot

ACK_WAIT: Final = {"PYOCO_CONSUMER_ACK_WAIT_SEC": "30", "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "10"}
SOONER_SEC: Final = 15.0
"""Far below the ack wait, however busy the machine is."""


def _at_work(snapshot: Snapshot) -> bool:
    return bool(snapshot["status"] == "RUNNING" and snapshot["driven_by"])


async def with_runs(crew: Crew, flows: list[str]) -> list[str]:
    """Runs that are at work."""
    runs = await crew.submit_all(flows)
    await crew.until_all(runs, _at_work)
    return runs


async def is_known(crew: Crew, worker: str) -> None:
    """Wait until a gateway has asked the worker; it logs nothing, and asks the worker that has written its entry."""
    record = await crew.platform.workers.get(worker)
    assert record is not None
    asked = asyncio.Event()

    async def on_question(_message: object) -> None:
        asked.set()

    subscription = await crew.platform.connection.nc.subscribe(f"pyoco.alive.{record['instance_id']}", cb=on_question)
    for _ in range(2):  # who is asked once more has answered before
        asked.clear()
        async with asyncio.timeout(30):
            await asked.wait()
    await subscription.unsubscribe()


async def marks(crew: Crew, run_id: str) -> list[str]:
    """How those signed who began a task of the run."""
    events, _ = await crew.platform.log.read(run_id)
    payloads = [event.payload for event in events]
    return [payload.worker_id for payload in payloads if isinstance(payload, NodeStarted) and payload.worker_id]


async def workers_of(crew: Crew, run_id: str) -> list[str]:
    """The names of those."""
    return [mark.partition("#")[0] for mark in await marks(crew, run_id)]
