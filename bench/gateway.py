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
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bench.engine import chain, nothing_async
from bench.worker import RUNS, SLOTS, floor, measure
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.bootstrap import Platform, open_platform, open_worker, worker_options
from pyoco_server.settings import load_settings
from pyoco_server.worker.flow_source import FlowSource

SUBMISSIONS = 2_000
PAGES = 300
WARM_UP = 20
SIZES = (1_000, 10_000, 100_000)
WATCHERS = 1_000
AT_ONCE = 500
EVERY_SEC = 0.5


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


async def pages(directory: Path) -> None:
    """Print what a page of a list costs with so many finished runs there, and how that grows.

    Every size has a server and a gateway of its own, and they take turns, so that what else the machine does is the
    same for all.
    """
    async with contextlib.AsyncExitStack() as stack:
        asked = [await _filled(await stack.enter_async_context(_stand(directory / str(size))), size) for size in SIZES]
        first = await _medians([(made, "/runs") for made, _, _ in asked])
        middle = await _medians([(made, path) for made, path, _ in asked])
        for (_, _, there), one, other in zip(asked, first, middle, strict=True):
            print(f"a page of 50 of {there:>7,}  {one:7.2f} ms the first   {other:6.2f} ms in the middle")
        print(
            f"  {SIZES[-1]:,} to {SIZES[0]:,}     {first[-1] / first[0]:7.2f} times     {middle[-1] / middle[0]:9.2f}"
        )


@contextlib.asynccontextmanager
async def _stand(directory: Path) -> AsyncIterator[tuple[Platform, Gateway]]:
    """NATS, a gateway, and a connection of our own. What is on the disk when is of no concern to those who read."""
    async with NatsServer(directory / "nats", durability="fast") as server:
        settings = load_settings({"PYOCO_NATS_URL": server.url}).settings
        async with open_platform(settings, name="bench") as inside, gateway(server.url, directory / "data") as made:
            yield inside, made


async def _filled(stand: tuple[Platform, Gateway], runs: int) -> tuple[Gateway, str, int]:
    """The gateway when its list has so many finished runs, the path of a page in the middle, and how many there are.

    One of them was really run. The others are its snapshot once more, stored as a worker stores it, with ids and times
    of their own: a list is made of snapshots, and knows nothing else.
    """
    inside, made = stand
    real = await _one_real_run(inside, made)
    gate = asyncio.Semaphore(AT_ONCE)

    async def store(number: int) -> None:
        run_id, back = uuid.uuid4().hex, number * EVERY_SEC
        times = {name: real[name] - back for name in ("submitted_at", "updated_at", "heartbeat_at")}
        async with gate:
            body = json.dumps({**real, "run_id": run_id, **times}).encode()
            await inside.snapshots.write(run_id, body, position=real["log_position"], revision=0)

    await asyncio.gather(*(store(number) for number in range(1, runs)))
    while await _count(made, "COMPLETED") < runs:  # noqa: ASYNC110 the gateway has no event for it
        await asyncio.sleep(0.05)
    there = int(await _count(made))
    made.begin_anew()
    page = await made.ask("GET", "/runs?updated_after=0&limit=200")
    for _ in range(runs // 400):
        page = await made.ask("GET", f"/runs?limit=200&cursor={page['next_cursor']}")
    return made, f"/runs?cursor={page['next_cursor']}", there


async def _one_real_run(inside: Platform, made: Gateway) -> dict[str, Any]:
    """The snapshot of a run that was submitted over HTTP and brought to its end by a worker."""
    settings = load_settings({}).settings
    flows = {"three": chain(nothing_async)}
    async with open_worker(inside, settings, worker_options(settings), FlowSource(flows.__getitem__)) as worker:
        working = asyncio.create_task(worker.run())
        run_id = (await made.ask("POST", "/runs", {"flow_name": "three"}))["run_id"]
        while worker.handled < 1:  # noqa: ASYNC110 nor has the worker
            await asyncio.sleep(0.01)
        worker.stop()
        await working
    stored = await inside.snapshots.read(run_id)
    snapshot: dict[str, Any] = json.loads(stored.body) if stored is not None else {}
    if snapshot.get("status") != "COMPLETED":
        raise RuntimeError(f"the run did not succeed: {snapshot}")
    return snapshot


async def _medians(asked: Sequence[tuple[Gateway, str]]) -> list[float]:
    """For each: the median milliseconds of many requests, which take turns."""
    times = [list[float]() for _ in asked]
    for made, _ in asked:
        made.begin_anew()
    for round_ in range(-WARM_UP, PAGES):
        for place, (made, path) in enumerate(asked):
            began = time.perf_counter()
            await made.ask("GET", path)
            if round_ >= 0:
                times[place].append(time.perf_counter() - began)
    return [statistics.median(taken) * 1e3 for taken in times]


async def _count(made: Gateway, status: str = "") -> float:
    """How many runs the gateway's metrics tell of: all, or those of one status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    rows = [line for line in text.splitlines() if line.startswith("pyoco_runs_total{") and status in line]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


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
        await pages(directory / "pages")
        async with (
            NatsServer(directory / "nats", durability="sync") as server,
            gateway(server.url, directory / "data") as made,
        ):
            rate, latency = await submissions(made)
            print(f"submissions over HTTP   {rate:7.0f} a second   {latency:6.2f} ms for one")
            took, each = await watchers(made)
            print(f"{WATCHERS:,} watchers          {took:7.1f} ms for one change   {each:6.1f} KiB each")
            print(f"{RUNS} runs of three no-op tasks, one worker, fsync on")
            rows = {"floor": await floor(server.url), "HTTP": await whole_runs(made, server.url)}
            for row, (runs, single) in rows.items():
                print(f"  {row:<6} {runs:7.0f} runs/s   {single:6.2f} ms from submission to ACK")


if __name__ == "__main__":
    asyncio.run(main())
