"""Large outputs in a JetStream object store. A name is never written twice."""

import hashlib
import io
import logging
from collections.abc import AsyncIterator

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.primitives.object_store import ObjectBucket, ObjectInfo, digest_text
from pyoco_server.errors import InvalidInputError

_log = logging.getLogger(__name__)


class JetStreamOutputStore:
    """Outputs in one bucket."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._bucket = ObjectBucket(connection, names.outputs_bucket, replicated=names.replicas > 1)

    async def put(self, name: str, data: bytes) -> None:
        """Store ``data`` under ``name``; InvalidInputError if the name has other data."""
        while True:
            stored = await self._bucket.look(name)
            if stored.kept is not None:
                await self._bucket.sync()  # its writer may not have waited for that
                return _must_hold(stored.kept, data)
            rest = io.BytesIO(data)

            async def read(size: int, rest: io.BytesIO = rest) -> bytes:
                return rest.read(size)

            info = await self._bucket.put_chunks(name, read)
            if await self._bucket.put_info(info, after=stored.sequence):
                return None
            await self._bucket.drop_chunks(info.nuid)  # another writer was faster: compare its data

    async def get(self, name: str) -> bytes | None:
        """Return the data under ``name``; None if there is none, or a part is missing."""
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
            "the output '%s' is incomplete: %d of %d bytes are stored",
            name,
            len(data),
            info.size,
            extra={"action": "output_incomplete", "output": name},
        )
        return None

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the chunks under ``name``; a damaged object may lack some."""
        info = (await self._bucket.look(name)).kept
        if info is not None:
            async for chunk in self._bucket.chunks(info):
                yield chunk

    async def delete(self, name: str) -> None:
        """Delete the data. The chunks are removed first, so that a repeated call can finish an interrupted one."""
        info = (await self._bucket.look(name)).kept
        if info is not None:
            await self._bucket.drop_chunks(info.nuid)
            await self._bucket.drop_info(name)


def _must_hold(kept: ObjectInfo, data: bytes) -> None:
    if kept.digest != digest_text(hashlib.sha256(data).digest()):
        raise InvalidInputError(f"the name {kept.name!r:.80} cannot be used: something else is kept under it")
