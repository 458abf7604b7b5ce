"""The cost of API keys: the same requests to two gateways, one that requires keys and one that does not.

Both are processes of their own on one NATS, and take turns in one run, so that what else the machine does hits both.
The second ratio is of the processor time a request costs the gateway, which others on the machine change less.
"""

import asyncio
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.bootstrap.gateway import open_key_service
from pyoco_server.client import AsyncClient
from pyoco_server.settings import load_settings

ROUNDS = 20
REQUESTS = 150
CONNECTIONS = 16
GOAL = 0.9
PEPPER = "a pepper of the benchmark"
KINDS = {"look at a run": b"", "list runs": b"", "submit a run": b'{"flow_name": "three", "tag": "unserved"}'}


class Gateway:
    """A gateway's process, for a client with a key or without one."""

    def __init__(self, port: int, pid: int, key: str | None) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.run_id = ""
        self._port = port
        self._pid = pid
        self._key = key

    def request(self, kind: str) -> bytes:
        """The bytes of a request, made once."""
        body = KINDS[kind]
        path = f"/runs/{self.run_id}" if kind == "look at a run" else "/runs"
        head = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        head += ["Content-Type: application/json"] if body else []
        head += [f"X-API-Key: {self._key}"] if self._key is not None else []
        return "\r\n".join([*head, "", ""]).encode() + body

    def processor_sec(self) -> float:
        """What the process has used so far."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def rate(self, kind: str) -> tuple[float, float]:
        """Requests a second of time, and of processor time, with several connections at work."""
        request = self.request(kind)
        opened = [await asyncio.open_connection("127.0.0.1", self._port) for _ in range(CONNECTIONS)]
        left = iter(range(REQUESTS))

        async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in left:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(head.decode())
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))

        used, began = self.processor_sec(), time.perf_counter()
        await asyncio.gather(*(work(*connection) for connection in opened))
        took = time.perf_counter() - began
        for _, writer in opened:
            writer.close()
        return REQUESTS / took, REQUESTS / max(self.processor_sec() - used, 0.01)


@contextlib.asynccontextmanager
async def serving(nats_url: str, directory: Path, key: str | None) -> AsyncIterator[Gateway]:
    """A gateway with one run to look at."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    environment = {**os.environ, "PYOCO_DATA_DIR": str(directory), "PYOCO_LOG_LEVEL": "ERROR", "PYOCO_LOAD_DOTENV": "0"}
    if key is not None:
        environment |= {"PYOCO_HTTP_AUTH_MODE": "api_key", "PYOCO_AUTH_PEPPER": PEPPER}
    command = [sys.executable, "-m", "pyoco_server.cli.server", "up", "--port", str(port), "--nats-url", nats_url]
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        made = Gateway(port, process.pid, key)
        async with AsyncClient(made.url, api_key=key, retries=100) as client:
            await client.health()
            made.run_id = await client.submit("three", tag="unserved")
        yield made
    finally:
        process.terminate()
        await process.wait()


async def new_key(nats_url: str) -> str:
    """A key for one tenant."""
    given = {"PYOCO_NATS_URL": nats_url, "PYOCO_AUTH_PEPPER": PEPPER, "PYOCO_LOAD_DOTENV": "0"}
    async with open_key_service(load_settings(given).settings) as desk:
        return (await desk.create("acme")).text


class Compared(NamedTuple):
    """Median requests a second without and with keys, the ratio of each round, and that of the processor time."""

    free: float
    guarded: float
    ratios: list[float]
    of_processor: float


async def compare(kind: str, free: Gateway, guarded: Gateway) -> Compared:
    """Let them take turns, also at being first."""
    rates: dict[Gateway, list[tuple[float, float]]] = {free: [], guarded: []}
    for number in range(ROUNDS):
        for gateway in (free, guarded) if number % 2 else (guarded, free):
            rates[gateway].append(await gateway.rate(kind))
    (before, cost_before), (after, cost_after) = (zip(*rates[gateway], strict=True) for gateway in (free, guarded))
    ratios = [with_key / without for without, with_key in zip(before, after, strict=True)]
    of_processor = statistics.harmonic_mean(cost_after) / statistics.harmonic_mean(cost_before)
    return Compared(statistics.median(before), statistics.median(after), ratios, of_processor)


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with NatsServer(directory / "nats", durability="sync") as server:
            key = await new_key(server.url)
            async with (
                serving(server.url, directory / "free", None) as free,
                serving(server.url, directory / "guarded", key) as guarded,
            ):
                for gateway in (free, guarded):  # caches and connections
                    for kind in KINDS:
                        await gateway.rate(kind)
                print(f"requests a second, median of {ROUNDS} rounds in turn   (goal: ratio ≥ {GOAL})")
                for kind in KINDS:
                    found = await compare(kind, free, guarded)
                    low, _, high = statistics.quantiles(found.ratios, n=4)
                    print(
                        f"  {kind:<14} {found.free:7.0f} without keys   {found.guarded:7.0f} with keys   "
                        f"ratio {statistics.median(found.ratios):.2f} ({low:.2f} to {high:.2f}), "
                        f"{found.of_processor:.2f} of processor time"
                    )


if __name__ == "__main__":
    asyncio.run(main())
