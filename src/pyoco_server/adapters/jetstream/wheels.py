"""Wheels in a JetStream object store, and their history in a KV bucket.

A wheel is told of with compare-and-set on all that was ever told of any wheel: what was true of the registry when the
wheel was let in is still true when it is there. Its line of the history is in the same message, so that neither can be
without the other; the bucket of the history is filled from there.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.kv import Bucket
from pyoco_server.adapters.jetstream.names import Names, bucket_key
from pyoco_server.adapters.jetstream.object_store import ObjectBucket, ObjectInfo, Told, digest_hex, digest_text
from pyoco_server.adapters.jetstream.translation import ChangedError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Admit, NewWheel, Read, Wheel, WheelEvent
from pyoco_server.errors import PyocoServerError

_log = logging.getLogger(__name__)

TAGS: Final = "x-pyoco-wheel-tags"
_REQUIRES_PYTHON: Final = "x-pyoco-wheel-requires-python"
_EVENT: Final = "x-pyoco-wheel-event"

ABANDONED_SEC: Final = 3_600.0
"""Chunks nobody has told of for so long belong to an upload that came to nothing."""

_MOST_TRIES: Final = 50
_UNKNOWN_TRIES: Final = 3
_PAUSE_SEC: Final = 0.02


class JetStreamWheelRegistry:
    """Wheels in one bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = ObjectBucket(connection, names.wheels_bucket, replicated=names.replicas > 1)

    async def all(self) -> Sequence[Wheel]:
        """All wheels, by name; what else lies in the bucket is left out."""
        return _wheels(await self._bucket.all())

    async def find(self, name: str) -> Wheel | None:
        """The wheel of that name."""
        return _wheel(await self._bucket.look(name))

    async def add(self, wheel: NewWheel, read: Read, admit: Admit) -> Wheel:
        """Keep a wheel, if ``admit`` lets it in."""
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
            return await self._tell(info, admit)
        except UnavailableError:
            raise  # it may be there: its chunks must stay
        except PyocoServerError:
            await self._bucket.drop_chunks(info.nuid)
            raise

    async def _tell(self, info: ObjectInfo, admit: Admit) -> Wheel:
        """Tell of the wheel, or find that an earlier try has done so although nobody said so."""
        unknown = 0
        for _ in range(_MOST_TRIES):
            try:
                told = await self._bucket.all()
                found = next((one for one in told if one.info is not None and one.info.nuid == info.nuid), None)
                if found is not None and (wheel := _wheel(found)) is not None:
                    await self._bucket.sync()
                    return wheel
                admit(_wheels(told))
                after = max((one.sequence for one in told), default=0)
                if not await self._bucket.put_info(info, after=after, of_all=True):
                    await asyncio.sleep(_PAUSE_SEC)
            except UnavailableError:
                unknown += 1
                if unknown == _UNKNOWN_TRIES:
                    raise
        raise UnavailableError(f"the registry changed {_MOST_TRIES} times while '{info.name}' was to be added")

    async def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """The wheel's bytes; the last of them come only if all were right."""
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
                "the wheel '%s' is not whole: %d bytes are there, it had %d",
                wheel.name,
                size,
                info.size,
                extra={"action": "wheel_incomplete", "wheel_name": wheel.name},
            )
            raise UnavailableError(f"'{wheel.name}' is not whole in the registry; delete it and upload it again")
        if last:
            yield last

    async def delete(self, name: str, event: Callable[[Wheel], WheelEvent]) -> tuple[Wheel, WheelEvent] | None:
        """Leave a mark in its place, as every client does; the mark carries the history."""
        while True:
            told = await self._bucket.look(name)
            wheel = _wheel(told)
            if wheel is None or told.info is None:
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
            if await self._bucket.put_info(mark, after=told.sequence):
                await self._drop(wheel)
                return wheel, happened

    async def events(self) -> Sequence[WheelEvent]:
        """The last event of every name."""
        found = [_event(told.info) for told in await self._bucket.all() if told.info is not None]
        return [event for event in found if event is not None]

    async def tidy(self, now: float) -> None:
        """Remove chunks no object tells of, if they are old."""
        stored = await self._bucket.chunk_sets()
        known = {told.kept.nuid for told in await self._bucket.all() if told.kept is not None}
        for nuid, stored_at in stored.items():
            if nuid not in known and now - stored_at > ABANDONED_SEC:
                await self._bucket.drop_chunks(nuid)

    async def _drop(self, wheel: Wheel) -> None:
        try:
            await self._bucket.drop_chunks(wheel.nuid)
        except UnavailableError as error:  # it is deleted all the same; its room is freed later
            _log.warning("the chunks of '%s' stay for now: %s", wheel.name, error, extra={"action": "chunks_left"})


class JetStreamWheelHistory:
    """Events by their id, in a bucket that forgets."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = Bucket(connection, names.wheel_history_bucket)

    async def add(self, event: WheelEvent) -> None:
        """Keep an event."""
        key = bucket_key(event.event_id, field="event_id")
        try:
            await self._bucket.put(key, msgspec.json.encode(event), after=0)
        except ChangedError:
            return  # it is there already

    async def all(self) -> Sequence[WheelEvent]:
        """All that is kept; what cannot be read was written by somebody else."""
        found = [_decoded(data) for data in (await self._bucket.all()).values()]
        return [event for event in found if event is not None]


def _wheels(told: Sequence[Told]) -> list[Wheel]:
    found = [wheel for wheel in map(_wheel, told) if wheel is not None and wheel.name.endswith(".whl")]
    return sorted(found, key=lambda wheel: wheel.name)


def _wheel(told: Told) -> Wheel | None:
    info = told.kept
    if info is None:
        return None
    metadata = info.metadata or {}
    return Wheel(
        name=info.name,
        size_bytes=info.size,
        bucket=info.bucket,
        nuid=info.nuid,
        modified=told.stored_at if told.stored_at is not None else _seconds(info.mtime),
        sha256_hex=digest_hex(info.digest),
        tags=_tags(info),
        requires_python=metadata.get(_REQUIRES_PYTHON, ""),
        event=_event(info),
    )


def _tags(info: ObjectInfo) -> tuple[str, ...]:
    """From wherever the client that wrote them can write them."""
    told: Any = (info.metadata or {}).get(TAGS) or (info.headers or {}).get(TAGS) or ""
    text = ",".join(map(str, told)) if isinstance(told, list) else str(told)
    return tuple(dict.fromkeys(tag.strip() for tag in text.split(",") if tag.strip()))


def _event(info: ObjectInfo) -> WheelEvent | None:
    told = (info.metadata or {}).get(_EVENT)
    return None if told is None else _decoded(told.encode())


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
