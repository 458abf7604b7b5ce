"""Very many jobs in workers' hands are read by pages, where the stream can be read so."""

import asyncio

import msgspec
import pytest

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.held_jobs import JetStreamHeldJobs
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.stream_reader import PAGE_MESSAGES
from pyoco_server.adapters.jetstream.work_queue import JetStreamWorkQueue
from tests.adapters.conftest import JetStream

JOBS = PAGE_MESSAGES + 20


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "no direct access"])
def test_all_that_is_out_is_found_with_few_questions(jetstream: JetStream, *, direct: bool) -> None:
    async def body(connection: Connection, names: Names) -> None:
        names = msgspec.structs.replace(names, ack_wait_sec=60.0, max_ack_pending=2 * JOBS)
        if not direct:
            config = (await connection.js.stream_info(names.work_stream)).config
            config.allow_direct = False
            await connection.js.update_stream(config)
        queue, held = JetStreamWorkQueue(connection, names), JetStreamHeldJobs(connection, names)
        await asyncio.gather(*(queue.publish("cpu", b"%d" % n, dedup_id=f"{n}") for n in range(JOBS + 5)))
        got = [await queue.pull("cpu", timeout_sec=5) for _ in range(JOBS)]
        out = [delivery.body for delivery in got if delivery is not None]
        assert len(out) == JOBS
        before = connection.nc.stats["out_msgs"]
        assert [job.body for job in await held.look(["cpu"])] == out
        asked = connection.nc.stats["out_msgs"] - before
        assert asked < 10 if direct else JOBS <= asked < JOBS + 20

    jetstream.run(body)
