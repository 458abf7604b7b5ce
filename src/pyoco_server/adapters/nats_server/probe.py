"""Ask a NATS server whether JetStream works, with the few protocol messages that this takes.

This does not use the client library, which retries where we need the first answer.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from pyoco_server.adapters.jetstream.durability.self_test import find_problem
from pyoco_server.app.ports import UnavailableError

_CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"name":"pyoco-server readiness","lang":"python","version":"0",'
    b'"protocol":1,"headers":true,"no_responders":true}\r\n'
)


_SELF_TEST_SEC: Final = 10.0


class NotReadyError(Exception):
    """No NATS server with a working JetStream answers there yet."""


class ReadyServer(msgspec.Struct, frozen=True):
    """What a working server says of itself."""

    version: str
    streams: frozenset[str]


class _FirstMessage(msgspec.Struct):
    version: str = ""


class _Error(msgspec.Struct):
    description: str = "unknown error"


class _StreamNames(msgspec.Struct):
    total: int = 0
    streams: list[str] | None = None
    error: _Error | None = None


async def ready_server(host: str, port: int) -> ReadyServer:
    """Return the server's version and streams; the answer of JetStream proves that it works. NotReadyError if not."""
    names = set[str]()
    try:
        async with _conversation(host, port) as conversation:
            while True:
                page = await conversation.page_of_names(len(names))
                names.update(page.streams or ())
                if not page.streams or len(names) >= page.total:
                    return ReadyServer(conversation.version, frozenset(names))
    except (OSError, EOFError, ValueError, msgspec.DecodeError) as error:
        raise NotReadyError(str(error) or type(error).__name__) from error


async def self_test(host: str, port: int, streams: Path) -> str | None:
    """Return why clients must not sync the files of the server below ``streams``; None if they may."""
    try:
        async with asyncio.timeout(_SELF_TEST_SEC), _conversation(host, port) as conversation:
            return await find_problem(conversation.request, streams)
    except (OSError, EOFError, ValueError, NotReadyError, UnavailableError) as error:  # OSError: TimeoutError too
        return f"its self-test did not end ({str(error) or type(error).__name__})"


async def look_whether_nats(host: str, port: int, *, timeout_sec: float = 1.0) -> bool:
    """Return whether a NATS server listens there: it sends the first message, which identifies it."""
    try:
        async with asyncio.timeout(timeout_sec), _conversation(host, port):
            return True
    except (OSError, EOFError, ValueError, NotReadyError):  # OSError: TimeoutError too
        return False


@asynccontextmanager
async def _conversation(host: str, port: int) -> AsyncIterator["_Conversation"]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        greeting = await reader.readline()
        if not greeting.startswith(b"INFO {"):
            raise NotReadyError(f"the greeting was {greeting[:80]!r}")
        version = msgspec.json.decode(greeting.removeprefix(b"INFO "), type=_FirstMessage).version
        yield _Conversation(reader, writer, version)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class _Conversation:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str) -> None:
        self.version = version
        self._reader = reader
        self._writer = writer
        self._inbox = b"_INBOX." + secrets.token_hex(8).encode()
        writer.write(_CONNECT + b"SUB %s 1\r\n" % self._inbox)

    async def page_of_names(self, offset: int) -> _StreamNames:
        answer = await self.request("$JS.API.STREAM.NAMES", b'{"offset":%d}' % offset)
        page = msgspec.json.decode(answer, type=_StreamNames)
        if page.error is not None:
            raise NotReadyError(page.error.description)
        return page

    async def request(self, subject: str, payload: bytes) -> bytes:
        self._writer.write(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), self._inbox, len(payload), payload))
        await self._writer.drain()
        while line := await self._reader.readline():
            words = line.split()
            match words[:1]:
                case [b"MSG"]:
                    return await self._reader.readexactly(int(words[-1]))
                case [b"HMSG"]:  # only the server's "no responders" has headers here
                    raise NotReadyError("JetStream is not enabled")
                case [b"-ERR"]:
                    raise NotReadyError(line.decode(errors="replace").strip())
                case [b"PING"]:
                    self._writer.write(b"PONG\r\n")
                case _:  # an empty line after a message, another INFO
                    continue
        raise EOFError("the connection was closed")
