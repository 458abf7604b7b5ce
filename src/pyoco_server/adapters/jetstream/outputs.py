"""Large outputs in a JetStream object store.

Laid out as every NATS client does it (chunks on a subject of their own, then one message that tells of them), so that
the usual tools can list and read them. Read and written by our own hands: an object counts only when its last message
is there, a name is never written twice, and a chunk that is missing is noticed instead of waited for.
"""

import asyncio
import base64
import hashlib
import logging
from typing import Final

import msgspec
from nats.js.errors import APIError

from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.connection import Connection, translated
from pyoco_server.adapters.jetstream.event_log import AFTER, CONFLICTS
from pyoco_server.adapters.jetstream.names import Names, object_name, object_stream
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import InvalidInputError, PyocoServerError

_log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024
CHUNKS_IN_FLIGHT: Final = 16
_ROOM_FOR_HEADERS: Final = 1024
_PAUSE_SEC: Final = 0.02


class _Options(msgspec.Struct):
    max_chunk_size: int = 0


class _Info(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The message that tells of an object; unknown fields are other clients' business."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    options: _Options = msgspec.field(default_factory=_Options)


class JetStreamOutputStore:
    """Outputs in one bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._bucket = names.outputs_bucket
        self._stream = object_stream(self._bucket)
        self._replicated = names.replicas > 1
        self._reader = StreamReader(connection, self._stream, leader=self._replicated)
        self._new_id = uuid_maker()

    async def put(self, name: str, data: bytes) -> None:
        """Keep ``data`` under ``name``; InvalidInputError if something else is kept under it."""
        subject = self._subject(name)
        while True:
            told = await self._reader.last(subject)
            kept = _info(told)
            if kept is not None:
                return _must_hold(kept, data)
            info = await self._put_chunks(name, data)
            if await self._put_info(subject, info, after=told.sequence if told else 0):
                return None
            await self._purge(self._chunks_subject(info))  # somebody else was quicker: look what they wrote

    async def get(self, name: str) -> bytes | None:
        """What is kept under ``name``; None if it is not there, or not whole."""
        info = _info(await self._reader.last(self._subject(name)))
        if info is None:
            return None
        data, digest = await self._read_chunks(info)
        if len(data) == info.size and digest == info.digest:
            return data
        _log.warning(
            "the output '%s' is not whole: %d bytes are there, it had %d",
            name,
            len(data),
            info.size,
            extra={"action": "output_incomplete", "output": name},
        )
        return None

    async def delete(self, name: str) -> None:
        """Forget it. The chunks go first: if we go in between, somebody who tries again can finish."""
        subject = self._subject(name)
        info = _info(await self._reader.last(subject))
        if info is not None:
            await self._purge(self._chunks_subject(info))
            await self._purge(subject)

    async def _put_chunks(self, name: str, data: bytes) -> _Info:
        """Chunks nobody has told of yet; if we fail here they cost space and nothing else."""
        size = min(CHUNK_BYTES, self._connection.max_payload - _ROOM_FOR_HEADERS)
        info = _Info(name=name, bucket=self._bucket, nuid=self._new_id(), size=len(data), options=_Options(size))
        subject, digest, stored = self._chunks_subject(info), hashlib.sha256(), 0
        with translated():
            for start in range(0, len(data), size * CHUNKS_IN_FLIGHT):
                group = data[start : start + size * CHUNKS_IN_FLIGHT]
                digest.update(group)  # in pieces: the loop has others to serve
                chunks = [group[place : place + size] for place in range(0, len(group), size)]
                for sequence in await asyncio.gather(*(self._connection.publish(subject, chunk) for chunk in chunks)):
                    if sequence <= stored:
                        raise UnavailableError(f"the chunks of '{name}' arrived out of order; nothing was kept")
                    stored = sequence
                info.chunks += len(chunks)
        info.digest = _written(digest.digest())
        return info

    async def _put_info(self, subject: str, info: _Info, *, after: int) -> bool:
        """From here on the object is there; False if somebody else's is."""
        try:
            with translated():
                headers = {AFTER: str(after), "Nats-Rollup": "sub"}
                await self._connection.publish(subject, msgspec.json.encode(info), headers)
        except APIError as error:
            if error.err_code in CONFLICTS:
                return False
            raise
        return True

    async def _read_chunks(self, info: _Info) -> tuple[bytes, str]:
        """What is there of the object, and its digest. A replica may lag behind; then it gets a moment."""
        chunks: list[bytes] = []
        position, digest, loop = 0, hashlib.sha256(), asyncio.get_running_loop()
        deadline = loop.time() + (self._connection.request_timeout_sec if self._replicated else 0)
        while len(chunks) < info.chunks:
            page = await self._reader.page(self._chunks_subject(info), start=position + 1)
            for message in page.messages:
                chunks.append(message.data)
                digest.update(message.data)
                position = message.sequence
            if not page.messages:
                if loop.time() >= deadline:
                    break
                await asyncio.sleep(_PAUSE_SEC)
        return b"".join(chunks), _written(digest.digest())

    async def _purge(self, subject: str) -> None:
        with translated():
            await self._connection.js.purge_stream(self._stream, subject=subject)

    def _subject(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(object_name(name)).decode()}"

    def _chunks_subject(self, info: _Info) -> str:
        return f"$O.{self._bucket}.C.{info.nuid}"


def _info(message: StoredMessage | None) -> _Info | None:
    """What a message tells of an object; None if there is none, or no more."""
    if message is None:
        return None
    try:
        info = msgspec.json.decode(message.data, type=_Info)
    except msgspec.DecodeError as error:
        raise PyocoServerError(f"message {message.sequence} of the object store tells of no object: {error}") from error
    return None if info.deleted else info


def _written(digest: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(digest).decode()}"


def _must_hold(kept: _Info, data: bytes) -> None:
    if kept.digest != _written(hashlib.sha256(data).digest()):
        raise InvalidInputError(f"the name {kept.name!r:.80} cannot be used: something else is kept under it")
