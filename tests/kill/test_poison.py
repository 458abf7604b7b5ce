"""Runs that take their worker down with them: they end as failed, and the others go on.

A run beside them loses a delivery with each death, so it goes on as long as it can get somewhere in between.
"""

import asyncio
import contextlib
from pathlib import Path

from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import Fleet, WorkerProcess, eventually, fleet, report, scaled, timeout

DELIVERIES = 3
MEMORY = 4 * 2**30


@timeout
def test_runs_that_kill_their_worker_fail_in_the_end_and_the_others_go_on(tmp_path: Path) -> None:
    asyncio.run(_poison(tmp_path))


async def _poison(home: Path) -> None:
    async with fleet(home, PYOCO_CONSUMER_MAX_DELIVER=str(DELIVERIES)) as all_there:
        supervising = asyncio.create_task(_supervise(all_there))
        try:
            poison = await all_there.submit_all(["leaving", "crashing", "devouring"])
            harmless: list[str] = []
            for _ in range(scaled(10, 40)):
                harmless += await all_there.submit_all(["chain", "fan", "rested"])
                await asyncio.sleep(0.3)
            await all_there.until_all_ended([*poison, *harmless])
            await check_queue_is_empty(all_there)
        finally:
            supervising.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervising
        await check_runs(all_there, [*poison, *harmless])
        for run_id in harmless:
            assert (await all_there.snapshot(run_id))["status"] == "COMPLETED"
        await _check_letters(all_there, poison)
        report(f"{len(poison)} poisonous runs, {len(harmless)} others, {len(all_there.workers)} workers used")


async def _check_letters(all_there: Fleet, poison: list[str]) -> None:
    letters = {letter.entry["run_id"]: letter.entry for letter in await all_there.platform.dead_letters.newest(100)}
    for run_id in poison:
        found, letter = await all_there.snapshot(run_id), letters[run_id]
        assert (found["status"], letter["reason"]) == ("FAILED", "execution_error")
        if found["flow_name"] == "devouring":
            assert "MemoryError" in letter["error"]
        else:
            node = {"leaving": "leave", "crashing": "segfault"}[found["flow_name"]]
            assert letter["num_delivered"] == DELIVERIES
            assert f"delivered {DELIVERIES} times without an end" in letter["error"]
            assert f"the worker died or was cut off during {node}" in letter["error"]
            assert letter["error"] in found["error"]


async def _supervise(all_there: Fleet) -> None:
    """What systemd, docker or a shell loop does: a worker that dies is replaced."""
    while True:
        worker = all_there.start_worker(limit_memory=MEMORY)

        async def has_died(worker: WorkerProcess = worker) -> bool:
            return not worker.is_alive

        await eventually(has_died, "the last worker lives as long as the test", within=600)
