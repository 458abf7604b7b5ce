"""Sweeps of real gateways on a real server: what JetStream leaves behind, and what a dead gateway does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from pyoco_server.adapters.jetstream.primitives.kv import Bucket
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.app.recovery import reconciler as sweeping
from pyoco_server.app.recovery.exhausted_jobs import LOOK_SEC
from pyoco_server.app.runs.submit import Submission
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.bootstrap.platform import Platform, open_platform, submitter
from pyoco_server.core import Actor, ActorKind
from pyoco_server.gateway.services import Services
from pyoco_server.settings import Settings
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import eventually, settings_for

USER = Actor(ActorKind.USER, "ann")
LIMITS = {"PYOCO_CONSUMER_MAX_DELIVER": "2"}


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@contextlib.asynccontextmanager
async def gateway(nats: NatsServer, directory: Path) -> AsyncIterator[Services]:
    async with open_gateway(_settings(nats, directory)) as services:
        yield services


def _settings(nats: NatsServer, directory: Path) -> Settings:
    return settings_for(nats.url, directory, **LIMITS)


async def spend(platform: Platform) -> None:
    """Pull the job and return it until its deliveries are exhausted."""
    queue = JetStreamWorkQueue(platform.connection, Names(max_deliver=2))
    for _ in range(2):
        delivery = await queue.pull("default", timeout_sec=5)
        assert delivery is not None
        await delivery.nak(0)
    assert await queue.pull("default", timeout_sec=0.1) is None


async def status(services: Services, run_id: str) -> str | None:
    stored = await services.snapshots.read(run_id)
    found: str | None = msgspec.json.decode(stored.body)["status"] if stored is not None else None
    return found


async def left(platform: Platform) -> int:
    return (await platform.connection.js.stream_info("PYOCO_WORK")).state.messages


def test_two_gateways_get_the_advisory_of_an_exhausted_job_and_its_run_fails_once(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def body() -> None:
        async with (
            open_platform(_settings(nats, tmp_path), name="workers") as platform,
            gateway(nats, tmp_path / "1") as one,
            gateway(nats, tmp_path / "2") as other,
        ):
            run_id = (await one.submitter.submit(Submission(flow_name="any"), USER))["run_id"]
            await spend(platform)

            async def is_over() -> bool:
                return await status(other, run_id) == "FAILED" and await left(platform) == 0

            await eventually(is_over)
            [letter] = await one.dead_letters.newest(10)
            assert (letter.tag, letter.entry["run_id"], letter.entry["num_delivered"]) == ("default", run_id, 2)
            events, _ = await one.log.read(run_id)
            assert [event.type.value for event in events].count("EXECUTION_FAILED") == 1

    asyncio.run(body())


def test_a_gateway_that_starts_finds_exhausted_jobs_and_gets_later_advisories(nats: NatsServer, tmp_path: Path) -> None:
    async def body() -> None:
        settings = _settings(nats, tmp_path)
        async with open_platform(settings, name="workers") as platform:
            submits = submitter(platform, settings)
            before = (await submits.submit(Submission(flow_name="any"), USER))["run_id"]
            await spend(platform)
            assert await left(platform) == 1
            async with gateway(nats, tmp_path / "1") as services:

                async def is_over(run_id: str) -> bool:
                    return await status(services, run_id) == "FAILED" and await left(platform) == 0

                await eventually(lambda: is_over(before))
                after = (await submits.submit(Submission(flow_name="any"), USER))["run_id"]
                await spend(platform)
                await eventually(lambda: is_over(after), LOOK_SEC / 2)  # long before the next scan
                assert await services.dead_letters.count() == 2

    asyncio.run(body())


def test_a_gateway_that_starts_restores_a_run_that_has_only_its_log(nats: NatsServer, tmp_path: Path) -> None:
    async def body() -> None:
        settings = _settings(nats, tmp_path)
        async with open_platform(settings, name="gone") as platform:
            gone = submitter(platform, settings)
            kept = (await gone.submit(Submission(flow_name="any"), USER))["run_id"]
            lost = (await gone.submit(Submission(flow_name="any", tag="elsewhere"), USER))["run_id"]
            await platform.snapshots.delete(lost)
            await platform.connection.js.delete_stream("PYOCO_WORK")
            async with gateway(nats, tmp_path / "1") as services:

                async def is_restored() -> bool:
                    return await status(services, lost) == "PENDING" and await services.queue.backlog("elsewhere") == 1

                await eventually(is_restored)
                assert await status(services, kept) == "PENDING"

    asyncio.run(body())


def test_what_others_keep_in_the_bucket_under_other_names_does_not_stop_the_audit(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        settings = _settings(nats, tmp_path)
        async with open_platform(settings, name="gone") as platform:
            run_id = (await submitter(platform, settings).submit(Submission(flow_name="any"), USER))["run_id"]
            bucket = Bucket(platform.connection, "pyoco_runs")
            stranger = {"run_id": "not.a.run", "status": "PENDING", "submitted_at": 4e9, "updated_at": 4e9}
            await bucket.put("not.a.run", msgspec.json.encode(stranger), after=0)
            async with gateway(nats, tmp_path / "1") as services:
                await services.run_log.retract(run_id, USER)  # and its snapshot stays

                async def is_hidden() -> bool:
                    return await status(services, run_id) is None

                await eventually(is_hidden)

    options = sweeping.ReconcilerOptions
    impatient = {"audit_sec": 0.0, "snapshot_sec": 1e9}
    monkeypatch.setattr(
        "pyoco_server.bootstrap.gateway.ReconcilerOptions", lambda **given: options(**given, **impatient)
    )
    asyncio.run(body())
