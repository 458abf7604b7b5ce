"""What the gateway costs: submissions, lists, watchers, and a run from its submission over HTTP to its end.

The gateway is a process of its own, as it is in production; the worker and those who ask share another.
"""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.engine import chain, nothing_async
from bench.worker import RUNS, SLOTS, floor, measure
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.bootstrap import open_platform, open_worker, worker_options
from pyoco_server.settings import load_settings
from pyoco_server.worker.flow_source import FlowSource

SUBMISSIONS = 2_000
PAGES = 100
SIZES = (1_000, 10_000)
WATCHERS = 1_000
BATCH = 500


class Connection:
    """One connection to the gateway, kept open; as little work as HTTP allows."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 any JSON
        """Send a request and return what came back."""
        self.send(method, path, body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = json.loads(await self._reader.readexactly(length))
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            raise RuntimeError(f"{method} {path}: {content}")
        return content

    def send(self, method: str, path: str, body: object = None) -> None:
        """Send a request."""
        content = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n{kind}Content-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)

    async def event(self) -> None:
        """Wait for the next snapshot of a watched run."""
        await self._reader.readuntil(b"event: snapshot")
        await self._reader.readuntil(b"\n\n")

    def close(self) -> None:
        """Leave."""
        self._writer.transport.abort()


class Gateway:
    """The gateway's process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid
        self._free: list[Connection] = []

    @property
    def memory_mib(self) -> float:
        """What it holds."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def begin_anew(self) -> None:
        """Let go of all connections: the gateway closes those nobody used for a while."""
        while self._free:
            self._free.pop().close()

    async def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 any JSON
        """Ask on a connection nobody uses."""
        connection = self._free.pop() if self._free else await Connection.open(self.port)
        answer = await connection.ask(method, path, body)
        self._free.append(connection)
        return answer


@contextlib.asynccontextmanager
async def gateway(nats_url: str, directory: Path) -> AsyncIterator[Gateway]:
    """A gateway that listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    environment = {
        **os.environ,
        "PYOCO_DATA_DIR": str(directory),
        "PYOCO_LOG_LEVEL": "ERROR",
        "PYOCO_LOAD_DOTENV": "0",
        "PYOCO_WATCH_MAX_PER_CLIENT": str(2 * WATCHERS),
    }
    command = [sys.executable, "-m", "pyoco_server.cli.server", "up", "--port", str(port), "--nats-url", nats_url]
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        made = Gateway(port, process.pid)
        await _until_it_answers(made)
        yield made
    finally:
        process.terminate()
        await process.wait()


async def _until_it_answers(made: Gateway) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError):
            await made.ask("GET", "/health")
            return
        await asyncio.sleep(0.05)
    raise TimeoutError("the gateway did not come up")


async def submissions(made: Gateway) -> tuple[float, float]:
    """Submissions a second with many under way, and the median milliseconds of one."""
    gate = asyncio.Semaphore(SLOTS)
    body = {"flow_name": "three", "tag": "nobody", "params": {"n": 1}}

    async def one() -> None:
        async with gate:
            await made.ask("POST", "/runs", body)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(SUBMISSIONS)))
    rate = SUBMISSIONS / (time.perf_counter() - began)
    times = []
    for _ in range(100):
        began = time.perf_counter()
        await one()
        times.append(time.perf_counter() - began)
    return rate, statistics.median(times) * 1e3


async def pages(made: Gateway, runs: int) -> tuple[float, float]:
    """Median milliseconds of the first page and of one in the middle, with so many runs there."""
    there = int(await _count(made))
    while there < runs:
        count = min(BATCH, runs - there)
        await made.ask("POST", "/runs/batch", {"runs": [{"flow_name": "three", "tag": "nobody"}] * count})
        there += count
    while await _count(made) < runs:  # noqa: ASYNC110 the gateway has no event for it
        await asyncio.sleep(0.05)
    page = await made.ask("GET", "/runs?updated_after=0&limit=200")
    for _ in range(runs // 400):
        page = await made.ask("GET", f"/runs?limit=200&cursor={page['next_cursor']}")
    middle = f"/runs?cursor={page['next_cursor']}"
    return await _median(made, "/runs"), await _median(made, middle)


async def _median(made: Gateway, path: str) -> float:
    times = []
    for _ in range(PAGES):
        began = time.perf_counter()
        await made.ask("GET", path)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


async def _count(made: Gateway) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("pyoco_runs_total{"))


async def watchers(made: Gateway) -> tuple[float, float]:
    """Milliseconds until the last of all watchers has seen one change, and kibibytes a watcher."""
    run = await made.ask("POST", "/runs", {"flow_name": "three", "tag": "nobody"})
    before = made.memory_mib
    readers = [await Connection.open(made.port) for _ in range(WATCHERS)]
    for reader in readers:
        reader.send("GET", f"/runs/{run['run_id']}/watch")
    await asyncio.gather(*(reader.event() for reader in readers))
    each = (made.memory_mib - before) * 1024 / WATCHERS
    seen = asyncio.gather(*(reader.event() for reader in readers))
    await asyncio.sleep(0.5)
    began = time.perf_counter()
    await made.ask("POST", f"/runs/{run['run_id']}/cancel")
    await seen
    took = (time.perf_counter() - began) * 1e3
    for reader in readers:
        reader.close()
    return took, each


async def whole_runs(made: Gateway, nats_url: str) -> tuple[float, float]:
    """Runs a second and the median milliseconds from a submission over HTTP to its ACK, with one worker."""
    settings = load_settings({"PYOCO_NATS_URL": nats_url, "PYOCO_WORKER_CONCURRENCY": str(SLOTS)}).settings
    flows = {"three": chain(nothing_async)}
    async with (
        open_platform(settings, name="bench worker") as inside,
        open_worker(inside, settings, worker_options(settings), FlowSource(flows.__getitem__)) as worker,
    ):
        working = asyncio.create_task(worker.run())
        made.begin_anew()

        async def submit() -> None:
            await made.ask("POST", "/runs", {"flow_name": "three"})

        for _ in range(20):
            await submit()
        while worker.handled < 20:  # noqa: ASYNC110 nor has the worker
            await asyncio.sleep(0.01)
        result = await measure(submit, lambda: worker.handled)
        worker.stop()
        await working
        return result


async def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with (
            NatsServer(directory / "nats", durability="sync") as server,
            gateway(server.url, directory / "data") as made,
        ):
            rate, latency = await submissions(made)
            print(f"submissions over HTTP   {rate:7.0f} a second   {latency:6.2f} ms for one")
            for size in SIZES:
                first, middle = await pages(made, max(size, SUBMISSIONS + 100) if size == SIZES[0] else size)
                print(f"a page of 50 of {size:>7,}  {first:7.2f} ms the first   {middle:6.2f} ms in the middle")
            took, each = await watchers(made)
            print(f"{WATCHERS:,} watchers          {took:7.1f} ms for one change   {each:6.1f} KiB each")
            print(f"{RUNS} runs of three no-op tasks, one worker, fsync on")
            rows = {"floor": await floor(server.url), "HTTP": await whole_runs(made, server.url)}
            for row, (runs, single) in rows.items():
                print(f"  {row:<6} {runs:7.0f} runs/s   {single:6.2f} ms from submission to ACK")


if __name__ == "__main__":
    asyncio.run(main())
