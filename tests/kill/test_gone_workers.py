"""A worker that is gone is missed by the gateway long before the ack wait; one that only seems so is left alone."""

import asyncio
import signal
import time
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.adapters.proxy import Proxy, proxy_to
from tests.kill.checking import check_queue_is_empty, check_runs
from tests.kill.fleet import Fleet, WorkerProcess, eventually, fleet, report, timeout
from tests.kill.gone import ACK_WAIT, SOONER_SEC, is_known, marks, with_runs, workers_of
from tests.kill.test_poison import supervise

GRACE_SEC: Final = 1.0


@timeout
def test_the_runs_of_a_killed_worker_go_on_long_before_the_ack_wait_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        async with fleet(tmp_path, **ACK_WAIT, PYOCO_WORKER_GONE_SEC=str(GRACE_SEC)) as all_there:
            gateways = [all_there.start_gateway(name) for name in ("one", "two")]
            doomed = all_there.start_worker("doomed")
            for process in (*gateways, doomed):
                await process.ready()
            runs = await with_runs(all_there, ["slow", "deaf", "sleeping"])
            await is_known(all_there, "doomed")
            other = all_there.start_worker("other")
            await other.ready()
            doomed.kill()
            began = time.monotonic()
            await all_there.until_all_ended(runs, within=SOONER_SEC)
            report(f"{len(runs)} runs ended {time.monotonic() - began:.1f} s after their worker was killed")
            for run_id in runs:
                assert await workers_of(all_there, run_id) == ["doomed", "other"]
            assert sum(gateway.said("worker_gone") for gateway in gateways) == 1
            await check_queue_is_empty(all_there)
            await check_runs(all_there, runs)

    asyncio.run(body())


@timeout
def test_a_worker_started_again_under_its_name_resumes_its_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with fleet(tmp_path, **ACK_WAIT, PYOCO_WORKER_GONE_SEC=str(GRACE_SEC)) as all_there:
            gateway, first = all_there.start_gateway("gateway"), all_there.start_worker("same")
            await gateway.ready()
            await first.ready()
            runs = await with_runs(all_there, ["slow", "sleeping"])
            await is_known(all_there, "same")
            first.kill()
            await all_there.start_worker("same").ready()
            await all_there.until_all_ended(runs, within=SOONER_SEC)
            for run_id in runs:
                assert await workers_of(all_there, run_id) == ["same", "same"]
                assert len(set(await marks(all_there, run_id))) == 2
            await check_runs(all_there, runs)

    asyncio.run(body())


@timeout
def test_a_worker_that_stands_still_is_not_taken_for_gone(tmp_path: Path) -> None:
    async def body() -> None:
        async with fleet(tmp_path, **ACK_WAIT, PYOCO_WORKER_GONE_SEC=str(GRACE_SEC)) as all_there:
            gateway, still = all_there.start_gateway("gateway"), all_there.start_worker("still")
            await gateway.ready()
            await still.ready()
            [run_id] = await with_runs(all_there, ["slow"])
            await is_known(all_there, "still")
            await all_there.start_worker("other").ready()
            still.send(signal.SIGSTOP)
            await asyncio.sleep(4 * GRACE_SEC)  # what must not happen needs its time
            before = await all_there.snapshot(run_id)
            still.send(signal.SIGCONT)
            await all_there.until(run_id, lambda found: found["heartbeat_at"] > before["heartbeat_at"])
            assert (await workers_of(all_there, run_id), gateway.said("worker_gone")) == (["still"], 0)

    asyncio.run(body())


@timeout
def test_a_connection_that_comes_back_in_time_costs_nothing_and_one_that_does_not_costs_the_run(tmp_path: Path) -> None:
    async def body() -> None:
        settings = {**ACK_WAIT, "PYOCO_WORKER_GONE_SEC": "3"}
        async with fleet(tmp_path, **settings) as all_there, proxy_to(_port(all_there)) as proxy:
            gateway = all_there.start_gateway("gateway")
            far = all_there.start_worker("far", url=proxy.url)
            await gateway.ready()
            await far.ready()
            [run_id] = await with_runs(all_there, ["slow"])
            await is_known(all_there, "far")
            await all_there.start_worker("near").ready()

            _cut(proxy)
            await eventually(lambda: _has_said(far, "nats_reconnected", 1), "the worker is back")
            await is_known(all_there, "far")
            assert (await workers_of(all_there, run_id), gateway.said("worker_gone")) == (["far"], 0)

            proxy.refuses = True
            _cut(proxy)
            await all_there.until(run_id, lambda found: found["status"] == "COMPLETED", within=SOONER_SEC)
            proxy.refuses = False
            await eventually(lambda: _has_said(far, "nats_reconnected", 2), "the worker is back")
            await eventually(lambda: _has_nothing_in_hand(all_there, "far"), "the worker has noticed")
            assert await workers_of(all_there, run_id) == ["far", "near"]
            await check_queue_is_empty(all_there)
            await check_runs(all_there, [run_id])

    asyncio.run(body())


@timeout
def test_no_worker_counts_as_gone_because_nats_was_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with fleet(tmp_path, **ACK_WAIT, PYOCO_WORKER_GONE_SEC="2") as all_there:
            gateway, worker = all_there.start_gateway("gateway"), all_there.start_worker("worker")
            await gateway.ready()
            await worker.ready()
            [run_id] = await with_runs(all_there, ["slow"])
            await is_known(all_there, "worker")
            for times in (1, 2):
                await all_there.kill_server()
                await eventually(partial(_has_said, worker, "nats_reconnected", times), "the worker is back")
                await is_known(all_there, "worker")
            before = await all_there.snapshot(run_id)
            await all_there.until(run_id, lambda found: found["heartbeat_at"] > before["heartbeat_at"])
            assert (await workers_of(all_there, run_id), gateway.said("worker_gone")) == (["worker"], 0)

    asyncio.run(body())


@pytest.mark.timeout(300)  # it takes as long as it takes to start four workers
def test_a_run_that_kills_its_workers_is_judged_as_ever(tmp_path: Path) -> None:
    async def body() -> None:
        deliveries = {"PYOCO_CONSUMER_MAX_DELIVER": "4"}
        async with fleet(tmp_path, **ACK_WAIT, **deliveries, PYOCO_WORKER_GONE_SEC=str(GRACE_SEC)) as all_there:
            await all_there.start_gateway("gateway").ready()
            run_id = await all_there.submit("leaving")
            supervising = asyncio.create_task(supervise(all_there))
            found = await all_there.until(run_id, lambda found: found["status"] == "FAILED", within=200)
            supervising.cancel()
            assert "DELIVERIES_USED_UP" in found["error"]
            assert len(set(await marks(all_there, run_id))) == 3
            # The run's end is seen before the letter about it is written.
            await eventually(partial(all_there.platform.dead_letters.newest, 1), "a dead letter")
            [letter] = await all_there.platform.dead_letters.newest(10)
            assert (letter.entry["run_id"], letter.entry["num_delivered"]) == (run_id, 4)
            await check_queue_is_empty(all_there)
            await check_runs(all_there, [run_id])

    asyncio.run(body())


@timeout
def test_who_switches_it_off_waits_for_the_ack_wait(tmp_path: Path) -> None:
    async def body() -> None:
        waits = {"PYOCO_CONSUMER_ACK_WAIT_SEC": "5", "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "1"}
        async with fleet(tmp_path, **waits, PYOCO_WORKER_GONE_SEC="0") as all_there:
            gateway, doomed = all_there.start_gateway("gateway"), all_there.start_worker("doomed")
            await gateway.ready()
            await doomed.ready()
            [run_id] = await with_runs(all_there, ["slow"])
            doomed.kill()
            await all_there.start_worker("other").ready()
            await all_there.until(run_id, lambda found: found["status"] == "COMPLETED")
            assert gateway.said("worker_gone") == 0

    asyncio.run(body())


def _port(all_there: Fleet) -> int:
    return urlsplit(all_there.server.url).port or 0


def _cut(proxy: Proxy) -> None:
    for link in proxy.links:
        link.client.close()
        link.server.close()


async def _has_said(worker: WorkerProcess, action: str, times: int) -> bool:
    return worker.said(action) >= times


async def _has_nothing_in_hand(all_there: Fleet, worker: str) -> bool:
    record = await all_there.platform.workers.get(worker)
    return record is not None and record["current_run_ids"] == [] and record["lost_instance_id"] is None
