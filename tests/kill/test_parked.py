"""Runs that only wait hold no worker and no job, and any worker can resume them."""

import asyncio
from pathlib import Path

from pyoco_server.app.snapshots.projection import worker_name
from pyoco_server.core.payloads import NodeStarted
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import Fleet, WorkerProcess, eventually, fleet, report, scaled, timeout

GROWTH_BYTES = 8 * 1024 * 1024
"""How much more memory may be in use after many more runs: what an allocator keeps, not what runs need."""


@timeout
def test_a_thousand_waiting_runs_hold_no_slot_and_no_memory(tmp_path: Path) -> None:
    asyncio.run(_parked(tmp_path))


async def _parked(home: Path) -> None:
    async with fleet(home) as all_there:
        before, after = all_there.start_worker("before"), "after"
        runs = await _park(all_there, before, scaled(100, 200))
        few = before.memory()
        runs += await _park(all_there, before, scaled(100, 800))
        many = before.memory()
        report(f"{len(runs)} runs wait: {few / 2**20:.1f} MiB with the first of them, {many / 2**20:.1f} MiB with all")
        assert many - few < GROWTH_BYTES
        before.kill()

        all_there.start_worker(after)
        for run_id in runs:
            await all_there.resume(run_id, "approval", {"ok": True})
        await all_there.until_all_ended(runs, within=scaled(30, 120))
        await check_queue_is_empty(all_there)
        for log in (await check_runs(all_there, runs)).values():
            begun = {
                logged.event.payload.node_id: worker_name(logged.event.payload.worker_id)
                for logged in log
                if isinstance(logged.event.payload, NodeStarted) and logged.event.payload.worker_id is not None
            }
            assert begun == {"first": "before", "approval": "before", "answer": "after"}


async def _park(all_there: Fleet, worker: WorkerProcess, many: int) -> list[str]:
    runs = await all_there.submit_all(["ask"] * many)
    await all_there.until_all(runs, lambda found: found["waiting"] and found["driven_by"] is None)
    await check_queue_is_empty(all_there)  # no job is in flight, so no slot is taken

    async def is_idle() -> bool:
        record = await all_there.platform.workers.get(worker.name)
        return record is not None and record["state"] == "IDLE" and record["current_run_ids"] == []

    await eventually(is_idle, "the worker is idle")
    return runs
