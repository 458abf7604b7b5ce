"""Runs of our gateway, executed by a worker that was written from the specification's appendices alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.minimal_worker import minimal_worker
from tests.interop.site import ENDS, Site

TAG = "minimal"
RUNS = 100


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.mark.spec("004 REQ-0009", "004 §付録E", "004 §付録F")
def test_what_it_ended_has_ended_and_ours_never_executes_it_again(site: Site) -> None:
    gateway = site.gateway("gateway")
    site.worker("same-tag", tags=TAG)
    site.stop("same-tag")  # its consumer stays

    async def body() -> None:
        async with minimal_worker(site.nats.url, TAG, work_sec=0.0) as theirs:
            keys = [f"run-{number}" for number in range(RUNS)]
            runs = [await asyncio.to_thread(site.submit, gateway, "short", key, tag=TAG) for key in keys]
            for run_id in runs:
                types = await asyncio.to_thread(site.until_log_ended, gateway, run_id)
                assert types == ["EXECUTION_CREATED", "EXECUTION_COMPLETED"], run_id
            assert theirs.executed == dict.fromkeys(runs, 1)
        await asyncio.to_thread(site.worker, "again", tags=TAG)  # nothing is left for it
        for run_id, key in zip(runs, keys, strict=True):
            shown = await asyncio.to_thread(site.until, gateway, run_id, ENDS)
            assert (shown["status"], shown["tasks"]) == ("COMPLETED", {"theirs": "SUCCEEDED"})
            assert site.calls(key, "first") == 0

    asyncio.run(body())


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
def test_a_cancel_of_our_gateway_reaches_it(site: Site) -> None:
    gateway = site.gateway("gateway")
    site.worker("same-tag", tags=TAG)
    site.stop("same-tag")

    async def body() -> None:
        async with minimal_worker(site.nats.url, TAG, work_sec=1.0) as theirs:
            run_id = await asyncio.to_thread(site.submit, gateway, "short", "cancelled", tag=TAG)
            await asyncio.to_thread(site.until, gateway, run_id, {"RUNNING"})
            answer = await asyncio.to_thread(site.ask, "POST", f"{gateway}/runs/{run_id}/cancel")
            assert answer["status"] == "CANCELLING"
            shown = await asyncio.to_thread(site.until, gateway, run_id, ENDS)
            types = await asyncio.to_thread(site.until_log_ended, gateway, run_id)
            assert (shown["status"], shown["tasks"]) == ("CANCELLED", {"theirs": "CANCELLED"})
            assert types == ["EXECUTION_CREATED", "EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED"]
            assert theirs.cancelled == {run_id}

    asyncio.run(body())
