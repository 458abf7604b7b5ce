"""The floor: the operations a run needs on NATS, made by nats-py with nothing around them.

The submitter and the worker share a process, as nothing else would be less. A durable floor is that of a server which
syncs every message by itself (``sync_interval: always``), as NATS does; who lets messages share syncs may do more.
"""

import asyncio
import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, PersistMode, RetentionPolicy, StreamConfig

from bench.peers import proc
from bench.peers.programs.client_loop import many
from pyoco_server.adapters.jetstream.durability.policy import Durability, SyncedBy
from pyoco_server.adapters.nats_server import NatsServer

RUNS = 600
SINGLE = 60
SLOTS = 16
WARM_UP = 20
BODY = b"x" * 1_500
EVENTS, SNAPSHOTS, WORK = "PYOCO_EVENTS", "KV_pyoco_runs", "PYOCO_WORK"

Submit = Callable[[], Awaitable[None]]
Handled = Callable[[], int]


@dataclass(frozen=True)
class Operations:
    """What one run costs on NATS, beside one job, one pull and one ACK."""

    appends: int = 5
    """One of them by the submitter."""
    snapshots: int = 2
    """One of them by the submitter."""
    snapshots_async: bool = False
    """Are snapshots on a stream that acknowledges before it writes?"""
    jobs_async: bool = False
    """Are jobs?"""


@dataclass(frozen=True)
class Measured:
    """What so many runs took."""

    runs_per_sec: float
    """With many under way."""
    latency_ms: float
    """The median from submission to ACK, with one under way."""
    cpu_ms: float
    """A run with many under way: of this process, and of the NATS server if it was given."""


async def until(holds: Callable[[], bool], *, pause_sec: float) -> None:
    """Wait for it."""
    while not holds():  # noqa: ASYNC110 counters have no event
        await asyncio.sleep(pause_sec)


async def measure(submit: Submit, handled: Handled, *, runs: int = RUNS, nats_pid: int | None = None) -> Measured:
    """Many at a time, then one at a time."""
    before, gate = handled(), asyncio.Semaphore(SLOTS)

    async def one() -> None:
        async with gate:
            await submit()

    used, began = _processor_sec(nats_pid), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(runs)))
    await until(lambda: handled() >= before + runs, pause_sec=0.001)
    rate = runs / (time.perf_counter() - began)
    used = _processor_sec(nats_pid) - used
    times = []
    for _ in range(min(SINGLE, runs)):
        before, began = handled(), time.perf_counter()
        await submit()
        await until(lambda: handled() > before, pause_sec=0.0)  # noqa: B023 called at once
        times.append(time.perf_counter() - began)
    return Measured(rate, statistics.median(times) * 1e3, used / runs * 1e3)


def _processor_sec(nats_pid: int | None) -> float:
    return time.process_time() + (proc.processor_sec([nats_pid]) if nats_pid is not None else 0.0)


class Floor:
    """The same operations with nothing around them."""

    def __init__(self, outside: Any, inside: Any, operations: Operations) -> None:  # noqa: ANN401 nats-py has no types to speak of
        self.outside = outside
        self.inside = inside
        self.handled = 0
        self._operations = operations
        self._number = 0

    async def submit(self) -> None:
        """Append, then snapshot and job side by side."""
        self._number += 1
        name = f"run{self._number}"
        headers = {"Nats-Expected-Last-Subject-Sequence": "0"}
        await self.outside.publish(f"floor.events.{name}", BODY, headers=headers)
        await asyncio.gather(
            self.outside.publish(f"floor.kv.{name}", BODY),
            self.outside.publish("floor.work.default", name.encode(), headers={"Nats-Msg-Id": name}),
        )

    async def slot(self, pulls: Any) -> None:  # noqa: ANN401
        """Pull, append as often as a run does, snapshot, ACK."""
        while True:
            try:
                [message] = await pulls.fetch(1, timeout=1)
            except TimeoutError:
                continue
            name = message.data.decode()
            for _ in range(self._operations.appends - 1):
                await self.inside.publish(f"floor.events.{name}", BODY)
            for _ in range(self._operations.snapshots - 1):
                await self.inside.publish(f"floor.kv.{name}", BODY)
            await message.ack_sync()
            self.handled += 1


async def floor(durability: Durability, operations: Operations | None = None, *, runs: int = RUNS) -> Measured:
    """So many runs of these operations, on a server of their own."""
    operations = operations or Operations()
    async with (
        raw_server(durability) as server,
        connected(server.url) as inside,
        connected(server.url) as outside,
    ):
        js = inside.jetstream()
        await _make_streams(js, operations)
        measured = Floor(outside.jetstream(), js, operations)
        async with _working(js, measured):
            for _ in range(WARM_UP):
                await measured.submit()
            await until(lambda: measured.handled >= WARM_UP, pause_sec=0.01)
            return await measure(measured.submit, lambda: measured.handled, runs=runs, nats_pid=server.pid)


async def submissions(durability: Durability, operations: Operations, count: int) -> tuple[float, float]:
    """Raw submissions a second with many under way, and the median milliseconds of one."""
    async with raw_server(durability) as server, connected(server.url) as connection:
        await _make_streams(connection.jetstream(), operations)
        measured = Floor(connection.jetstream(), None, operations)
        return await submission_figures(measured.submit, count)


async def submission_figures(submit: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """Submissions a second with many under way, and the median milliseconds of one alone."""
    for _ in range(WARM_UP):
        await submit()
    began = time.perf_counter()
    done = await many(submit, count, SLOTS, math.inf)
    rate = done / (time.perf_counter() - began)
    times = []
    for _ in range(min(SINGLE, count)):
        began = time.perf_counter()
        await submit()
        times.append(time.perf_counter() - began)
    return rate, statistics.median(times) * 1e3


async def _make_streams(js: Any, operations: Operations) -> None:  # noqa: ANN401
    snapshots, jobs = (
        PersistMode.ASYNC if is_async else None for is_async in (operations.snapshots_async, operations.jobs_async)
    )
    queue = RetentionPolicy.WORK_QUEUE
    for config in (
        StreamConfig(name="FLOOR_EVENTS", subjects=["floor.events.>"]),
        StreamConfig(name="FLOOR_KV", subjects=["floor.kv.>"], max_msgs_per_subject=1, persist_mode=snapshots),
        StreamConfig(name="FLOOR_WORK", subjects=["floor.work.>"], retention=queue, persist_mode=jobs),
    ):
        await js.add_stream(config)


@contextlib.asynccontextmanager
async def _working(js: Any, measured: Floor) -> AsyncIterator[None]:  # noqa: ANN401
    config = ConsumerConfig(durable_name="floor", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1_000)
    pulls = [
        await js.pull_subscribe("floor.work.default", durable="floor", stream="FLOOR_WORK", config=config)
        for _ in range(SLOTS)
    ]
    slots = [asyncio.create_task(measured.slot(pull)) for pull in pulls]
    try:
        yield
    finally:
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)


@contextlib.asynccontextmanager
async def raw_server(durability: Durability) -> AsyncIterator[NatsServer]:
    """A server for raw operations; a durable one syncs by itself."""
    synced_by: SyncedBy | None = "server" if durability == "sync" else None
    with tempfile.TemporaryDirectory(prefix="pyoco-bench-") as name:
        async with NatsServer(Path(name), durability=durability, synced_by=synced_by) as server:
            yield server


async def append_ms(durability: Durability, count: int) -> float:
    """Milliseconds of one raw append, when one follows the other."""
    async with raw_server(durability) as server, connected(server.url) as connection:
        js = connection.jetstream()
        await js.add_stream(StreamConfig(name="FLOOR_CHAIN", subjects=["floor.chain.>"]))
        for _ in range(WARM_UP):
            await js.publish("floor.chain.warm", BODY)
        began = time.perf_counter()
        for _ in range(count):
            await js.publish("floor.chain.run", BODY)
        return (time.perf_counter() - began) / count * 1e3


async def stored(url: str) -> dict[str, int]:
    """How many messages were ever stored in the streams a run writes to."""
    async with connected(url) as connection:
        js = connection.jetstream()
        infos = {name: await js.stream_info(name) for name in (EVENTS, SNAPSHOTS, WORK)}
        return {name: int(info.state.last_seq) for name, info in infos.items()}


async def operations_like(url: str, *, appends: int = 5, snapshots: int = 2) -> Operations:
    """So many, on streams that are as safe as the platform's."""
    async with connected(url) as connection:
        js = connection.jetstream()
        modes = [(await js.stream_info(name)).config.persist_mode for name in (SNAPSHOTS, WORK)]
    kv_async, work_async = (mode == PersistMode.ASYNC for mode in modes)
    return Operations(appends, snapshots, kv_async, work_async)


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection that is closed afterwards."""
    connection = await nats.connect(url)
    try:
        yield connection
    finally:
        await connection.close()
