"""One of three nodes is killed under load and started again: no acknowledged run is lost."""

import asyncio
import random
import sys
import time
import uuid
from pathlib import Path

import pytest

from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import stream_names
from pyoco_server.bootstrap import names_of
from pyoco_server.client import ApiError, AsyncClient, GatewayUnreachableError
from tests.cluster.nodes import ask, leader_of, until_replicated
from tests.cluster.stand import three_nodes
from tests.kill.checking import check_queue_is_empty, check_runs

FLOWS = ("chain", "fan", "retried", "rested", "stored", "ask")


class Load:
    """Submits runs one after the other, and records the accepted ones."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self.accepted: list[str] = []
        self.refused = 0
        self._url = url
        self._chance = chance
        self._over = asyncio.Event()

    async def run(self) -> None:
        async with AsyncClient(self._url, retries=0, timeout=15) as client:
            while not self._over.is_set():
                try:
                    params = {"run": uuid.uuid4().hex}
                    self.accepted.append(await client.submit(self._chance.choice(FLOWS), params))
                except (ApiError, GatewayUnreachableError):
                    self.refused += 1
                await asyncio.sleep(0.02)

    def end(self) -> None:
        self._over.set()

    async def more(self, count: int, within: float = 20.0) -> None:
        """Wait until ``count`` more runs have been accepted."""
        goal, deadline = len(self.accepted) + count, time.monotonic() + within
        while len(self.accepted) < goal:
            assert time.monotonic() < deadline, f"{len(self.accepted)} runs accepted, {goal} expected"
            await asyncio.sleep(0.02)


@pytest.mark.timeout(120)
def test_no_acknowledged_run_is_lost_when_the_leader_of_the_log_is_killed(tmp_path: Path) -> None:
    asyncio.run(_leader_killed(tmp_path))


async def _leader_killed(home: Path) -> None:
    async with three_nodes(home) as (cluster, crew):
        js = crew.platform.connection
        streams = stream_names(Names())
        stored = (await ask(js, "STREAM.NAMES"))["streams"]
        assert sorted(streams) == sorted(stored), "docs/production.md names all streams"
        assert crew.platform.log._from_leader, "reads must not come from a replica that lags behind"
        await crew.start_gateway("gateway").ready()
        for _ in range(2):
            await crew.start_worker().ready()
        await until_replicated(js, streams)

        events = names_of(crew.settings).events_stream
        load = Load(crew.gateways[0].url, random.Random(5))
        loading = [asyncio.create_task(load.run()) for _ in range(4)]
        await load.more(30)
        node = cluster.node(await leader_of(js, events))
        node.kill()
        killed_at = time.monotonic()
        await load.more(1)
        gap = time.monotonic() - killed_at
        await load.more(30)  # two nodes are enough
        node.start()
        await load.more(20)
        load.end()
        await asyncio.gather(*loading)

        waiting = [run for run in load.accepted if (await crew.snapshot(run))["flow_name"] == "ask"]
        resuming = asyncio.create_task(crew.resume_waits(waiting, random.Random(6)))
        await crew.until_all_ended(load.accepted, within=40)
        await resuming
        await check_queue_is_empty(crew)
        await until_replicated(js, streams)
        logs = await check_runs(crew, load.accepted)
        assert len(logs) == len(load.accepted)
        sys.stdout.write(f"{len(logs)} runs, {load.refused} refused, accepted again {gap:.1f} s after the kill\n")
