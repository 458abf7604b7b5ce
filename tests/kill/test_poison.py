"""Runs that take their worker down with them at once: they end as failed, and all the others as if nothing were."""

import asyncio
import contextlib
import random
from pathlib import Path

import pytest

from pyoco_server.worker.quarantined_job import LONE_DEATHS
from tests.kill.checking import check_queue_is_empty, check_runs, traces
from tests.kill.fleet import Fleet, Snapshot, WorkerProcess, chance, eventually, fleet, report, scaled

POISON = {"leaving": "leave", "crashing": "segfault", "devouring": "hungry"}
"""Flows that are not good for their worker, and the node it happens in."""

DELIVERIES = 5
MEMORY = 4 * 2**30


@pytest.mark.timeout(scaled(300, 1_800))  # it takes as long as it takes to start seven workers
def test_runs_that_kill_their_worker_fail_in_the_end_and_the_others_complete(tmp_path: Path) -> None:
    asyncio.run(_poison(tmp_path, chance()))


async def _poison(home: Path, luck: random.Random) -> None:
    async with fleet(home, PYOCO_CONSUMER_MAX_DELIVER=str(DELIVERIES)) as all_there:
        flows = [*POISON] * scaled(1, 4) + ["chain", "fan", "rested", "lingering"] * scaled(4, 12)
        luck.shuffle(flows)
        await all_there.start_gateway("gateway").ready()  # it sees to jobs whose last delivery was lost
        runs = await all_there.submit_all(flows)
        supervising = asyncio.create_task(supervise(all_there))
        try:
            for _ in range(scaled(5, 40)):
                runs += await all_there.submit_all(["chain", "fan", "lingering"])
                await asyncio.sleep(luck.uniform(0.1, 1.0))
            await all_there.until_all_ended(runs, within=scaled(200, 1_500))
            await check_queue_is_empty(all_there)
        finally:
            supervising.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervising
        await check_runs(all_there, runs)
        found = [await all_there.snapshot(run_id) for run_id in runs]
        harmless = [snapshot for snapshot in found if snapshot["flow_name"] not in POISON]
        assert {snapshot["status"] for snapshot in harmless} == {"COMPLETED"}
        await _check_letters(all_there, [snapshot for snapshot in found if snapshot not in harmless])
        report(f"{len(harmless)} harmless runs beside the others, {len(all_there.workers)} workers used")


@pytest.mark.timeout(scaled(200, 400))
def test_values_that_kill_the_worker_that_loads_them_count_as_crashes_of_what_reads_them(tmp_path: Path) -> None:
    asyncio.run(_poisonous_values(tmp_path))


async def _poisonous_values(home: Path) -> None:
    async with fleet(home, PYOCO_RESULT_KEY="k" * 32) as all_there:
        await all_there.start_gateway("gateway").ready()
        supervising = asyncio.create_task(supervise(all_there))
        try:
            runs = await all_there.submit_all(["opened", "compared"])
            await all_there.until_all(runs, lambda found: found["waiting"], within=60)
            await asyncio.gather(*[all_there.resume(run_id, "approval", 1) for run_id in runs])
            await all_there.until_all_ended(runs, within=100)
        finally:
            supervising.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervising
        errors = {found["flow_name"]: found for found in [await all_there.snapshot(run_id) for run_id in runs]}
        assert {found["status"] for found in errors.values()} == {"FAILED"}
        assert "task 'opening' is not called again: 3 workers died" in errors["opened"]["error"]
        assert "is not evaluated again: 3 workers died" in errors["compared"]["error"]
        assert not [called for run_id in runs for called, _, _ in traces(all_there, run_id) if called == "opening"]
        assert len(all_there.workers) <= 8, "each run ends at most three workers"


async def _check_letters(all_there: Fleet, poison: list[Snapshot]) -> None:
    async def are_there() -> bool:  # a run's end is seen before the letter about it is written
        return await all_there.platform.dead_letters.count() >= len(poison)

    await eventually(are_there, "as many dead letters as runs that were given up")
    letters = {letter.entry["run_id"]: letter.entry for letter in await all_there.platform.dead_letters.newest(100)}
    assert letters.keys() == {snapshot["run_id"] for snapshot in poison}
    for snapshot in poison:
        letter = letters[snapshot["run_id"]]
        assert (snapshot["status"], letter["reason"]) == ("FAILED", "execution_error")
        node = POISON[snapshot["flow_name"]]
        if node == "hungry":
            assert "MemoryError" in letter["error"]
            continue
        assert letter["error"] in snapshot["error"]
        began = [at for called, _, at in traces(all_there, snapshot["run_id"]) if called == node]
        report(f"{node}: {len(began)} workers killed in {max(began) - min(began):.1f} s")
        if "is not called again: 3 workers died" in letter["error"]:
            assert 1 <= len(began) <= 3
        else:  # its deliveries were used up first, some by the deaths of workers that others killed
            assert f"delivered {letter['num_delivered']} times without an end" in letter["error"]
            assert 1 <= len(began) <= DELIVERIES - 1 + LONE_DEATHS


async def supervise(all_there: Fleet) -> None:
    """What systemd, docker or a shell loop does: a worker that dies is replaced."""
    while True:
        worker = all_there.start_worker(limit_memory=MEMORY)

        async def has_died(worker: WorkerProcess = worker) -> bool:
            return not worker.is_alive

        await eventually(has_died, "the last worker lives as long as the test", within=600)
