"""Objects in a JetStream object store.

Laid out as every NATS client does it (chunks on a subject of their own, then one message that tells of them), so that
the usual tools can list and read them. Read and written by our own hands: an object counts only when its last message
is there, and a chunk that is missing is noticed instead of waited for.
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

from pyoco_server.adapters.ids import uuid_maker
from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.event_log import AFTER
from pyoco_server.adapters.jetstream.names import object_name, object_stream
from pyoco_server.adapters.jetstream.stream_reader import StoredMessage, StreamReader
from pyoco_server.adapters.jetstream.translation import ChangedError, RefusedError, translated
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Read
from pyoco_server.errors import PyocoServerError

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
    """The message that tells of an object; unknown fields are other clients' business."""

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


class Told(NamedTuple):
    """What the store says of a name: None if nobody ever told of it. ``sequence`` is that of the message."""

    info: ObjectInfo | None
    sequence: int
    stored_at: float | None

    @property
    def kept(self) -> ObjectInfo | None:
        """The object, if there is one now."""
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

    async def look(self, name: str) -> Told:
        """What there is under a name."""
        return _told(await self._reader.last(self._subject(name)))

    async def all(self) -> Sequence[Told]:
        """What there is under all names, deleted ones too, in the order it was told."""
        subject, start, found = f"$O.{self.bucket}.M.>", 1, list[Told]()
        while True:
            page = await self._reader.page(subject, start=start)
            for message in page.messages:
                try:
                    found.append(_told(message))
                except PyocoServerError as error:  # one that nobody can read must not hide all the others
                    _log.warning("%s", error, extra={"action": "object_unreadable", "bucket": self.bucket})
                    found.append(Told(None, message.sequence, None))
            if not page.messages or page.left == 0:
                return found
            start = page.messages[-1].sequence + 1

    async def sync(self) -> None:
        """Return when all that the bucket holds is durable; UnavailableError if nobody knows."""
        await self._connection.sync(self._stream)

    async def put_chunks(self, name: str, read: Read) -> ObjectInfo:
        """Store chunks nobody has told of yet; if this fails they are removed, if that can be done."""
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
            digest.update(group)  # in pieces: the loop has others to serve
            chunks = [group[place : place + size] for place in range(0, len(group), size)]
            for sequence in await asyncio.gather(*(self._connection.publish(subject, chunk) for chunk in chunks)):
                if sequence <= stored:
                    raise UnavailableError(f"the chunks of '{info.name}' arrived out of order; nothing was kept")
                stored = sequence
            info.chunks += len(chunks)
            info.size += len(group)
        info.digest = digest_text(digest.digest())

    async def put_info(self, info: ObjectInfo, *, after: int, of_all: bool = False) -> bool:
        """From here on the object is as ``info`` tells; False if somebody else told something since ``after``.

        That is the last message of this name, or with ``of_all`` of the whole bucket.
        """
        headers = {AFTER: str(after), "Nats-Rollup": "sub"}
        if of_all:
            headers[_OF_SUBJECT] = f"$O.{self.bucket}.M.>"
        try:
            await self._connection.publish(self._subject(info.name), msgspec.json.encode(info), headers)
        except ChangedError:
            return False
        return True

    async def chunks(self, info: ObjectInfo) -> AsyncIterator[bytes]:
        """The chunks that are there, which may be too few. A replica may lag behind; then it gets a moment."""
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
        """The id of every set of chunks, told of or not, and when its last chunk came (unix seconds)."""
        prefix = self._chunks_subject("")
        with translated():
            info = await self._connection.js.stream_info(self._stream, subjects_filter=f"{prefix}*")
        found: dict[str, float] = {}
        for subject in info.state.subjects or {}:
            last = await self._any_replica.last(subject)  # the leader does not tell the time
            stored_at = None if last is None else _stored_at(last.headers)
            if stored_at is not None:
                found[subject.removeprefix(prefix)] = stored_at
        return found

    async def drop_chunks(self, nuid: str) -> None:
        """Remove a set of chunks."""
        await self._purge(self._chunks_subject(nuid))

    async def drop_info(self, name: str) -> None:
        """Remove all that was told of a name."""
        await self._purge(self._subject(name))

    async def _purge(self, subject: str) -> None:
        with translated():
            await self._connection.js.purge_stream(self._stream, subject=subject)

    def _subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(object_name(name)).decode()}"

    def _chunks_subject(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"


def _told(message: StoredMessage | None) -> Told:
    if message is None:
        return Told(None, 0, None)
    try:
        info = msgspec.json.decode(message.data, type=ObjectInfo)
    except msgspec.DecodeError as error:
        raise PyocoServerError(f"message {message.sequence} of the object store tells of no object: {error}") from error
    return Told(info, message.sequence, _stored_at(message.headers))


def _stored_at(headers: Mapping[str, str]) -> float | None:
    """When the server stored a message (unix seconds), if it says so."""
    told = headers.get(_STORED_AT)
    return None if told is None else datetime.fromisoformat(told).timestamp()


def digest_text(digest: bytes) -> str:
    """A SHA-256 as objects tell of it."""
    return f"SHA-256={base64.urlsafe_b64encode(digest).decode()}"


def digest_hex(text: str) -> str | None:
    """The SHA-256 an object tells of, in hexadecimal; None if it tells of none."""
    kind, _, encoded = text.partition("=")
    try:
        digest = base64.urlsafe_b64decode(encoded)
    except (binascii.Error, ValueError):
        return None
    return digest.hex() if kind == "SHA-256" and len(digest) == hashlib.sha256().digest_size else None
