"""Workers that are away for longer than the ack wait, and come back believing they still have their runs."""

import asyncio
import signal
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pyoco_server.core.payloads import NodeStarted
from tests.adapters.proxy import proxy_to
from tests.kill.checking import check_queue_is_empty, check_runs, traces
from tests.kill.fleet import Fleet, WorkerProcess, chance, eventually, fleet, report, scaled, timeout
from tests.kill.reading import Logged

FLOWS = ("chain", "fan", "lingering", "retried", "rested", "processed", "stored")
ACK_WAIT_SEC = 2.0
"""See ``HASTY``."""


@timeout
def test_a_worker_that_was_stopped_finds_its_runs_in_other_hands(tmp_path: Path) -> None:
    asyncio.run(_stopped(tmp_path))


async def _stopped(home: Path) -> None:
    luck, pauses = chance(), scaled(3, 20)
    async with fleet(home) as all_there:
        sleepy, other = all_there.start_worker("sleepy"), all_there.start_worker("other")
        await sleepy.ready()
        await other.ready()
        runs: list[str] = []
        for _ in range(pauses):
            flows = luck.choices(FLOWS, k=scaled(30, 60))
            known = set(all_there.traces.iterdir())
            submitting = asyncio.create_task(all_there.submit_all(flows))
            await eventually(partial(_has_begun, sleepy, all_there, known), "the worker has begun something")
            await asyncio.sleep(luck.uniform(0.0, 0.2))
            sleepy.send(signal.SIGSTOP)
            await asyncio.sleep(luck.uniform(ACK_WAIT_SEC, 1.3 * ACK_WAIT_SEC))
            sleepy.send(signal.SIGCONT)  # while the other worker is busy with what was taken away
            some = await submitting
            await all_there.until_all_ended(some)
            runs += some
        await check_queue_is_empty(all_there)
        logs = await check_runs(all_there, runs)
        moved = sum(len(_drivers(log)) > 1 for log in logs.values())
        caught = sleepy.said("run_taken_over") + other.said("run_taken_over")
        report(f"{len(runs)} runs, {pauses} pauses beyond the ack wait: {moved} runs moved, {caught} while both drove")
        assert moved > 0


@timeout
def test_a_worker_whose_connection_breaks_or_falls_silent_goes_on(tmp_path: Path) -> None:
    asyncio.run(_cut_off(tmp_path))


async def _cut_off(home: Path) -> None:
    luck = chance()
    async with fleet(home) as all_there, proxy_to(urlsplit(all_there.server.url).port or 0) as proxy:
        far, near = all_there.start_worker("far", url=proxy.url), all_there.start_worker("near")
        await far.ready()
        await near.ready()
        runs: list[str] = []
        for round_ in range(scaled(2, 24)):
            submitting = asyncio.create_task(all_there.submit_all(luck.choices(FLOWS, k=scaled(24, 48))))
            await asyncio.sleep(luck.uniform(0.02, 0.3))
            back = far.said("nats_reconnected")
            links = [link for link in proxy.links if not link.client.is_closing()]
            for link in links:
                if round_ % 2:
                    link.hold()
                else:
                    link.client.close()
                    link.server.close()
            some = await submitting
            await all_there.until_all_ended(some)
            await eventually(partial(_is_back, far, back), "the worker is back")
            for link in links:  # what was given up long ago arrives now
                if link.held is not None:
                    link.release()
            runs += some
        await check_queue_is_empty(all_there)
        await check_runs(all_there, runs)
        report(f"{len(runs)} runs, {scaled(2, 24)} broken or silent connections")


async def _has_begun(worker: WorkerProcess, all_there: Fleet, known: set[Path]) -> bool:
    new = {file.name for file in all_there.traces.iterdir() if file not in known}
    return any(pid == worker.pid for run_id in new for _, pid, _ in traces(all_there, run_id))


def _drivers(log: list[Logged]) -> set[str]:
    payloads = [logged.event.payload for logged in log]
    return {payload.worker_id for payload in payloads if isinstance(payload, NodeStarted) and payload.worker_id}


async def _is_back(worker: WorkerProcess, times_before: int) -> bool:
    return worker.said("nats_reconnected") > times_before
