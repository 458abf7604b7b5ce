"""A worker that is asked to stop hands back what it cannot finish, and leaves in good order."""

import asyncio
import signal
import time
from pathlib import Path

from pyoco_server.bootstrap import names_of
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import TAG, Fleet, eventually, fleet, report, timeout


@timeout
def test_a_stopped_worker_hands_its_runs_back_when_its_time_is_up(tmp_path: Path) -> None:
    took = asyncio.run(_stop(tmp_path, stop_timeout_sec="0.5", signals=1))
    report(f"handed back after {took:.2f} s with a stop timeout of 0.5 s")
    assert took < 20


@timeout
def test_a_worker_that_gets_two_signals_hands_its_runs_back_at_once(tmp_path: Path) -> None:
    took = asyncio.run(_stop(tmp_path, stop_timeout_sec="30", signals=2))
    report(f"handed back after {took:.2f} s after two signals")
    assert took < 20


async def _stop(home: Path, *, stop_timeout_sec: str, signals: int) -> float:
    async with fleet(home) as all_there:
        first = all_there.start_worker("first", PYOCO_WORKER_STOP_TIMEOUT_SEC=stop_timeout_sec)
        runs = await all_there.submit_all(["slow", "deaf", "sleeping"])
        await _until_begun(all_there, runs)
        asked_at = time.perf_counter()
        for _ in range(signals):
            first.send(signal.SIGTERM)
            await _until_requested(all_there)
        assert await first.exit_code() == 0, first.output.read_text()
        took = time.perf_counter() - asked_at
        all_there.start_worker("second")
        await all_there.until_all_ended(runs, within=10)
        for run_id in runs:
            found = await all_there.snapshot(run_id)
            assert (found["status"], found["worker_id"]) == ("COMPLETED", "second")
        record = await all_there.platform.workers.get("first")
        assert record is not None
        assert (record["state"], record["stop_reason"]) == ("STOPPED_GRACEFUL", "graceful_shutdown")
        assert record["current_run_id"] is None
        await check_queue_is_empty(all_there)
        await check_runs(all_there, runs)
        return took


async def _until_begun(all_there: Fleet, runs: list[str]) -> None:
    async def have_begun() -> bool:
        return all((all_there.traces / run_id).exists() for run_id in runs)

    await eventually(have_begun, "all tasks have begun")


async def _until_requested(all_there: Fleet) -> None:
    """It asks for no more jobs. A signal that came earlier could be one with the last."""
    names = names_of(all_there.settings)

    async def has_requested() -> bool:
        info = await all_there.platform.connection.js.consumer_info(names.work_stream, f"pyoco_workers_{TAG}")
        return bool(info.num_waiting == 0)

    await eventually(has_requested, "a worker requests jobs")
