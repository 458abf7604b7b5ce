"""One worker, many runs: nothing stays behind in it."""

import asyncio
import os
import time
from pathlib import Path

from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import WorkerProcess, eventually, fleet, report, scaled, timeout

GROWTH_BYTES = 16 * 1024 * 1024


@timeout
def test_ten_thousand_runs_leave_nothing_behind_in_their_worker(tmp_path: Path) -> None:
    asyncio.run(_many_runs(tmp_path))


async def _many_runs(home: Path) -> None:
    async with fleet(home) as all_there:
        worker = all_there.start_worker()
        warm = await all_there.submit_all(["noop"] * scaled(100, 1_000))
        await all_there.until_all_ended(warm)
        await check_queue_is_empty(all_there)
        before, began = await _held(worker), time.perf_counter()
        many = scaled(400, 10_000)
        runs = await all_there.submit_all(["noop"] * many)
        await all_there.until_all_ended(runs, within=scaled(60, 600))
        took = time.perf_counter() - began
        await check_queue_is_empty(all_there)
        after = await _held(worker)
        report(f"{many} runs in {took:.1f} s ({many / took:.0f}/s); files, threads, bytes: {before} became {after}")
        assert after[0] <= before[0] + 2
        assert after[2] - before[2] < GROWTH_BYTES
        await check_runs(all_there, runs)


async def _held(worker: WorkerProcess) -> tuple[int, int, int]:
    """Open files, threads and memory, when idle threads have gone home; those of the event loop's own pool stay."""
    own = 1 + min(32, (os.cpu_count() or 1) + 4)

    async def is_quiet() -> bool:
        return worker.threads() <= own

    await eventually(is_quiet, lambda: f"few threads, but there are {worker.threads()}")
    return worker.open_files(), worker.threads(), worker.memory()
