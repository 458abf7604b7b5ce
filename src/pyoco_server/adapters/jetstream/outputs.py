"""Large outputs in a JetStream object store; a name is never written twice."""

import hashlib
import io
import logging
from collections.abc import AsyncIterator

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.object_store import ObjectBucket, ObjectInfo, digest_text
from pyoco_server.errors import InvalidInputError

_log = logging.getLogger(__name__)


class JetStreamOutputStore:
    """Outputs in one bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = ObjectBucket(connection, names.outputs_bucket, replicated=names.replicas > 1)

    async def put(self, name: str, data: bytes) -> None:
        """Keep ``data`` under ``name``; InvalidInputError if something else is kept under it."""
        while True:
            told = await self._bucket.look(name)
            if told.kept is not None:
                await self._bucket.sync()  # whoever put it may not have waited for that
                return _must_hold(told.kept, data)
            rest = io.BytesIO(data)

            async def read(size: int, rest: io.BytesIO = rest) -> bytes:
                return rest.read(size)

            info = await self._bucket.put_chunks(name, read)
            if await self._bucket.put_info(info, after=told.sequence):
                return None
            await self._bucket.drop_chunks(info.nuid)  # somebody else was quicker: look what they wrote

    async def get(self, name: str) -> bytes | None:
        """What is kept under ``name``; None if it is not there, or not whole."""
        info = (await self._bucket.look(name)).kept
        if info is None:
            return None
        chunks, digest = list[bytes](), hashlib.sha256()
        async for chunk in self._bucket.chunks(info):
            chunks.append(chunk)
            digest.update(chunk)
        data = b"".join(chunks)
        if len(data) == info.size and digest_text(digest.digest()) == info.digest:
            return data
        _log.warning(
            "the output '%s' is not whole: %d bytes are there, it had %d",
            name,
            len(data),
            info.size,
            extra={"action": "output_incomplete", "output": name},
        )
        return None

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the chunks kept under ``name``; a damaged object may lack some."""
        info = (await self._bucket.look(name)).kept
        if info is not None:
            async for chunk in self._bucket.chunks(info):
                yield chunk

    async def delete(self, name: str) -> None:
        """Forget it. The chunks go first: if we go in between, somebody who tries again can finish."""
        info = (await self._bucket.look(name)).kept
        if info is not None:
            await self._bucket.drop_chunks(info.nuid)
            await self._bucket.drop_info(name)


def _must_hold(kept: ObjectInfo, data: bytes) -> None:
    if kept.digest != digest_text(hashlib.sha256(data).digest()):
        raise InvalidInputError(f"the name {kept.name!r:.80} cannot be used: something else is kept under it")
