"""Responses leave in one write, on real sockets; with a changed uvicorn they leave by its own protocol."""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from typing_extensions import override

from pyoco_server.gateway.middleware import write_coalescing
from pyoco_server.gateway.middleware.write_coalescing import CoalescingTransport
from tests.cli.serving import free_port, serving
from tests.gateway.stand import Stand, unique
from tests.plain_http import NO_TLS
from tests.waiting import wait_until


def test_response_arrives_in_one_piece(stand: Stand) -> None:
    address = urlsplit(stand.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        for _ in range(20):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert body.startswith(b"{"), "the head came by itself"


def test_last_request_is_answered_before_the_connection_closes(stand: Stand) -> None:
    address = urlsplit(stand.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        whole = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert whole.partition(b"\r\n\r\n")[2].startswith(b"{")


def test_large_response_is_complete(client: httpx.Client) -> None:
    run_id = client.post(
        "/runs", json={"flow_name": "hello", "tag": unique("unserved"), "params": {"text": "x" * 200_000}}
    ).json()["run_id"]
    for _ in range(3):
        assert len(client.get(f"/runs/{run_id}").json()["params"]["text"]) == 200_000


class Written(asyncio.Protocol):
    """The writing side; records whether it is to pause."""

    def __init__(self) -> None:
        self.is_paused = False
        self.transport: CoalescingTransport | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one
        self.transport = CoalescingTransport(transport)

    @override
    def pause_writing(self) -> None:
        self.is_paused = True


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[CoalescingTransport, Written, asyncio.StreamReader]]:
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


def test_writes_of_one_turn_are_read_together_and_in_order() -> None:
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


def test_abort_drops_what_is_unsent() -> None:
    async def body() -> None:
        async with connected() as (transport, _, reader):
            transport.write(b"never")
            transport.abort()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    asyncio.run(body())


@pytest.mark.parametrize("parts", [[bytes(8_000_000)], [bytes(1_000)] * 8_000])
def test_protocol_pauses_when_the_client_does_not_read(parts: Iterable[bytes]) -> None:
    async def body() -> None:
        async with connected() as (transport, protocol, _):
            for part in parts:
                transport.write(part)
            assert protocol.is_paused

    asyncio.run(body())


def changed_uvicorn(directory: Path, change: Callable[[str], str]) -> Path:
    """Copy the installed uvicorn, with a changed module of the HTTP protocol."""
    library = directory / "changed"
    shutil.copytree(Path(uvicorn.__file__).parent, library / "uvicorn", ignore=shutil.ignore_patterns("__pycache__"))
    module = library / "uvicorn" / "protocols" / "http" / "httptools_impl.py"
    module.write_text(change(module.read_text(encoding="utf-8")), encoding="utf-8")
    return library


def test_installed_uvicorn_passes_the_check() -> None:
    assert write_coalescing.PROBLEMS == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("def connection_made", "def opened", "HttpToolsProtocol.connection_made does not use FlowControl"),
        ("self.transport", "self.wire", "HttpToolsProtocol.connection_made does not use transport"),
        ("class HttpToolsProtocol(asyncio.Protocol)", "class HttpToolsProtocol(object)", "is no asyncio.Protocol"),
        ("send_400_response", "refuse", "HttpToolsProtocol.data_received does not use send_400_response"),
        ("class HttpToolsProtocol", "class FastProtocol", "has no attribute 'HttpToolsProtocol'"),
    ],
)
def test_gateway_falls_back_to_the_protocol_of_a_changed_uvicorn(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    def change(text: str) -> str:
        return text.replace(old, new)

    library = changed_uvicorn(tmp_path, change)
    port, nats_port = free_port(), free_port()
    arguments = ("up", "--port", str(port), "--nats-client-port", str(nats_port))
    with serving(tmp_path, *arguments, port=port, PYTHONPATH=str(library)) as served:
        answer = httpx.post(f"{served.url}/runs", json={"flow_name": "hello"}, timeout=20, verify=NO_TLS)
        assert answer.status_code == 200, answer.text
        code, output = served.stop()
    assert code == 0
    assert output.count("its own protocol is used, which is slower") == 1
    assert problem in output
