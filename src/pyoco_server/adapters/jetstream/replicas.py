"""How many nodes of a cluster hold each stream and bucket."""

import msgspec

from pyoco_server.adapters.jetstream.connection import Connection
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import ResourceMismatchError, stream_names
from pyoco_server.adapters.jetstream.translation import RefusedError, translated


class Replicated(msgspec.Struct, frozen=True):
    """A stream, and how many replicas it had and has."""

    name: str
    before: int
    now: int


async def set_replicas(connection: Connection, names: Names, count: int) -> list[Replicated]:
    """Give every stream and bucket of the platform so many replicas; ResourceMismatchError if the server refuses."""
    done = []
    for name in stream_names(names):
        with translated():
            config = (await connection.js.stream_info(name)).config
        before = config.num_replicas or 1
        if before != count:
            config.num_replicas = count
            try:
                with translated():
                    await connection.js.update_stream(config)
            except RefusedError as error:
                raise ResourceMismatchError(name, error.description or str(error)) from error
        done.append(Replicated(name, before, count))
    return done
