"""SIGKILL the NATS server under load: what it acknowledged is there, and what is in doubt is resolved."""

import asyncio
from pathlib import Path

from pyoco_server.core import EventType
from tests.invariants import ENDS
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import Fleet, chance, eventually, fleet, report, scaled, timeout
from tests.kill.reading import Logged, described, read_log
from tests.kill.test_worker_dies import MIXED


@timeout
def test_runs_survive_a_server_killed_three_times(tmp_path: Path) -> None:
    asyncio.run(_server_killed(tmp_path))


async def _server_killed(home: Path) -> None:
    luck = chance()
    flows = [MIXED[number % len(MIXED)] for number in range(scaled(160, 1_200))]
    luck.shuffle(flows)
    async with fleet(home) as all_there:
        await all_there.start_gateway("gateway").ready()
        for _ in range(2):
            await all_there.start_worker().ready()
        submitting = asyncio.create_task(all_there.submit_all(flows, at_once=4))
        for _ in range(3):
            await asyncio.sleep(luck.uniform(0.3, 1.0))
            await all_there.kill_server()
        runs = await submitting
        asking = [run_id for run_id in runs if (await all_there.snapshot(run_id))["flow_name"] == "ask"]
        resuming = asyncio.create_task(all_there.resume_waits(asking, luck))
        await all_there.until_all_ended(runs, within=scaled(60, 600))
        await resuming
        await check_queue_is_empty(all_there)
        await check_runs(all_there, runs)
        begun = [run_id for run_id in all_there.refused if await _has_begun(all_there, run_id)]
        report(f"{len(runs)} runs, {len(all_there.refused)} refused ({len(begun)} of them had begun), 3 kills")


async def _has_begun(all_there: Fleet, run_id: str) -> bool:
    """A submission without an answer may or may not have arrived; it leaves no run behind that has not ended."""
    log: list[Logged] = []

    async def is_over() -> bool:
        nonlocal log
        log = await read_log(all_there.platform, all_there.settings, run_id)
        return not log or any(logged.event.type in ENDS for logged in log)

    await eventually(is_over, lambda: f"run {run_id} is over\n{described(log)}")
    return any(logged.event.type is EventType.NODE_STARTED for logged in log)
