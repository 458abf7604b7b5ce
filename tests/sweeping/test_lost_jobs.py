"""A queue that lost jobs it had confirmed, as a server does that crashes before they are on disk."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from pyoco_server.app.jobs import decode_job
from pyoco_server.app.submitting import Submission
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.bootstrap.platform import Platform, open_platform
from pyoco_server.core import Actor, ActorKind
from pyoco_server.gateway.services import Services
from tests.adapters.nats_server import NatsServer
from tests.gateway.stand import eventually, settings_for

USER = Actor(ActorKind.USER, "ann")


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.kill()


async def jobs(platform: Platform) -> Counter[str]:
    """How many jobs each run has in the queue."""
    js = platform.connection.js
    state = (await js.stream_info("PYOCO_WORK")).state
    found: Counter[str] = Counter()
    for sequence in range(state.first_seq, state.last_seq + 1):
        with contextlib.suppress(NotFoundError):
            message = await js.get_msg("PYOCO_WORK", sequence)
            found[decode_job(message.data or b"").run_id] += 1
    return found


async def submitted(services: Services, count: int) -> list[str]:
    return [(await services.submitter.submit(Submission(flow_name="any"), USER))["run_id"] for _ in range(count)]


async def crash(nats: NatsServer) -> None:
    await asyncio.to_thread(nats.kill)
    await asyncio.to_thread(nats.start)


def test_jobs_lost_in_a_crash_are_queued_again_and_the_others_are_not(nats: NatsServer, tmp_path: Path) -> None:
    async def body() -> None:
        settings = settings_for(nats.url, tmp_path)
        async with open_platform(settings, name="test") as platform, open_gateway(settings) as services:
            runs = await submitted(services, 5)
            for lost in (2, 3):
                await platform.connection.js.delete_msg("PYOCO_WORK", lost)
            assert set(await jobs(platform)) == {runs[0], *runs[3:]}
            await crash(nats)

            async def all_there() -> bool:
                return platform.connection.is_connected and await jobs(platform) == Counter(runs)

            await eventually(all_there)

    asyncio.run(body())


def test_a_gateway_that_starts_looks_for_lost_jobs(nats: NatsServer, tmp_path: Path) -> None:
    async def body() -> None:
        settings = settings_for(nats.url, tmp_path)
        async with open_gateway(settings) as services:
            runs = await submitted(services, 3)
        async with open_platform(settings, name="test") as platform:
            await platform.connection.js.delete_msg("PYOCO_WORK", 2)
        await crash(nats)
        async with open_platform(settings, name="test") as platform, open_gateway(settings):

            async def all_there() -> bool:
                return await jobs(platform) == Counter(runs)

            await eventually(all_there)

    asyncio.run(body())
