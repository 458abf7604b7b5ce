"""A cancel that was recorded before the end wins, whenever it comes; and it comes to an end, soon."""

import asyncio
import statistics
import time
from pathlib import Path

from pyoco_server.core import EventType
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import Fleet, chance, eventually, fleet, report, scaled, timeout

FLOWS = ("chain", "fan", "retried", "rested", "ask", "stored", "noop")
RECORDED = {"CANCELLING", "CANCELLED"}


@timeout
def test_a_cancel_recorded_before_the_end_wins(tmp_path: Path) -> None:
    asyncio.run(_cancel_races(tmp_path))


async def _cancel_races(home: Path) -> None:
    luck = chance()
    answers: dict[str, str] = {}
    async with fleet(home) as all_there:
        await all_there.start_worker().ready()
        places = asyncio.Semaphore(10)

        async def one(flow_name: str, delay_sec: float) -> str:
            async with places:
                run_id = await all_there.submit(flow_name)
                await asyncio.sleep(delay_sec)
                answers[run_id] = (await all_there.cancel(run_id, "changed my mind"))["status"]
                return run_id

        many = scaled(200, 600)
        runs = await asyncio.gather(*(one(luck.choice(FLOWS), luck.uniform(0.0, 0.4)) for _ in range(many)))
        await all_there.until_all_ended(runs, within=20)
        await check_queue_is_empty(all_there)
        logs = await check_runs(all_there, runs)
        for run_id in runs:
            types = [logged.event.type for logged in logs[run_id]]
            recorded = EventType.EXECUTION_CANCEL_REQUESTED in types
            end = (await all_there.snapshot(run_id))["status"]
            assert recorded == (end == "CANCELLED"), f"run {run_id}: cancel recorded: {recorded}, but it ended {end}"
            assert recorded == (answers[run_id] in RECORDED), f"run {run_id} ended {end}: answered {answers[run_id]}"
            assert recorded or answers[run_id] == end
        won = sum(answer in RECORDED for answer in answers.values())
        report(f"{many} cancels: {won} recorded before the end, {many - won} too late")


@timeout
def test_queued_and_parked_runs_are_cancelled_without_any_worker(tmp_path: Path) -> None:
    asyncio.run(_without_workers(tmp_path))


async def _without_workers(home: Path) -> None:
    async with fleet(home) as all_there:
        worker = all_there.start_worker()
        parked = await all_there.submit_all(["ask"] * 20)
        await all_there.until_all(parked, lambda found: found["waiting"] and found["driven_by"] is None)
        worker.kill()
        queued = await all_there.submit_all(["chain"] * 20)
        for run_id in (*parked, *queued):
            assert (await all_there.cancel(run_id))["status"] == "CANCELLING"
            assert (await all_there.snapshot(run_id))["status"] == "CANCELLED"
        all_there.start_worker()  # what is left in the queue is recognised and dropped
        await check_queue_is_empty(all_there)
        await check_runs(all_there, [*parked, *queued])


@timeout
def test_work_that_can_be_stopped_is_cancelled_at_once(tmp_path: Path) -> None:
    asyncio.run(_latency(tmp_path))


async def _latency(home: Path) -> None:
    async with fleet(home) as all_there:
        await all_there.start_worker().ready()
        for flow_name in ("sleeping", "slow"):
            took = [await _cancel_one(all_there, flow_name) for _ in range(scaled(10, 100))]
            median, worst = statistics.median(took), max(took)
            report(
                f"{flow_name}: cancelled after {median * 1e3:.1f} ms (median of {len(took)}), {worst * 1e3:.1f} worst"
            )
            assert median < 10.0


async def _cancel_one(all_there: Fleet, flow_name: str) -> float:
    run_id = await all_there.submit(flow_name)

    async def has_begun() -> bool:
        return (all_there.traces / run_id).exists()

    await eventually(has_begun, "the task has begun", pause=0.002)
    asked_at = time.perf_counter()
    await all_there.cancel(run_id)
    await all_there.until(run_id, lambda found: found["status"] == "CANCELLED", pause=0.001)
    return time.perf_counter() - asked_at
