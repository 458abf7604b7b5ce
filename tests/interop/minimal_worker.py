"""A worker written from the specification's appendices E and F alone: it knows neither our log nor our fields."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import nats
from nats.errors import TimeoutError as NothingCameError
from nats.js import JetStreamContext


class MinimalWorker:
    """Executes every run of a tag by writing that it did."""

    def __init__(self, js: JetStreamContext, tag: str, *, work_sec: float) -> None:
        """``work_sec``: how long a run takes; it gives a heartbeat at its start only."""
        self.executed: Counter[str] = Counter()
        """How often each run was executed."""
        self.cancelled: set[str] = set()
        self._js = js
        self._tag = tag
        self._work_sec = work_sec

    async def run(self) -> None:
        """Pull and execute, until cancelled."""
        consumer = f"pyoco_workers_{self._tag}"
        jobs = await self._js.pull_subscribe(f"pyoco.work.{self._tag}", durable=consumer, stream="PYOCO_WORK")
        self._runs = await self._js.key_value("pyoco_runs")
        while True:
            with contextlib.suppress(NothingCameError):
                found = await jobs.fetch(16, timeout=1)
                await asyncio.gather(*(self._execute(job) for job in found))

    async def _execute(self, message: Any) -> None:
        job = json.loads(message.data)
        run_id = job["run_id"]
        self.executed[run_id] += 1
        await self._write(job, "RUNNING", {"theirs": "RUNNING"})
        await asyncio.sleep(self._work_sec)
        stored = await self._runs.get(run_id)
        said = json.loads(stored.value or b"{}")
        if said.get("cancel_requested_at") is not None or said["status"] in {"CANCELLING", "CANCELLED"}:
            self.cancelled.add(run_id)
            await self._write(job, "CANCELLED", {"theirs": "CANCELLED"})
        else:
            await self._write(job, "COMPLETED", {"theirs": "SUCCEEDED"})
        await message.ack()

    async def _write(self, job: dict[str, Any], status: str, tasks: dict[str, str]) -> None:
        now = time.time()
        required = {name: job[name] for name in ("run_id", "flow_name", "params")}
        snapshot = {**required, "status": status, "tasks": tasks, "heartbeat_at": now, "updated_at": now}
        await self._runs.put(job["run_id"], json.dumps(snapshot).encode())


@contextlib.asynccontextmanager
async def minimal_worker(url: str, tag: str, *, work_sec: float) -> AsyncIterator[MinimalWorker]:
    """One at work, as long as this is open."""
    connection = await nats.connect(url)
    worker = MinimalWorker(connection.jetstream(), tag, work_sec=work_sec)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await connection.close()
