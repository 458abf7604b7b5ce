"""The registry of workers in a KV bucket, and the liveness of worker processes.

Each process subscribes to a subject of its own, so the server reports at once if it does not exist any more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.kv import Bucket
from pyoco_server.adapters.jetstream.primitives.names import Names, kv_subject
from pyoco_server.adapters.jetstream.transport.error_translation import NATS_ERRORS, ChangedError, translated
from pyoco_server.app.ports import UnavailableError, Unsubscribe, WorkerRecord
from pyoco_server.app.ports.workers import Sign
from pyoco_server.errors import InvalidInputError
from pyoco_server.identifiers import KEY

_MOST_TRIES: Final = 100

_decoder = msgspec.json.Decoder(WorkerRecord)


class JetStreamWorkerRegistry:
    """One record for each worker, under its id."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.workers_bucket)

    async def update(
        self, worker_id: str, change: Callable[[WorkerRecord | None], WorkerRecord | None]
    ) -> WorkerRecord | None:
        """Store the changed record; call ``change`` again after each conflict with another writer."""
        key = KEY.checked(worker_id, "worker_id")
        for _ in range(_MOST_TRIES):
            stored = await self._bucket.look(key, newest=True)
            changed = change(_record(stored.data))
            if changed is None:
                return None
            data = msgspec.json.encode(changed)
            try:
                await self._bucket.put(key, data, after=stored.revision)
            except ChangedError:
                continue
            return _decoder.decode(data)
        raise UnavailableError(f"the record of '{worker_id}' changed {_MOST_TRIES} times while it was to be written")

    async def get(self, worker_id: str) -> WorkerRecord | None:
        """Return a worker's record; None if it is no JSON object, or the id is not valid."""
        try:
            key = KEY.checked(worker_id, "worker_id")
        except InvalidInputError:  # a snapshot of another program may contain any id
            return None
        return _record((await self._bucket.look(key)).data)

    async def all(self) -> Sequence[WorkerRecord]:
        """Return all records by worker id."""
        records = [_record(data) for data in (await self._bucket.all()).values()]
        return [record for record in records if record is not None]


def _record(data: bytes | None) -> WorkerRecord | None:
    try:
        return None if data is None else _decoder.decode(data)
    except msgspec.DecodeError:
        return None


ASK_SEC: Final = 1.0
"""A process that has not answered by then may be gone."""


class JetStreamLiveness:
    """Asks worker processes by NATS, and reports changes of the registry."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def outages(self) -> int:
        """The number of reconnects."""
        return self._connection.nc.stats["reconnects"]

    async def subscribe(self, on_record: Callable[[WorkerRecord], None]) -> Unsubscribe:
        """Call ``on_record`` with each written record; other messages are skipped."""

        def on_message(_subject: bytes, data: bytes, _headers: bytes | None, _reply: bytes) -> None:
            with contextlib.suppress(msgspec.DecodeError):
                on_record(_decoder.decode(data))

        with translated():
            subscription = await self._connection.nc.subscribe_inline(
                kv_subject(self._names.workers_bucket, "*"), on_message
            )

        def unsubscribe() -> None:
            task = asyncio.get_running_loop().create_task(self._connection.nc.unsubscribe_inline(subscription))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        return unsubscribe

    async def ask(self, instance_id: str) -> Sign:
        """Ask the process whether it lives; if the connection breaks meanwhile, the answer is unknown."""
        subject, timeout = self._names.alive_subject(instance_id), self._connection.request_timeout_sec
        try:
            async with asyncio.timeout(ASK_SEC):
                await self._connection.nc.request_raw(subject, b"", b"", timeout=timeout)
        except nats.errors.NoRespondersError:
            return Sign.DISCONNECTED
        except NATS_ERRORS:
            return Sign.UNKNOWN
        return Sign.ANSWERED


async def answer_as(instance_id: str, connection: Connection, names: Names) -> None:
    """Answer for this process from now on, as long as the connection exists."""

    async def answer(message: Msg) -> None:
        with contextlib.suppress(*NATS_ERRORS):
            await connection.nc.publish(message.reply)

    with contextlib.suppress(*NATS_ERRORS):  # the subscription is repeated on every reconnect
        await connection.nc.subscribe(names.alive_subject(instance_id), cb=answer)
