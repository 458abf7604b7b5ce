"""Detection of dead workers when the worker and the gateway are connected to different nodes."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import stream_names
from pyoco_server.app.ports import UnavailableError
from tests.cluster.nodes import Cluster, until_replicated
from tests.cluster.stand import three_nodes
from tests.kill.crew import Crew
from tests.kill.gone import ACK_WAIT, SOONER_SEC, is_known, with_runs, workers_of
from tests.kill.processes import Process, eventually

R = TypeVar("R")


@pytest.mark.timeout(120)
def test_worker_survives_the_death_of_its_node_and_is_reported_gone_when_it_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with three_nodes(tmp_path, **ACK_WAIT, PYOCO_WORKER_GONE_SEC="3") as (cluster, crew):
            await _node_dies_and_then_a_worker(cluster, crew)

    asyncio.run(body())


async def _node_dies_and_then_a_worker(cluster: Cluster, crew: Crew) -> None:
    gateways_node, others_node, _ = cluster.nodes
    gateway = crew.start_gateway("gateway", PYOCO_NATS_URL=gateways_node.address.url)
    far = crew.start_worker("far", url=others_node.address.url)
    await gateway.ready()
    await far.ready()
    [run_id] = await with_runs(crew, ["slow"])
    await is_known(crew, "far")
    await crew.start_worker("near", url=gateways_node.address.url).ready()
    await until_replicated(crew.platform.connection, stream_names(Names()))

    others_node.kill()  # the worker connects to another node, and the streams may have to agree on new leaders
    await eventually(lambda: _has_logged(far, "nats_reconnected"), "the worker is back")
    back_at = time.time()
    await crew.until_all([run_id], lambda found: found["heartbeat_at"] > back_at)
    await _when_it_answers(lambda: is_known(crew, "far"))
    assert await _when_it_answers(lambda: workers_of(crew, run_id)) == ["far"]
    assert not await _has_logged(gateway, "worker_gone")

    far.kill()
    await crew.until_all_ended([run_id], within=SOONER_SEC)
    assert await _when_it_answers(lambda: workers_of(crew, run_id)) == ["far", "near"]
    assert await _has_logged(gateway, "worker_gone")


async def _has_logged(process: Process, action: str) -> bool:
    return process.said(action) > 0


async def _when_it_answers(ask: Callable[[], Awaitable[R]]) -> R:
    """Ask again while a stream has no leader."""
    answers: list[R] = []

    async def is_answered() -> bool:
        with contextlib.suppress(UnavailableError):
            answers.append(await ask())
        return bool(answers)

    await eventually(is_answered, "NATS answers")
    return answers[0]
