"""Objects in a JetStream object store.

The layout is that of every NATS client (chunks on a subject of their own, then one message that describes the object),
so that the usual tools can list and read them. The library's own implementation is not used: here an object exists only
when its last message is stored, and a missing chunk is an error instead of an endless wait.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import EXPECTED_SEQUENCE, object_stream
from pyoco_server.adapters.jetstream.primitives.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError, RefusedError, translated
from pyoco_server.adapters.system import uuid_maker
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Read
from pyoco_server.errors import PyocoServerError
from pyoco_server.identifiers import object_name

_log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024
CHUNKS_IN_FLIGHT: Final = 16
_ROOM_FOR_HEADERS: Final = 1024
_PAUSE_SEC: Final = 0.02
_OF_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
_STORED_AT: Final = "Nats-Time-Stamp"


class Options(msgspec.Struct):
    """How an object was written."""

    max_chunk_size: int = 0


class ObjectInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The message that describes an object; unknown fields belong to other clients."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    headers: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    options: Options | None = None


class UploadProgress(NamedTuple):
    """What is stored about a name: ``info`` is None if nothing ever was. ``sequence`` is that of the message."""

    info: ObjectInfo | None
    sequence: int
    stored_at: float | None

    @property
    def kept(self) -> ObjectInfo | None:
        """The object, unless it was deleted."""
        return None if self.info is None or self.info.deleted else self.info


class ObjectBucket:
    """One bucket of objects."""

    def __init__(self, connection: Connection, bucket: str, *, replicated: bool) -> None:
        self.bucket = bucket
        self._connection = connection
        self._stream = object_stream(bucket)
        self._replicated = replicated
        self._reader = StreamReader(connection, self._stream, leader=replicated)
        self._any_replica = StreamReader(connection, self._stream)
        self._new_id = uuid_maker()

    async def look(self, name: str) -> UploadProgress:
        """Return what is stored about a name."""
        return _progress(await self._reader.last(self._subject(name)))

    async def all(self) -> Sequence[UploadProgress]:
        """Return what is stored about all names, deleted ones too, in the order of the messages."""
        subject, start, found = f"$O.{self.bucket}.M.>", 1, list[UploadProgress]()
        while True:
            page = await self._reader.page(subject, start=start)
            for message in page.messages:
                try:
                    found.append(_progress(message))
                except PyocoServerError as error:  # an unreadable one must not hide all others
                    _log.warning("%s", error, extra={"action": "object_unreadable", "bucket": self.bucket})
                    found.append(UploadProgress(None, message.sequence, None))
            if not page.messages or page.left == 0:
                return found
            start = page.messages[-1].sequence + 1

    async def sync(self) -> None:
        """Return when everything in the bucket is durable; UnavailableError if that is unknown."""
        await self._connection.sync(self._stream)

    async def put_chunks(self, name: str, read: Read) -> ObjectInfo:
        """Store chunks that no object refers to yet; if this fails, remove them if possible."""
        size = min(CHUNK_BYTES, self._connection.max_payload - _ROOM_FOR_HEADERS)
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=self._new_id(), options=Options(size))
        try:
            await self._put_chunks(info, read, size)
        except UnavailableError as error:
            if isinstance(error, RefusedError):  # the server answers, so it can remove what it has stored
                with contextlib.suppress(UnavailableError):
                    await asyncio.shield(self.drop_chunks(info.nuid))
            raise
        except BaseException:
            await asyncio.shield(self.drop_chunks(info.nuid))
            raise
        return info

    async def _put_chunks(self, info: ObjectInfo, read: Read, size: int) -> None:
        subject, digest, stored = self._chunks_subject(info.nuid), hashlib.sha256(), 0
        while group := await read(size * CHUNKS_IN_FLIGHT):
            digest.update(group)  # in pieces: the event loop has other work
            chunks = [group[place : place + size] for place in range(0, len(group), size)]
            for sequence in await asyncio.gather(*(self._connection.publish(subject, chunk) for chunk in chunks)):
                if sequence <= stored:
                    raise UnavailableError(f"the chunks of '{info.name}' arrived out of order; nothing was kept")
                stored = sequence
            info.chunks += len(chunks)
            info.size += len(group)
        info.digest = digest_text(digest.digest())

    async def put_info(self, info: ObjectInfo, *, after: int, of_all: bool = False) -> bool:
        """Store the description of an object; False if another was stored since ``after``.

        That is the sequence of the last description of this name, or with ``of_all`` of any name in the bucket.
        """
        headers = {EXPECTED_SEQUENCE: str(after), "Nats-Rollup": "sub"}
        if of_all:
            headers[_OF_SUBJECT] = f"$O.{self.bucket}.M.>"
        try:
            await self._connection.publish(self._subject(info.name), msgspec.json.encode(info), headers)
        except ChangedError:
            return False
        return True

    async def chunks(self, info: ObjectInfo) -> AsyncIterator[bytes]:
        """Yield the chunks that are stored, which may be too few. A replica that lags behind gets a moment."""
        count, position, loop = 0, 0, asyncio.get_running_loop()
        deadline = loop.time() + (self._connection.request_timeout_sec if self._replicated else 0)
        while count < info.chunks:
            page = await self._reader.page(self._chunks_subject(info.nuid), start=position + 1)
            for message in page.messages:
                count, position = count + 1, message.sequence
                yield message.data
            if not page.messages:
                if loop.time() >= deadline:
                    break
                await asyncio.sleep(_PAUSE_SEC)

    async def chunk_sets(self) -> dict[str, float]:
        """Return the id of every set of chunks, of an object or not, and the time of its last chunk (unix seconds)."""
        prefix = self._chunks_subject("")
        with translated():
            info = await self._connection.js.stream_info(self._stream, subjects_filter=f"{prefix}*")
        found: dict[str, float] = {}
        for subject in info.state.subjects or {}:
            last = await self._any_replica.last(subject)  # the leader does not send the time
            stored_at = None if last is None else _stored_at(last.headers)
            if stored_at is not None:
                found[subject.removeprefix(prefix)] = stored_at
        return found

    async def drop_chunks(self, nuid: str) -> None:
        """Remove a set of chunks."""
        await self._purge(self._chunks_subject(nuid))

    async def drop_info(self, name: str) -> None:
        """Remove everything that is stored about a name."""
        await self._purge(self._subject(name))

    async def _purge(self, subject: str) -> None:
        with translated():
            await self._connection.js.purge_stream(self._stream, subject=subject)

    def _subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(object_name(name)).decode()}"

    def _chunks_subject(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"


def _progress(message: StoredMessage | None) -> UploadProgress:
    if message is None:
        return UploadProgress(None, 0, None)
    try:
        info = msgspec.json.decode(message.data, type=ObjectInfo)
    except msgspec.DecodeError as error:
        raise PyocoServerError(
            f"message {message.sequence} of the object store describes no object: {error}"
        ) from error
    return UploadProgress(info, message.sequence, _stored_at(message.headers))


def _stored_at(headers: Mapping[str, str]) -> float | None:
    """Return when the server stored a message (unix seconds), if the message says so."""
    stored_at = headers.get(_STORED_AT)
    return None if stored_at is None else datetime.fromisoformat(stored_at).timestamp()


def digest_text(digest: bytes) -> str:
    """Return a SHA-256 in the form of the descriptions."""
    return f"SHA-256={base64.urlsafe_b64encode(digest).decode()}"


def digest_hex(text: str) -> str | None:
    """Return the SHA-256 in a description, in hexadecimal; None if there is none."""
    kind, _, encoded = text.partition("=")
    try:
        digest = base64.urlsafe_b64decode(encoded)
    except (binascii.Error, ValueError):
        return None
    return digest.hex() if kind == "SHA-256" and len(digest) == hashlib.sha256().digest_size else None
