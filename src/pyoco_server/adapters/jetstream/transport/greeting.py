"""The greeting of a NATS server, which it sends to every client before it logs in."""

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import msgspec

_DEFAULT_PORT: Final = 4222
_PREFIX: Final = b"INFO "


class Greeting(msgspec.Struct, frozen=True):
    """What a server says of itself."""

    server_name: str = ""
    auth_required: bool = False
    """Whether clients must log in."""


async def greeting_of(url: str, *, timeout_sec: float = 1.0) -> Greeting | None:
    """Return the greeting of the server at an address; None if no NATS server answers there in time."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        async with asyncio.timeout(timeout_sec):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or _DEFAULT_PORT)
            try:
                line = await reader.readline()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
        if not line.startswith(_PREFIX):
            return None
        return msgspec.json.decode(line.removeprefix(_PREFIX), type=Greeting)
    except (OSError, EOFError, ValueError, msgspec.DecodeError):  # OSError: TimeoutError too
        return None
