"""Assembles the platform: the stores on one NATS connection, and the use cases on top of them."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.durability.policy import DurabilityPolicy, policy_of_connected
from pyoco_server.adapters.jetstream.durability.server_name import leaves_syncing
from pyoco_server.adapters.jetstream.primitives.adopted_settings import Difference, adopt, differences
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.provisioning import Replicated, provision, set_replicas
from pyoco_server.adapters.jetstream.stores.dead_letters import JetStreamDeadLetters
from pyoco_server.adapters.jetstream.stores.event_log import JetStreamEventLog
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.jetstream.stores.keys import JetStreamKeyStore
from pyoco_server.adapters.jetstream.stores.outputs import JetStreamOutputStore
from pyoco_server.adapters.jetstream.stores.snapshots import JetStreamSnapshots
from pyoco_server.adapters.jetstream.stores.wheels import JetStreamWheelHistory, JetStreamWheelRegistry
from pyoco_server.adapters.jetstream.stores.work_queue import JetStreamWorkQueue
from pyoco_server.adapters.jetstream.stores.workers import JetStreamWorkerRegistry
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports.keys import StoredKey
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.runs.submit import Submitter
from pyoco_server.app.wheels.archive import WheelLimits
from pyoco_server.app.wheels.service import WheelService
from pyoco_server.settings import Settings


class Platform(NamedTuple):
    """All stores, on one connection."""

    connection: Connection
    log: JetStreamEventLog
    queue: JetStreamWorkQueue
    snapshots: JetStreamSnapshots
    workers: JetStreamWorkerRegistry
    dead_letters: JetStreamDeadLetters
    outputs: JetStreamOutputStore
    graphs: JetStreamGraphRegistry
    wheels: JetStreamWheelRegistry
    wheel_history: JetStreamWheelHistory
    durability: DurabilityPolicy
    """Which side syncs acknowledged data to the disk, as far as this connection shows it."""


def names_of(settings: Settings) -> Names:
    """Return the names and limits of streams, subjects and buckets from the settings."""
    names, consumer, letters = settings.names, settings.consumer, settings.dead_letters
    return Names(
        work_stream=names.work_stream,
        work_prefix=names.work_subject_prefix,
        dlq_stream=names.dlq_stream,
        dlq_prefix=names.dlq_subject_prefix,
        dlq_max_age_sec=letters.max_age_sec,
        dlq_max_msgs=letters.max_msgs,
        dlq_max_bytes=letters.max_bytes,
        events_stream=names.events_stream,
        events_prefix=names.events_subject_prefix,
        live_prefix=names.live_subject_prefix,
        control_prefix=names.control_subject_prefix,
        alive_prefix=names.alive_subject_prefix,
        runs_bucket=names.runs_kv_bucket,
        workers_bucket=names.workers_kv_bucket,
        auth_bucket=names.auth_kv_bucket,
        wheel_history_bucket=names.wheel_history_kv_bucket,
        wheel_history_ttl_sec=settings.wheels.history_ttl_sec,
        graphs_bucket=names.graphs_kv_bucket,
        wheels_bucket=names.wheels_object_bucket,
        outputs_bucket=names.outputs_object_bucket,
        ack_wait_sec=consumer.ack_wait_sec,
        max_deliver=consumer.max_deliver,
        max_ack_pending=consumer.max_ack_pending,
    )


@contextlib.asynccontextmanager
async def open_platform(settings: Settings, *, name: str) -> AsyncIterator[Platform]:
    """Connect and create the streams and buckets that are missing; UnavailableError if NATS does not answer."""
    nats, names = settings.nats, names_of(settings)
    connection = await connect(
        ",".join(nats.urls),
        name=name,
        user_credentials=str(nats.creds_file) if nats.creds_file else None,
        nkeys_seed=nats.nkey_seed.get_secret_value() if nats.nkey_seed else None,
        token=nats.token.get_secret_value() if nats.token else None,
        tls_ca=nats.tls_ca_file,
        inbox_prefix=nats.inbox_prefix,
        plain=nats.plain_client,
    )
    queue = JetStreamWorkQueue(connection, names)
    try:
        names = await provision(connection, names)
        yield Platform(
            connection,
            JetStreamEventLog(connection, names),
            queue,
            JetStreamSnapshots(connection, names),
            JetStreamWorkerRegistry(connection, names),
            JetStreamDeadLetters(connection, names),
            JetStreamOutputStore(connection, names),
            JetStreamGraphRegistry(connection, names),
            JetStreamWheelRegistry(connection, names),
            JetStreamWheelHistory(connection, names),
            _durability(connection, names),
        )
    finally:
        await queue.close()
        await connection.close()


def _durability(connection: Connection, names: Names) -> DurabilityPolicy:
    return policy_of_connected(
        leaves_syncing=leaves_syncing(connection.nc.server_name),
        version=str(connection.nc.connected_server_version),
        replicas=names.replicas,
    )


async def give_replicas(settings: Settings, count: int) -> list[Replicated]:
    """Set the number of replicas of every stream; UnavailableError if NATS does not answer."""
    async with open_platform(settings, name="pyoco-server replicas") as platform:
        return await set_replicas(platform.connection, names_of(settings), count)


def submitter(platform: Platform, settings: Settings) -> Submitter:
    """Return the use case that submits runs."""
    return Submitter(
        log=platform.log,
        snapshots=platform.snapshots,
        queue=platform.queue,
        clock=SystemClock(),
        new_id=uuid_maker(),
        max_snapshot_bytes=settings.storage.run_snapshot_max_bytes,
    )


def run_log_of(platform: Platform, settings: Settings) -> RunLog:
    """Return the use cases on logs of runs."""
    return RunLog(
        log=platform.log,
        snapshots=platform.snapshots,
        queue=platform.queue,
        clock=SystemClock(),
        new_id=uuid_maker(),
        max_snapshot_bytes=settings.storage.run_snapshot_max_bytes,
        fresh_sec=settings.heartbeat.fresh_sec,
    )


def wheel_service_of(platform: Platform, settings: Settings) -> WheelService:
    """Return the use cases on wheels."""
    wheels = settings.wheels
    return WheelService(
        registry=platform.wheels,
        history=platform.wheel_history,
        clock=SystemClock(),
        new_id=uuid_maker(),
        limits=WheelLimits(max_bytes=wheels.max_bytes, allow_startup_files=wheels.allow_startup_files),
        history_ttl_sec=wheels.history_ttl_sec,
    )


class Migration(NamedTuple):
    """What 0.5.1 left that an operator must act on: settings that differ, and API keys."""

    settings: Sequence[Difference]
    keys: Sequence[StoredKey]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return all(one.is_changed for one in self.settings) and all(key.defect is None for key in self.keys)


async def migrate(settings: Settings, *, change: bool) -> Migration:
    """Look at what is there, and ``change`` the settings that should be changed; nothing that is stored is touched.

    UnavailableError if NATS does not answer. A key that was revoked is left out.
    """
    async with open_platform(settings, name="pyoco-server migrate") as platform:
        names = names_of(settings)
        found = await (adopt if change else differences)(platform.connection, names)
        records = await JetStreamKeyStore(platform.connection, names).read()
        keys = [key for key in records.keys if key.slow is not None and key.revoked_at is None]
        return Migration(found, sorted(keys, key=lambda key: key.created_at))
