"""How many nodes of a cluster hold each stream and bucket."""

import msgspec
from nats.js.errors import APIError

from pyoco_server.adapters.jetstream.connection import Connection, translated
from pyoco_server.adapters.jetstream.names import Names
from pyoco_server.adapters.jetstream.resources import ResourceMismatchError, stream_names


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
                    await connection.js.update_stream(config)
                except APIError as error:
                    raise ResourceMismatchError(name, error.description or str(error)) from error
        done.append(Replicated(name, before, count))
    return done
