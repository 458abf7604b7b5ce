"""Many jobs in flight are read in pages if the stream allows direct access."""

import asyncio

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.stream_reader import PAGE_MESSAGES
from pyoco_server.adapters.jetstream.stores.in_flight_jobs import JetStreamInFlightJobs
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from tests.adapters.conftest import JetStream

JOBS = PAGE_MESSAGES + 20


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "no direct access"])
def test_look_finds_all_jobs_in_flight_with_few_requests(jetstream: JetStream, *, direct: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        names = msgspec.structs.replace(names, ack_wait_sec=60.0, max_ack_pending=2 * JOBS)
        if not direct:
            config = (await connection.js.stream_info(names.work_stream)).config
            config.allow_direct = False
            await connection.js.update_stream(config)
        queue, in_flight = JetStreamWorkQueue(connection, names), JetStreamInFlightJobs(connection, names)
        await asyncio.gather(*(queue.publish("cpu", b"%d" % n, dedup_id=f"{n}") for n in range(JOBS + 5)))
        got = [await queue.pull("cpu", timeout_sec=5) for _ in range(JOBS)]
        delivered = [delivery.body for delivery in got if delivery is not None]
        assert len(delivered) == JOBS
        before = connection.nc.stats["out_msgs"]
        assert [job.body for job in await in_flight.look(["cpu"])] == delivered
        requests = connection.nc.stats["out_msgs"] - before
        assert requests < 10 if direct else JOBS <= requests < JOBS + 20

    jetstream.run(body)
