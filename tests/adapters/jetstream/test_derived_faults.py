"""Snapshots, workers and dead letters with lost answers, and with data of other programs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject
from pyoco_server.adapters.jetstream.stores.dead_letters import JetStreamDeadLetters
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.workers import JetStreamWorkerRegistry
from pyoco_server.app.ports import StoredSnapshot, TooLargeError, UnavailableError
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import JetStream
from tests.adapters.proxy import Proxy, proxy_to
from tests.waiting import wait_until

SHORT_SEC = 0.3


@asynccontextmanager
async def behind_a_bad_network(jetstream: JetStream) -> AsyncIterator[tuple[Proxy, Connection]]:
    async with (
        proxy_to(jetstream.server.port) as proxy,
        await connect(proxy.url, name="test", request_timeout_sec=SHORT_SEC) as connection,
    ):
        yield proxy, connection


def at(position: int, **fields: object) -> bytes:
    return json.dumps({"log_position": position, **fields}).encode()


# --- Snapshots -------------------------------------------------------------------------------------------------------


def test_snapshot_write_with_a_lost_answer_is_unknown_and_was_stored(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        good = JetStreamSnapshots(connection, names)
        async with behind_a_bad_network(jetstream) as (proxy, bad):
            snapshots = JetStreamSnapshots(bad, names)
            first = await snapshots.write("r", at(1), position=1, revision=0)
            [link] = proxy.links
            proxy.swallows_answers = True
            sent = link.sent
            writing = asyncio.create_task(snapshots.write("r", at(2), position=2, revision=first))
            await wait_until(lambda: link.sent >= sent + 2)  # the write, and then the read that resolves its outcome
            proxy.swallows_answers = False
            proxy.links[-1].client.close()
            with pytest.raises(UnavailableError):
                await writing
            await wait_until(lambda: bad.is_connected)
            assert await good.read("r") == StoredSnapshot("r", at(2), 2, 2)
            assert await snapshots.write("r", at(3), position=3, revision=first) == 3

    jetstream.run(body)


@pytest.mark.parametrize(("meanwhile", "expected"), [(None, 2), (9, None)])
def test_snapshot_write_with_a_lost_answer_reads_its_outcome(
    jetstream: JetStream, meanwhile: int | None, expected: int | None
) -> None:
    async def body(connection: Connection, names: Names) -> int | None:
        good = JetStreamSnapshots(connection, names)
        async with behind_a_bad_network(jetstream) as (proxy, bad):
            snapshots = JetStreamSnapshots(bad, names)
            first = await snapshots.write("r", at(1), position=1, revision=0)
            [link] = proxy.links
            sent = link.sent
            proxy.swallows_answers = True
            writing = asyncio.create_task(snapshots.write("r", at(2), position=2, revision=first))
            await wait_until(lambda: link.sent > sent)
            await _stored(good, at(2))
            if meanwhile is not None:
                await good.write("r", at(meanwhile), position=meanwhile)
            proxy.swallows_answers = False
            return await writing

    assert jetstream.run(body) == expected


async def _stored(snapshots: JetStreamSnapshots, body: bytes) -> None:
    async with asyncio.timeout(2):
        while True:
            found = await snapshots.read("r")
            if found is not None and found.body == body:
                return


def test_every_operation_is_unavailable_without_answers(jetstream: JetStream) -> None:
    async def body(_connection: Connection, names: Names) -> None:
        async with behind_a_bad_network(jetstream) as (proxy, bad):
            proxy.swallows_answers = True
            snapshots, workers = JetStreamSnapshots(bad, names), JetStreamWorkerRegistry(bad, names)
            letters = JetStreamDeadLetters(bad, names)
            attempts = [
                snapshots.write("r", at(1), position=1, revision=0),
                snapshots.write("r", at(1), position=1),
                snapshots.read("r"),
                snapshots.delete("r"),
                workers.update("w", lambda _current: {"worker_id": "w"}),
                workers.get("w"),
                workers.all(),
                letters.publish("cpu", {"reason": "invalid_job"}),
                letters.count(),
                letters.newest(3),
            ]
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [UnavailableError] * len(attempts)

    jetstream.run(body)


def test_operations_are_unavailable_without_their_streams(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        for bucket in (names.runs_bucket, names.workers_bucket):
            await connection.js.delete_stream(kv_stream(bucket))
        await connection.js.delete_stream(names.dlq_stream)
        with pytest.raises(UnavailableError):
            await JetStreamSnapshots(connection, names).write("r", at(1), position=1)
        with pytest.raises(UnavailableError):
            await JetStreamSnapshots(connection, names).read("r")
        with pytest.raises(UnavailableError):
            await JetStreamWorkerRegistry(connection, names).update("w", lambda _current: {"worker_id": "w"})
        with pytest.raises(UnavailableError):
            await JetStreamDeadLetters(connection, names).count()

    jetstream.run(body)


def test_snapshot_larger_than_the_limit_of_its_bucket_is_refused(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        found = await connection.js.stream_info(kv_stream(names.runs_bucket))
        await connection.js.update_stream(found.config.evolve(max_msg_size=1_000))
        snapshots = JetStreamSnapshots(connection, names)
        with pytest.raises(TooLargeError):
            await snapshots.write("r", at(1, filler="x" * 1_000), position=1)
        assert await snapshots.read("r") is None

    jetstream.run(body)


@pytest.mark.parametrize("key", ["", "a.b", "*", ">", "a b", "ä"])
def test_id_that_is_no_single_token_is_refused(jetstream: JetStream, key: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        snapshots = JetStreamSnapshots(connection, names)
        attempts = [
            snapshots.write(key, at(1), position=1),
            snapshots.read(key),
            snapshots.delete(key),
            JetStreamDeadLetters(connection, names).publish(key, {}),
        ]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [InvalidInputError] * len(attempts)

    jetstream.run(body)


@pytest.mark.parametrize("worker_id", ["", "*", ">", "a.*", "a b", "ä"])
def test_invalid_worker_id_is_refused_and_absent(jetstream: JetStream, worker_id: str) -> None:
    async def body(connection: Connection, names: Names) -> None:
        workers = JetStreamWorkerRegistry(connection, names)
        with pytest.raises(InvalidInputError):
            await workers.update(worker_id, lambda _current: {"worker_id": worker_id})
        assert await workers.get(worker_id) is None
        assert not await workers.all()

    jetstream.run(body)


# --- Workers and dead letters ----------------------------------------------------------------------------------------


def test_removed_and_undecodable_workers_are_left_out(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        workers = JetStreamWorkerRegistry(connection, names)
        for worker_id in ("a", "b", "c", "d"):
            await workers.update(worker_id, lambda _current, worker_id=worker_id: {"worker_id": worker_id})  # type: ignore[misc]
        bucket = await connection.js.key_value(names.workers_bucket)
        await bucket.delete("a")
        await bucket.purge("b")
        await connection.js.publish(kv_subject(names.workers_bucket, "c"), b"no record")
        assert [record["worker_id"] for record in await workers.all()] == ["d"]
        assert [await workers.get(worker_id) for worker_id in ("a", "b", "c")] == [None, None, None]
        for worker_id in ("a", "b", "c"):
            assert await workers.update(worker_id, lambda current: {"was": current}) == {"was": None}
        assert len(await workers.all()) == 4

    jetstream.run(body)


def test_dead_letters_are_found_across_gaps(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        letters = JetStreamDeadLetters(connection, names)
        for number in range(1, 21):
            await letters.publish("cpu", {"number": number})
        await connection.js.publish(names.dlq_subject("gpu"), b"no entry")
        for sequence in (*range(6, 16), 18, 20):
            await connection.js.delete_msg(names.dlq_stream, sequence)
        assert [letter.entry["number"] for letter in await letters.newest(3)] == [19, 17]  # one of three is no entry
        assert [letter.entry["number"] for letter in await letters.newest(6)] == [19, 17, 16, 5, 4]
        assert [letter.sequence for letter in await letters.newest(100)] == [19, 17, 16, 5, 4, 3, 2, 1]
        assert await letters.count() == 9

    jetstream.run(body)


def test_dead_letter_is_stored_as_the_json_of_its_entry(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        letters = JetStreamDeadLetters(connection, names)
        await letters.publish("cpu", {"timestamp": 1.25, "reason": "flow_not_found", "error": None})
        stored = await connection.js.get_msg(names.dlq_stream, seq=1)
        assert stored.subject == names.dlq_subject("cpu")
        assert stored.data == b'{"timestamp":1.25,"reason":"flow_not_found","error":null}'
        with pytest.raises(TooLargeError):
            await letters.publish("cpu", {"error": "x" * connection.max_payload})
        assert await letters.count() == 1

    jetstream.run(body)
