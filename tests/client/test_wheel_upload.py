"""Uploads of wheels from files: sent as they are read, with progress."""

import asyncio
import contextlib
import os
import pty
import re
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from pyoco_server.client import AsyncClient, Client
from pyoco_server.client.errors import GatewayUnreachableError
from tests.client.scripted_gateway import Answer, ScriptedGateway, says

SIZE = 48 * 1024 * 1024
NAME = "big-1-py3-none-any.whl"
ANSWER = b'{"name": "big-1-py3-none-any.whl"}'


class Swallower:
    """Reads one request to its end, keeps nothing of its body, and answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.head = b""
        self.came = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(20)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while b"\r\n\r\n" not in self.head:
                self.head += connection.recv(65_536)
            self.head, _, rest = self.head.partition(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", self.head.lower())
            left = int(found[1]) - len(rest) if found else 0
            self.came = len(rest)
            while left > 0 and (part := connection.recv(1 << 20)):
                left -= len(part)
                self.came += len(part)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    with path.open("wb") as file:
        file.truncate(SIZE)
    return path


@contextlib.contextmanager
def little_memory(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.spec("004 REQ-0025")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_large_file_is_never_in_memory(large: Path, kind: type[Client] | type[AsyncClient]) -> None:
    progress: list[tuple[int, int]] = []

    async def upload(url: str) -> object:
        async with AsyncClient(url) as client:
            return await client.upload_wheel(large, progress=lambda sent, size: progress.append((sent, size)))

    with Swallower() as server, little_memory(SIZE // 4):
        if kind is AsyncClient:
            answer = asyncio.run(upload(server.url))
        else:
            with Client(server.url) as client:
                answer = client.upload_wheel(large, progress=lambda sent, size: progress.append((sent, size)))
    assert answer == {"name": NAME}
    assert b"transfer-encoding" not in server.head.lower(), "how long it is, is known"
    assert server.came > SIZE
    assert progress == sorted(progress)
    assert progress[-1] == (SIZE, SIZE)
    assert len(progress) > 100


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_not_sent(gateway: ScriptedGateway, tmp_path: Path, kind: str) -> None:
    path = tmp_path if kind == "folder" else tmp_path / NAME
    with Client(gateway.url) as client, pytest.raises(OSError, match=r"directory|No such file"):
        client.upload_wheel(path, name=NAME)
    assert gateway.requests == []


def test_a_connection_that_breaks_leaves_the_outcome_open_and_no_file(gateway: ScriptedGateway, large: Path) -> None:
    gateway.on("POST", "/wheels", Answer(body=b"{", cut_off=True))
    with Client(gateway.url) as client, pytest.raises(GatewayUnreachableError) as broken:
        client.upload_wheel(large)
    assert broken.value.outcome_unknown
    assert str(large) not in _open_files()


def _open_files() -> set[str]:
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(fd.readlink()))
    return found


def _command(gateway: ScriptedGateway, path: Path) -> list[str]:
    arguments = ["wheel-upload", "--wheel-file", str(path), "--server", gateway.url]
    return [sys.executable, "-m", "pyoco_server.cli.client", *arguments]


def test_on_a_terminal_the_command_shows_how_far_it_is(gateway: ScriptedGateway, large: Path) -> None:
    gateway.on("POST", "/wheels", says({"name": NAME, "size_bytes": SIZE}))
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
    process = subprocess.Popen(  # noqa: S603 our own command
        _command(gateway, large), stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the error of a terminal that was closed
        while part := os.read(ours, 65_536):
            shown += part
    output, _ = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == 0, shown
    assert b"50.3" in shown
    assert b"/s" in shown
    assert "━".encode() in shown
    assert b'"size_bytes"' in output, "what is piped is JSON, whatever is shown beside it"
    assert b"\x1b" not in output


def test_a_pipe_gets_only_the_answer(gateway: ScriptedGateway, large: Path) -> None:
    gateway.on("POST", "/wheels", says({"name": NAME, "size_bytes": SIZE}))
    done = subprocess.run(_command(gateway, large), capture_output=True, timeout=60, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
