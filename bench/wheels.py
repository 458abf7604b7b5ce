"""What a large wheel costs: up and down through the gateway, against a file that is only copied.

The plain copy goes over the same HTTP server: an application that writes what comes to a file, and sends it back. The
gateway does more with a wheel: it checks every file in it and stores it, durably, in NATS. Both take turns.
"""

import argparse
import asyncio
import base64
import contextlib
import hashlib
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.client import Client

MIB = 2**20
SIZE = 200 * MIB
ROUNDS = 3
PIECE = 1 * MIB
NAME = "large-1.0-py3-none-any.whl"
_INFO = "large-1.0.dist-info"


def make_wheel(path: Path) -> None:
    """A sound wheel of which nothing can be packed."""
    digest = hashlib.sha256()
    metadata = b"Metadata-Version: 2.1\nName: large\nVersion: 1.0\n"
    kind = b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with tempfile.TemporaryFile() as content, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as packed:
        for _ in range(SIZE // PIECE):
            piece = secrets.token_bytes(PIECE)
            digest.update(piece)
            content.write(piece)
        content.seek(0)
        entry = zipfile.ZipInfo("large/data.bin", (2024, 1, 1, 0, 0, 0))
        entry.file_size = SIZE
        with packed.open(entry, "w") as target:
            while piece := content.read(PIECE):
                target.write(piece)
        files = {f"{_INFO}/METADATA": metadata, f"{_INFO}/WHEEL": kind}
        lines = [_line("large/data.bin", digest.digest(), SIZE)]
        for name, text in files.items():
            packed.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), text)
            lines.append(_line(name, hashlib.sha256(text).digest(), len(text)))
        record = "\n".join([*lines, f"{_INFO}/RECORD,,", ""])
        packed.writestr(zipfile.ZipInfo(f"{_INFO}/RECORD", (2024, 1, 1, 0, 0, 0)), record)


def _line(name: str, digest: bytes, size: int) -> str:
    return f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{size}"


# --- A file that is only copied --------------------------------------------------------------------------------------


def copying(target: Path) -> Starlette:
    """Keeps what it is sent, and sends it back."""

    async def keep(request: Request) -> Response:
        with target.open("wb") as file:
            async for piece in request.stream():
                await asyncio.to_thread(file.write, piece)
        return PlainTextResponse("kept")

    async def give(_: Request) -> Response:
        return FileResponse(target)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/file", keep, methods=["POST"]), Route("/file", give), Route("/health", health)])


def serve_copies(port: int, target: Path) -> None:
    """As a process of its own."""
    uvicorn.run(copying(target), host="127.0.0.1", port=port, log_level="error", access_log=False)


# --- The two of them -------------------------------------------------------------------------------------------------


class Server:
    """A process that serves."""

    def __init__(self, port: int, pid: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._pid = pid

    def most_memory_mib(self) -> float:
        """The most it ever had."""
        status = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("VmHWM:")).split()[1]) / 1024


@contextlib.asynccontextmanager
async def started(*arguments: str, port: int, **variables: str) -> AsyncIterator[Server]:
    """Run a Python module until it is not needed any more."""
    environment = {**os.environ, "PYOCO_LOG_LEVEL": "ERROR", "PYOCO_LOAD_DOTENV": "0", **variables}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *arguments, env=environment)
    try:
        made = Server(port, process.pid)
        await asyncio.to_thread(_until_it_answers, made.url)
        yield made
    finally:
        process.terminate()
        await process.wait()


def _until_it_answers(url: str) -> None:
    for _ in range(200):
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/health", timeout=2)
            return
        time.sleep(0.05)
    raise TimeoutError(f"{url} did not come up")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def copy_round(url: str, file: Path) -> tuple[float, float]:
    """Seconds up and down of a plain copy."""
    with httpx.Client(base_url=url, timeout=120) as client:
        began = time.perf_counter()
        client.post("/file", content=_pieces(file)).raise_for_status()
        up = time.perf_counter() - began
        return up, _download(client, "/file")


def wheel_round(url: str, file: Path) -> tuple[float, float]:
    """Seconds up and down of a wheel, which is deleted afterwards."""
    with Client(url) as ours, httpx.Client(base_url=url, timeout=120) as client:
        began = time.perf_counter()
        ours.upload_wheel(file)
        up = time.perf_counter() - began
        down = _download(client, f"/wheels/{NAME}")
        ours.delete_wheel(NAME)
    return up, down


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(64 * 1024):
            yield piece


def _download(client: httpx.Client, path: str) -> float:
    began, came = time.perf_counter(), 0
    with client.stream("GET", path) as answer:
        answer.raise_for_status()
        for piece in answer.iter_raw():
            came += len(piece)
    if came < SIZE:
        raise RuntimeError(f"{path}: only {came} bytes came")
    return time.perf_counter() - began


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = directory / NAME
        make_wheel(file)
        ports = free_port(), free_port()
        async with (
            NatsServer(directory / "nats", durability="sync") as nats,
            started("bench.wheels", "--copies", str(ports[0]), str(directory / "copy"), port=ports[0]) as copies,
            started(
                *("pyoco_server.cli.server", "up", "--port", str(ports[1]), "--nats-url", nats.url),
                port=ports[1],
                PYOCO_DATA_DIR=str(directory / "data"),
            ) as gateway,
        ):
            before = gateway.most_memory_mib()
            times: dict[str, list[tuple[float, float]]] = {"plain copy": [], "wheel": []}
            for _ in range(ROUNDS):
                times["plain copy"].append(await asyncio.to_thread(copy_round, copies.url, file))
                times["wheel"].append(await asyncio.to_thread(wheel_round, gateway.url, file))
            rates = {
                row: [SIZE / MIB / statistics.median(seconds) for seconds in zip(*found, strict=True)]
                for row, found in times.items()
            }
            print(f"a file of {SIZE // MIB} MiB over HTTP, median of {ROUNDS} rounds in turn")
            for row, (up, down) in rates.items():
                print(f"  {row:<11} {up:7.0f} MiB/s up   {down:7.0f} MiB/s down")
            up, down = (wheel / copy for copy, wheel in zip(rates["plain copy"], rates["wheel"], strict=True))
            print(f"  ratio       {up:7.2f} up         {down:7.2f} down")
            after = gateway.most_memory_mib()
            print(f"  the gateway's memory: {before:.0f} MiB before, {after:.0f} MiB at most")
            print(f"  the copying server's: {copies.most_memory_mib():.0f} MiB at most")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--copies", nargs=2, metavar=("PORT", "FILE"), help="serve plain copies")
    given = parser.parse_args()
    if given.copies:
        serve_copies(int(given.copies[0]), Path(given.copies[1]))
    else:
        asyncio.run(main())
