"""Provisioning creates missing streams and buckets, and does not change existing ones."""

import asyncio

import pytest
from nats.js.api import PersistMode, RetentionPolicy, StorageType, StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.durability.policy import StreamNotDurableError
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import ResourceMismatchError, provision, wanted_streams
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import TOKEN
from tests.adapters.conftest import JetStream
from tests.adapters.events import note
from tests.adapters.real_nats import NatsServer, names_for


async def configs(connection: Connection, names: Names) -> dict[str, StreamConfig]:
    """Return the configurations of the streams of these names, by name."""
    prefix = names.work_prefix.partition(".")[0] + "_"
    found = {str(info.config.name): info.config for info in await connection.js.streams_info()}
    return {name: config for name, config in found.items() if prefix in name}


@pytest.mark.spec("004 §付録E")
def test_names_are_those_of_the_specification() -> None:
    names = Names()
    assert (names.work_stream, names.work_subject("gpu")) == ("PYOCO_WORK", "pyoco.work.gpu")
    assert (names.dlq_stream, names.dlq_subject("gpu")) == ("PYOCO_DLQ", "pyoco.dlq.gpu")
    assert (names.runs_bucket, names.workers_bucket) == ("pyoco_runs", "pyoco_workers")
    assert (names.wheel_history_bucket, names.wheels_bucket) == ("pyoco_wheel_history", "pyoco_wheels")
    assert (names.ack_wait_sec, names.max_deliver, names.max_ack_pending) == (30.0, 20, 200)
    assert (names.dlq_max_age_sec, names.dlq_max_msgs, names.dlq_max_bytes) == (604800, 100000, 536870912)
    assert names.wheel_history_ttl_sec == 7776000
    assert names.auth_bucket == "pyoco_auth"


@pytest.mark.spec("004 REQ-0007")
def test_provision_creates_every_stream_with_its_settings(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        found = await configs(connection, names)
        prefix = names.work_prefix.partition(".")[0]
        assert len(found) == 10
        assert all(config.storage == StorageType.FILE for config in found.values())
        assert all(config.persist_mode is None for config in found.values()), "it could not be given replicas"
        events, work, dlq = found[names.events_stream], found[names.work_stream], found[names.dlq_stream]
        assert (events.subjects, events.allow_direct, events.deny_delete) == ([f"{prefix}.events.>"], True, False)
        assert events.republish is not None
        assert (events.republish.dest, events.republish.headers_only) == (f"{prefix}.live.>", True)
        snapshots = found[f"KV_{names.runs_bucket}"].republish
        assert snapshots is not None
        assert (snapshots.dest, bool(snapshots.headers_only)) == (f"{prefix}.live_snapshots.>", False)
        assert (work.subjects, work.retention) == ([f"{prefix}.work.>"], RetentionPolicy.WORK_QUEUE)
        assert (dlq.retention, dlq.max_age, dlq.max_msgs) == (RetentionPolicy.LIMITS, 604800, 100_000)
        assert dlq.max_bytes == 536_870_912
        for bucket in (names.runs_bucket, names.workers_bucket, names.auth_bucket, names.graphs_bucket):
            status = await (await connection.js.key_value(bucket)).status()
            assert (status.history, status.ttl) == (1, 0)
        history = await (await connection.js.key_value(names.wheel_history_bucket)).status()
        assert (history.history, history.ttl) == (1, 7776000)
        for bucket in (names.wheels_bucket, names.outputs_bucket):
            store = await connection.js.object_store(bucket)
            await store.put("x", b"y")
            assert (await store.get("x")).data == b"y"

    jetstream.run(body)


@pytest.mark.spec("004 REQ-0007")
@pytest.mark.parametrize(("max_age_sec", "window_sec"), [(60.0, 60.0), (120.0, 120.0), (3600.0, 120.0), (0.0, 120.0)])
def test_provision_creates_streams_with_short_retention(
    nats_server: NatsServer, max_age_sec: float, window_sec: float
) -> None:
    names = names_for("brief", dlq_max_age_sec=max_age_sec, wheel_history_ttl_sec=max_age_sec)

    async def body() -> None:
        async with await connect(nats_server.url, name="test") as connection:
            await provision(connection, names)
            found = await configs(connection, names)
            for stream in (names.dlq_stream, f"KV_{names.wheel_history_bucket}"):
                assert (found[stream].max_age, found[stream].duplicate_window) == (max_age_sec, window_sec)

    asyncio.run(body())
    JetStream(nats_server, names).forget()


def test_concurrent_provisioning_succeeds(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        connections = [await connect(own_nats_server.url, name="test") for _ in range(5)]
        for number in range(5):
            names = names_for(f"race{number}")
            await asyncio.gather(*(provision(connections[n % 5], names) for n in range(20)))
            assert len(await configs(connections[0], names)) == 10
        for connection in connections:
            await connection.close()

    asyncio.run(body())


def test_concurrent_provisioning_with_different_settings_succeeds(own_nats_server: NatsServer) -> None:
    async def body() -> None:
        connections = [await connect(own_nats_server.url, name="test") for _ in range(5)]
        settings = [names_for("race", dlq_max_msgs=100 + n, wheel_history_ttl_sec=1000.0 + n) for n in range(20)]
        await asyncio.gather(*(provision(connections[n % 5], names) for n, names in enumerate(settings)))
        dlq = (await configs(connections[0], settings[0]))["race_DLQ"]
        assert dlq.max_msgs in range(100, 120)
        for connection in connections:
            await connection.close()

    asyncio.run(body())


@pytest.mark.spec("004 REQ-0007")
def test_provision_does_not_change_existing_streams(jetstream: JetStream) -> None:
    async def body() -> None:
        names = jetstream.names
        async with await connect(jetstream.server.url, name="test") as connection:
            existing = StreamConfig(
                name=names.dlq_stream, subjects=[f"{names.dlq_prefix}.>", "other.*"], max_msgs=7, allow_direct=True
            )
            await connection.js.add_stream(existing)
            await connection.js.create_key_value(bucket=names.runs_bucket, history=5, ttl=60)
            before = await configs(connection, names)
            await provision(connection, names)
            await provision(connection, names)
            after = await configs(connection, names)
            assert {name: after[name] for name in before} == before
            assert len(after) == 10

    asyncio.run(body())


def test_provision_names_an_existing_stream_with_other_subjects(jetstream: JetStream) -> None:
    async def body() -> None:
        names = jetstream.names
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(StreamConfig(name=names.work_stream, subjects=[f"{names.work_prefix}.gpu"]))
            with pytest.raises(ResourceMismatchError, match=rf"'{names.work_stream}'.*work\.gpu.*work\.>") as caught:
                await provision(connection, names)
            assert caught.value.resource == names.work_stream

    asyncio.run(body())


def test_existing_streams_without_direct_access_are_usable(
    jetstream: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        names = jetstream.names
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(
                StreamConfig(name=names.events_stream, subjects=[f"{names.events_prefix}.>"])
            )
            await connection.js.create_key_value(bucket=names.graphs_bucket)
            await provision(connection, names)
            log, end = JetStreamEventLog(connection, names), 0
            assert await log.read("r") == ([], 0)
            for number in range(250):
                end = await log.append("r", [note(str(number))], after=end)
            assert await log.read("r") == ([note(str(number)) for number in range(250)], end)
            assert await log.read("r", after=end) == ([], end)
            graphs = JetStreamGraphRegistry(connection, names)
            assert await graphs.put("g", b"one")
            assert await graphs.get("g") == b"one"
            assert await graphs.get("h") is None

    asyncio.run(body())
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    actions = [getattr(record, "action", None) for record in warned]
    assert sorted(map(str, actions)) == ["stream_without_direct_access"] * 2 + ["stream_without_republish"]


@pytest.mark.parametrize("number", range(10))
def test_streams_that_confirm_before_they_write_are_refused(jetstream: JetStream, number: int) -> None:
    async def body() -> None:
        names = jetstream.names
        wanted = list(wanted_streams(names))[number]
        wanted.persist_mode = PersistMode.ASYNC
        wanted.allow_msg_ttl = None
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(wanted)
            with pytest.raises(StreamNotDurableError, match=f"'{wanted.name}' has persist_mode 'async'") as caught:
                await provision(connection, names)
            assert caught.value.err_id == "ERR-PYOCO-0125"
            assert (await connection.js.stream_info(str(wanted.name))).config.persist_mode == "async"

    asyncio.run(body())


def test_streams_kept_in_memory_are_reported(jetstream: JetStream, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        names = jetstream.names
        [events, *_] = wanted_streams(names)
        events.storage = StorageType.MEMORY
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(events)
            await provision(connection, names)

    asyncio.run(body())
    [warning] = [record for record in caplog.records if record.__dict__.get("action") == "stream_in_memory"]
    assert warning.__dict__["resource"] == jetstream.names.events_stream


def test_provision_names_subjects_of_another_stream(jetstream: JetStream) -> None:
    async def body() -> None:
        names = jetstream.names
        prefix = names.work_prefix.partition(".")[0]
        async with await connect(jetstream.server.url, name="test") as connection:
            await connection.js.add_stream(
                StreamConfig(name=f"{prefix}_FOREIGN", subjects=[f"{names.work_prefix}.gpu"])
            )
            with pytest.raises(ResourceMismatchError, match=rf"'{names.work_stream}'.*another stream") as caught:
                await provision(connection, names)
            assert caught.value.resource == names.work_stream

    asyncio.run(body())


@pytest.mark.spec("004 REQ-0007", "004 ERR-PYOCO-0003")
def test_provision_reports_a_server_without_jetstream(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def body() -> None:
        async with await connect(server.url, name="test") as connection:
            with pytest.raises(UnavailableError, match="JetStream"):
                await provision(connection, Names())

    with NatsServer(tmp_path_factory.mktemp("nats"), jetstream=False) as server:
        asyncio.run(body())


@pytest.mark.parametrize("value", ["a", "A-b_9", "x" * 128])
def test_valid_token_is_unchanged(value: str) -> None:
    assert TOKEN.checked(value, "tag") == value


@pytest.mark.spec("004 §付録H")
@pytest.mark.parametrize("value", ["", "a.b", "*", ">", "a b", "a\n", "\r\nPUB x 0", "実行", "x" * 129, "a/b", "$JS"])
def test_token_that_would_reach_into_other_subjects_is_refused(value: str) -> None:
    names = Names()
    for refuse_tag in (names.work_subject, names.dlq_subject):
        with pytest.raises(InvalidInputError, match=r"tag: .*only letters, digits, '_' and '-'"):
            refuse_tag(value)
    for refuse_run_id in (names.events_subject, names.control_subject):
        with pytest.raises(InvalidInputError, match=r"run_id: .* cannot be used"):
            refuse_run_id(value)
