"""Whether worker processes are there: each listens on a subject of its own, and the server knows at once who does not.

A process that is killed loses its connection, and with it what it listens to; whoever asks then is told by the server
that nobody is there. A process that merely stands still goes on listening, and does not answer.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names, kv_subject
from pyoco_server.adapters.jetstream.translation import NATS_ERRORS, translated
from pyoco_server.app.ports import Unsubscribe, WorkerRecord
from pyoco_server.app.ports.liveness import Sign

ASK_SEC: Final = 1.0
"""Who has not answered by then may do so no more."""

_decoder = msgspec.json.Decoder(WorkerRecord)


class JetStreamLiveness:
    """Asks on NATS; of who there is it hears where workers write their entries."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def outages(self) -> int:
        """How often the connection came back."""
        return self._connection.nc.stats["reconnects"]

    async def subscribe(self, on_record: Callable[[WorkerRecord], None]) -> Unsubscribe:
        """Be told of what is written to the registry; what is no entry is left out."""

        def told(_subject: bytes, data: bytes, _headers: bytes | None, _reply: bytes) -> None:
            with contextlib.suppress(msgspec.DecodeError):
                on_record(_decoder.decode(data))

        with translated():
            subscription = await self._connection.nc.listen(kv_subject(self._names.workers_bucket, "*"), told)

        def unsubscribe() -> None:
            task = asyncio.get_running_loop().create_task(self._connection.nc.leave(subscription))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        return unsubscribe

    async def ask(self, instance_id: str) -> Sign:
        """Ask the process; a connection that breaks meanwhile says nothing about it."""
        subject, timeout = self._names.alive_subject(instance_id), self._connection.request_timeout_sec
        try:
            async with asyncio.timeout(ASK_SEC):
                await self._connection.nc.ask(subject, b"", b"", timeout=timeout)
        except nats.errors.NoRespondersError:
            return Sign.NOBODY
        except NATS_ERRORS:
            return Sign.UNKNOWN
        return Sign.ANSWERED


async def answer_as(instance_id: str, connection: Connection, names: Names) -> None:
    """From now on, as long as there is a connection, whoever asks for the process is answered."""

    async def answer(message: Msg) -> None:
        with contextlib.suppress(*NATS_ERRORS):
            await connection.nc.publish(message.reply)

    with contextlib.suppress(*NATS_ERRORS):  # what is listened to is told to the server again when it is back
        await connection.nc.subscribe(names.alive_subject(instance_id), cb=answer)
