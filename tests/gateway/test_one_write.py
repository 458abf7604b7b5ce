"""Answers in one piece, on real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable
from urllib.parse import urlsplit

import httpx
import pytest
from typing_extensions import override

from pyoco_server.gateway.one_write import GatheringTransport
from tests.gateway.stand import Stand, unique
from tests.waiting import wait_until


def test_an_answer_comes_in_one_piece(stand: Stand) -> None:
    address = urlsplit(stand.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        for _ in range(20):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert body.startswith(b"{"), "the head came by itself"


def test_what_is_asked_for_last_is_answered_before_the_connection_closes(stand: Stand) -> None:
    address = urlsplit(stand.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        whole = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert whole.partition(b"\r\n\r\n")[2].startswith(b"{")


def test_large_answers_are_whole(client: httpx.Client) -> None:
    run_id = client.post(
        "/runs", json={"flow_name": "hello", "tag": unique("nobody"), "params": {"text": "x" * 200_000}}
    ).json()["run_id"]
    for _ in range(3):
        assert len(client.get(f"/runs/{run_id}").json()["params"]["text"]) == 200_000


class Written(asyncio.Protocol):
    """The writing side; says whether it is to pause."""

    def __init__(self) -> None:
        self.is_paused = False
        self.transport: GatheringTransport | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one
        self.transport = GatheringTransport(transport)

    @override
    def pause_writing(self) -> None:
        self.is_paused = True


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[GatheringTransport, Written, asyncio.StreamReader]]:
    made: list[Written] = []

    def make() -> Written:
        made.append(Written())
        return made[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=1_000)
    try:
        await wait_until(lambda: bool(made) and made[0].transport is not None)
        transport = made[0].transport
        assert transport is not None
        yield transport, made[0], reader
    finally:
        writer.close()
        server.close()


def test_what_is_written_in_one_turn_is_read_at_once_and_in_order() -> None:
    async def body() -> None:
        async with connected() as (transport, _, reader):
            transport.write(b"one ")
            transport.write(b"")
            transport.writelines([b"two ", b"three"])
            assert transport.get_write_buffer_size() == len(b"one two three")
            assert await reader.read(1_000) == b"one two three"
            transport.write(b"four")
            transport.close()
            assert transport.is_closing()
            assert await reader.read() == b"four"

    asyncio.run(body())


def test_what_is_aborted_is_not_sent() -> None:
    async def body() -> None:
        async with connected() as (transport, _, reader):
            transport.write(b"never")
            transport.abort()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    asyncio.run(body())


@pytest.mark.parametrize("parts", [[bytes(8_000_000)], [bytes(1_000)] * 8_000])
def test_who_writes_more_than_is_read_is_told_to_pause(parts: Iterable[bytes]) -> None:
    async def body() -> None:
        async with connected() as (transport, protocol, _):
            for part in parts:
                transport.write(part)
            assert protocol.is_paused

    asyncio.run(body())
