"""Wheels in a JetStream object store, and their history in a KV bucket.

A wheel is added by compare-and-set on the last change of any wheel, so what was true of the registry when the wheel was
admitted is still true when it is stored. Its line of the history is in the same message, so neither exists without the
other; the bucket of the history is filled from there.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.kv import Bucket
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.object_store import (
    ObjectBucket,
    ObjectInfo,
    UploadProgress,
    digest_hex,
    digest_text,
)
from pyoco_server.adapters.jetstream.transport.error_translation import ChangedError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Admit, NewWheel, Read, Wheel, WheelEvent
from pyoco_server.errors import PyocoServerError
from pyoco_server.identifiers import KEY

_log = logging.getLogger(__name__)

TAGS: Final = "x-pyoco-wheel-tags"
_REQUIRES_PYTHON: Final = "x-pyoco-wheel-requires-python"
_EVENT: Final = "x-pyoco-wheel-event"

ABANDONED_SEC: Final = 3_600.0
"""Chunks without an object for so long belong to an upload that failed."""

_MOST_TRIES: Final = 50
_UNKNOWN_TRIES: Final = 3
_PAUSE_SEC: Final = 0.02


class JetStreamWheelRegistry:
    """Wheels in one bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = ObjectBucket(connection, names.wheels_bucket, replicated=names.replicas > 1)

    async def all(self) -> Sequence[Wheel]:
        """Return all wheels by name; other objects in the bucket are skipped."""
        return _wheels(await self._bucket.all())

    async def find(self, name: str) -> Wheel | None:
        """Return the wheel of that name."""
        return _wheel(await self._bucket.look(name))

    async def add(self, wheel: NewWheel, read: Read, admit: Admit) -> Wheel:
        """Store a wheel if ``admit`` accepts it."""
        admit(await self.all())  # before anything is stored
        info = await self._bucket.put_chunks(wheel.name, read)
        if digest_hex(info.digest) != wheel.sha256_hex:
            await self._bucket.drop_chunks(info.nuid)
            raise PyocoServerError(f"'{wheel.name}' changed while it was stored")
        try:
            info.mtime = datetime.fromtimestamp(wheel.event.occurred_at, UTC).isoformat()
            info.metadata = {TAGS: ",".join(wheel.tags), _EVENT: msgspec.json.encode(wheel.event).decode()}
            if wheel.requires_python:
                info.metadata[_REQUIRES_PYTHON] = wheel.requires_python
            info.headers = {TAGS: [",".join(wheel.tags)]}  # some clients show these, and not the metadata
            return await self._add_info(info, admit)
        except UnavailableError:
            raise  # it may be stored: its chunks must stay
        except PyocoServerError:
            await self._bucket.drop_chunks(info.nuid)
            raise

    async def _add_info(self, info: ObjectInfo, admit: Admit) -> Wheel:
        """Store the wheel's description, or find that an unacknowledged earlier attempt has stored it."""
        unknown = 0
        for _ in range(_MOST_TRIES):
            try:
                stored = await self._bucket.all()
                found = next((one for one in stored if one.info is not None and one.info.nuid == info.nuid), None)
                if found is not None and (wheel := _wheel(found)) is not None:
                    await self._bucket.sync()
                    return wheel
                admit(_wheels(stored))
                after = max((one.sequence for one in stored), default=0)
                if not await self._bucket.put_info(info, after=after, of_all=True):
                    await asyncio.sleep(_PAUSE_SEC)
            except UnavailableError:
                unknown += 1
                if unknown == _UNKNOWN_TRIES:
                    raise
        raise UnavailableError(f"the registry changed {_MOST_TRIES} times while '{info.name}' was to be added")

    async def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """Yield the wheel's bytes; the last chunk only if all bytes are correct."""
        info = (await self._bucket.look(wheel.name)).kept
        if info is None or info.nuid != wheel.nuid:
            raise UnavailableError(f"'{wheel.name}' was replaced or deleted meanwhile")
        digest, size, last = hashlib.sha256(), 0, b""
        async for chunk in self._bucket.chunks(info):
            if last:
                yield last
            digest.update(chunk)
            size += len(chunk)
            last = chunk
        if size != info.size or digest_text(digest.digest()) != info.digest:
            _log.error(
                "the wheel '%s' is incomplete: %d of %d bytes are stored",
                wheel.name,
                size,
                info.size,
                extra={"action": "wheel_incomplete", "wheel_name": wheel.name},
            )
            raise UnavailableError(f"'{wheel.name}' is incomplete in the registry; delete it and upload it again")
        if last:
            yield last

    async def delete(self, name: str, event: Callable[[Wheel], WheelEvent]) -> tuple[Wheel, WheelEvent] | None:
        """Replace the wheel by a marker, as every client does; the marker has the line of the history."""
        while True:
            stored = await self._bucket.look(name)
            wheel = _wheel(stored)
            if wheel is None or stored.info is None:
                return None
            happened = event(wheel)
            mark = ObjectInfo(
                name=name,
                bucket=wheel.bucket,
                nuid=wheel.nuid,
                deleted=True,
                mtime=datetime.fromtimestamp(happened.occurred_at, UTC).isoformat(),
                metadata={_EVENT: msgspec.json.encode(happened).decode()},
            )
            if await self._bucket.put_info(mark, after=stored.sequence):
                await self._drop(wheel)
                return wheel, happened

    async def events(self) -> Sequence[WheelEvent]:
        """Return the last event of every name."""
        found = [_event(one.info) for one in await self._bucket.all() if one.info is not None]
        return [event for event in found if event is not None]

    async def tidy(self, now: float) -> None:
        """Remove old chunks that belong to no object."""
        stored = await self._bucket.chunk_sets()
        known = {one.kept.nuid for one in await self._bucket.all() if one.kept is not None}
        for nuid, stored_at in stored.items():
            if nuid not in known and now - stored_at > ABANDONED_SEC:
                await self._bucket.drop_chunks(nuid)

    async def _drop(self, wheel: Wheel) -> None:
        try:
            await self._bucket.drop_chunks(wheel.nuid)
        except UnavailableError as error:  # the wheel is deleted even so; its space is freed later
            _log.warning(
                "the chunks of the deleted wheel '%s' stay until the next cleanup: %s",
                wheel.name,
                error,
                extra={"action": "chunks_left"},
            )


class JetStreamWheelHistory:
    """Events by their id, in a bucket that drops old ones."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.wheel_history_bucket)

    async def add(self, event: WheelEvent) -> None:
        """Store an event."""
        key = KEY.checked(event.event_id, "event_id")
        try:
            await self._bucket.put(key, msgspec.json.encode(event), after=0)
        except ChangedError:
            return  # it is stored already

    async def all(self) -> Sequence[WheelEvent]:
        """Return all events; unreadable ones, which another program wrote, are skipped."""
        found = [_decoded(data) for data in (await self._bucket.all()).values()]
        return [event for event in found if event is not None]


def _wheels(stored: Sequence[UploadProgress]) -> list[Wheel]:
    found = [wheel for wheel in map(_wheel, stored) if wheel is not None and wheel.name.endswith(".whl")]
    return sorted(found, key=lambda wheel: wheel.name)


def _wheel(stored: UploadProgress) -> Wheel | None:
    info = stored.kept
    if info is None:
        return None
    metadata = info.metadata or {}
    return Wheel(
        name=info.name,
        size_bytes=info.size,
        bucket=info.bucket,
        nuid=info.nuid,
        modified=stored.stored_at if stored.stored_at is not None else _seconds(info.mtime),
        sha256_hex=digest_hex(info.digest),
        tags=_tags(info),
        requires_python=metadata.get(_REQUIRES_PYTHON, ""),
        event=_event(info),
    )


def _tags(info: ObjectInfo) -> tuple[str, ...]:
    """Return the tags from the metadata, or from the headers if the client cannot write metadata."""
    tags: Any = (info.metadata or {}).get(TAGS) or (info.headers or {}).get(TAGS) or ""
    text = ",".join(map(str, tags)) if isinstance(tags, list) else str(tags)
    return tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def _event(info: ObjectInfo) -> WheelEvent | None:
    event = (info.metadata or {}).get(_EVENT)
    return None if event is None else _decoded(event.encode())


def _decoded(data: bytes) -> WheelEvent | None:
    try:
        return msgspec.json.decode(data, type=WheelEvent)
    except msgspec.DecodeError:
        return None


def _seconds(mtime: str) -> float:
    try:
        return datetime.fromisoformat(mtime).timestamp()
    except ValueError:
        return 0.0
