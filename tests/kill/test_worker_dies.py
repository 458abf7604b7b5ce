"""SIGKILL a worker again and again: every run comes to one end, and nothing that was done is done again."""

import asyncio
from pathlib import Path

from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import chance, fleet, report, scaled, timeout

MIXED = ("chain", "fan", "retried", "ask", "processed", "rested", "stored", "failing")


@timeout
def test_runs_survive_workers_killed_at_any_moment(tmp_path: Path) -> None:
    asyncio.run(_workers_killed(tmp_path))


async def _workers_killed(home: Path) -> None:
    luck = chance()
    flows = [MIXED[number % len(MIXED)] for number in range(scaled(48, 320))]
    luck.shuffle(flows)
    async with fleet(home) as all_there:
        runs = await all_there.submit_all(flows)
        asking = [run_id for run_id in runs if (await all_there.snapshot(run_id))["flow_name"] == "ask"]
        resuming = asyncio.create_task(all_there.resume_waits(asking, luck))
        ended = asyncio.create_task(all_there.until_all_ended(runs, within=scaled(90, 900)))
        kills = 0
        worker = all_there.start_worker()
        while kills < scaled(5, 60) and not ended.done():
            await worker.ready()
            await asyncio.sleep(luck.uniform(0.0, 0.6))
            worker.kill()
            kills += 1
            worker = all_there.start_worker()
        await ended
        await resuming
        await check_queue_is_empty(all_there)
        logs = await check_runs(all_there, runs)
        ends = [logs[run_id][-1].event.type.value for run_id in runs]
        report(f"{len(runs)} runs, {kills} workers killed, {ends.count('EXECUTION_FAILED')} failed as they should")
        assert ends.count("EXECUTION_FAILED") == flows.count("failing")
        assert ends.count("EXECUTION_COMPLETED") == len(runs) - flows.count("failing")
