"""Creates missing streams and buckets, leaves existing ones as they are, and sets the number of replicas."""

import logging
from collections.abc import Iterator
from typing import Final

import msgspec
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RePublish, RetentionPolicy, StorageType, StreamConfig

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.durability.policy import check_stream
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_stream, kv_subject, object_stream
from pyoco_server.adapters.jetstream.transport.error_translation import MissingError, RefusedError, translated
from pyoco_server.errors import PyocoServerError

_log = logging.getLogger(__name__)

OLDEST_SERVER: Final = (2, 11)
"""The first release that answers a request for many messages at once."""

_PATIENCE_SEC: Final = 10.0
_DUPLICATE_WINDOW_SEC: Final = 120.0
_EVENTS_DUPLICATE_WINDOW_SEC: Final = 10.0
_NAME_IN_USE: Final = 10058
_SUBJECTS_OVERLAP: Final = 10065


class ResourceMismatchError(PyocoServerError):
    """A stream, bucket or server cannot be used as it is; nothing was changed."""

    def __init__(self, resource: str, problem: str) -> None:
        super().__init__(f"'{resource}' cannot be used: {problem}")
        self.resource = resource


async def provision(connection: Connection, names: Names) -> Names:
    """Create what is missing, and return the names with the actual replicas; processes may do so concurrently."""
    version = connection.nc.connected_server_version
    if (version.major, version.minor) < OLDEST_SERVER:
        needed = ".".join(map(str, OLDEST_SERVER))
        raise ResourceMismatchError("nats-server", f"it is {version}, at least {needed} is needed")
    js = connection.nc.jetstream(timeout=max(_PATIENCE_SEC, connection.request_timeout_sec))
    replicas = names.replicas
    for wanted in wanted_streams(names):
        found = await _existing_or_new(js, wanted)
        check_stream(found)
        _check(found, wanted)
        if wanted.name == kv_stream(names.workers_bucket) and found.max_age:
            _log.warning(
                "the bucket '%s' forgets a worker %g s after its last report, because 0.5.1 created it so; "
                "'pyoco-server migrate --apply' removes the limit",
                names.workers_bucket,
                found.max_age,
                extra={"action": "workers_forgotten", "resource": names.workers_bucket},
            )
        replicas = max(replicas, found.num_replicas or 1)
    await connection.syncs.sync_descriptions(stream_names(names))
    if connection.nc.is_in_cluster and replicas == 1:
        _log.warning(
            "NATS is a cluster, but one node alone holds everything: 'pyoco-server replicas 3' lets three of them",
            extra={"action": "streams_not_replicated"},
        )
    return msgspec.structs.replace(names, replicas=replicas)


def stream_names(names: Names) -> list[str]:
    """Return the names of all streams, also those behind buckets."""
    return [str(wanted.name) for wanted in wanted_streams(names)]


async def _existing_or_new(js: JetStreamContext, wanted: StreamConfig) -> StreamConfig:
    """Look before creating: a user who may use a stream may not always create one."""
    name = str(wanted.name)
    try:
        with translated():
            return (await js.stream_info(name)).config
    except MissingError:
        pass
    try:
        with translated():
            return (await js.add_stream(wanted)).config
    except RefusedError as error:
        if error.err_code == _NAME_IN_USE:  # another process created it first, with its own settings
            with translated():
                return (await js.stream_info(name)).config
        if error.err_code == _SUBJECTS_OVERLAP:
            subjects = ", ".join(wanted.subjects or ())
            raise ResourceMismatchError(name, f"another stream has its subjects ({subjects}) already") from error
        raise


def _check(found: StreamConfig, wanted: StreamConfig) -> None:
    """Refuse only settings that cannot work; all others are up to the operator."""
    name, subjects = str(wanted.name), found.subjects or []
    for subject in wanted.subjects or ():
        if not any(_covers(pattern, subject) for pattern in subjects):
            there = ", ".join(subjects) or "none"
            raise ResourceMismatchError(
                name, f"it exists with the subjects {there}, but {subject} is needed; rename one or change its subjects"
            )
    if wanted.allow_direct and not found.allow_direct:
        _log.warning(
            "the stream '%s' exists without direct access, so reading it is slow; 'pyoco-server migrate --apply' "
            "sets allow_direct on it",
            name,
            extra={"action": "stream_without_direct_access", "resource": name},
        )
    if wanted.republish is not None and found.republish is None:
        _log.warning(
            "the stream '%s' exists without republish, so gateways see changes later, and a cancel of another program "
            "that is overwritten at once they do not see; 'pyoco-server migrate --apply' sets republish on it",
            name,
            extra={"action": "stream_without_republish", "resource": name},
        )


def _covers(pattern: str, subject: str) -> bool:
    """Return whether everything that matches ``subject`` matches ``pattern``, too."""
    general, special = pattern.split("."), subject.split(".")
    for place, part in enumerate(general):
        if part == ">":
            return len(special) > place
        if place >= len(special) or special[place] == ">" or part not in {"*", special[place]}:
            return False
    return len(general) == len(special)


def wanted_streams(names: Names) -> Iterator[StreamConfig]:
    """Yield the settings with which each stream is created."""
    # A full stream refuses new messages: the log and the queue never drop old ones silently.
    yield _stream(
        names,
        name=names.events_stream,
        subjects=[f"{names.events_prefix}.>"],
        discard=DiscardPolicy.NEW,
        allow_direct=True,
        duplicate_window=_EVENTS_DUPLICATE_WINDOW_SEC,
        republish=RePublish(src=f"{names.events_prefix}.>", dest=f"{names.live_prefix}.>", headers_only=True),
    )
    yield _stream(
        names,
        name=names.work_stream,
        subjects=[f"{names.work_prefix}.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        allow_direct=True,
        duplicate_window=_DUPLICATE_WINDOW_SEC,
    )
    yield _stream(
        names,
        name=names.dlq_stream,
        subjects=[f"{names.dlq_prefix}.>"],
        max_age=names.dlq_max_age_sec,
        max_msgs=names.dlq_max_msgs,
        max_bytes=names.dlq_max_bytes,
        allow_direct=True,
        duplicate_window=_window_within(names.dlq_max_age_sec),
    )
    yield _bucket(
        names,
        names.runs_bucket,
        republish=RePublish(src=kv_subject(names.runs_bucket, ">"), dest=f"{names.live_snapshots_prefix}.>"),
    )
    yield _bucket(names, names.workers_bucket)
    yield _bucket(names, names.auth_bucket)
    yield _bucket(names, names.wheel_history_bucket, ttl_sec=names.wheel_history_ttl_sec)
    yield _bucket(names, names.graphs_bucket)
    yield _object_store(names, names.wheels_bucket)
    yield _object_store(names, names.outputs_bucket)


def _window_within(max_age_sec: float | None) -> float:
    """Return how long the server detects duplicates; it refuses more than the maximum age (0 and None: no limit)."""
    return min(_DUPLICATE_WINDOW_SEC, max_age_sec or _DUPLICATE_WINDOW_SEC)


def _stream(names: Names, **settings: object) -> StreamConfig:
    defaults = {
        "retention": RetentionPolicy.LIMITS,
        "storage": StorageType.FILE,
        "num_replicas": names.replicas,
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
    }
    return StreamConfig(**{**defaults, **settings})  # type: ignore[arg-type]  # its fields, by name


def _bucket(
    names: Names,
    bucket: str,
    *,
    ttl_sec: float | None = None,
    republish: RePublish | None = None,
) -> StreamConfig:
    """Return the stream of a KV bucket in the layout of every NATS client, with one value for each key."""
    return _stream(
        names,
        name=kv_stream(bucket),
        subjects=[f"$KV.{bucket}.>"],
        max_msgs_per_subject=1,
        max_age=ttl_sec,
        duplicate_window=_window_within(ttl_sec),
        discard=DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        allow_direct=True,
        deny_delete=True,
        republish=republish,
    )


def _object_store(names: Names, bucket: str) -> StreamConfig:
    """Return the stream of an object store in the layout of every NATS client: chunks and metadata."""
    return _stream(
        names,
        name=object_stream(bucket),
        subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        duplicate_window=_DUPLICATE_WINDOW_SEC,
        discard=DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        allow_direct=True,
    )


class Replicated(msgspec.Struct, frozen=True):
    """A stream, and its numbers of replicas before and after a change."""

    name: str
    before: int
    now: int


async def set_replicas(connection: Connection, names: Names, count: int) -> list[Replicated]:
    """Set the replicas of every stream and bucket of the platform; ResourceMismatchError if the server refuses."""
    done = []
    for name in stream_names(names):
        with translated():
            config = (await connection.js.stream_info(name)).config
        before = config.num_replicas or 1
        if before != count:
            config.num_replicas = count
            await change_stream(connection, config)
        done.append(Replicated(name, before, count))
    return done


async def change_stream(connection: Connection, config: StreamConfig) -> None:
    """Give a stream these settings; ResourceMismatchError if the server refuses."""
    try:
        with translated():
            await connection.js.update_stream(config)
    except RefusedError as error:
        raise ResourceMismatchError(str(config.name), error.description or str(error)) from error
