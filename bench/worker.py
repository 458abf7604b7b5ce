"""What a run costs on the worker, beside the same number of raw operations on NATS: the floor nobody can go below.

One process submits and works, as the floor does; three no-op coroutines a run. Per run: one append, one snapshot and
one job to submit; one pull, four appends, one snapshot and one ACK to run.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig

from bench.engine import chain, nothing_async
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.submitting import Submission
from pyoco_server.bootstrap import open_platform, open_worker, submitter, worker_options
from pyoco_server.cli.garbage import collect_less_often
from pyoco_server.core import Actor, ActorKind
from pyoco_server.settings import load_settings
from pyoco_server.worker.flow_source import Flows, FlowSource

RUNS = 600
SINGLE = 60
SLOTS = 16
APPENDS_BY_WORKER = 4
BODY = b"x" * 1_500
ME = Actor(ActorKind.USER, "bench")

Submit = Callable[[], Awaitable[None]]
Handled = Callable[[], int]


async def until(holds: Callable[[], bool], *, pause_sec: float) -> None:
    """Wait for it."""
    while not holds():  # noqa: ASYNC110 counters have no event
        await asyncio.sleep(pause_sec)


async def measure(submit: Submit, handled: Handled) -> tuple[float, float]:
    """Runs a second with many under way, and the median milliseconds from submission to ACK with one."""
    before, gate = handled(), asyncio.Semaphore(SLOTS)

    async def one() -> None:
        async with gate:
            await submit()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(RUNS)))
    await until(lambda: handled() >= before + RUNS, pause_sec=0.001)
    rate = RUNS / (time.perf_counter() - began)
    times = []
    for _ in range(SINGLE):
        before, began = handled(), time.perf_counter()
        await submit()
        await until(lambda: handled() > before, pause_sec=0.0)  # noqa: B023 called at once
        times.append(time.perf_counter() - began)
    return rate, statistics.median(times) * 1e3


async def ours(url: str) -> tuple[float, float]:
    """The platform."""
    settings = load_settings({"PYOCO_NATS_URL": url, "PYOCO_WORKER_CONCURRENCY": str(SLOTS)}).settings
    flows = {"three": chain(nothing_async)}
    async with (
        open_platform(settings, name="bench submitter") as outside,
        open_platform(settings, name="bench worker") as inside,
        open_worker(inside, settings, worker_options(settings), FlowSource(Flows(flows))) as worker,
    ):
        working = asyncio.create_task(worker.run())
        desk = submitter(outside, settings)

        async def submit() -> None:
            await desk.submit(Submission(flow_name="three"), ME)

        for _ in range(20):
            await submit()
        await until(lambda: worker.handled >= 20, pause_sec=0.01)
        result = await measure(submit, lambda: worker.handled)
        worker.stop()
        await working
        return result


class Floor:
    """The same operations with nothing around them."""

    def __init__(self, outside: Any, inside: Any) -> None:  # noqa: ANN401 nats-py has no types to speak of
        self.outside = outside
        self.inside = inside
        self.handled = 0
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
            for _ in range(APPENDS_BY_WORKER):
                await self.inside.publish(f"floor.events.{name}", BODY)
            await self.inside.publish(f"floor.kv.{name}", BODY)
            await message.ack_sync()
            self.handled += 1


async def floor(url: str) -> tuple[float, float]:
    """Raw nats-py."""
    outside, inside = await nats.connect(url), await nats.connect(url)
    js = inside.jetstream()
    await js.add_stream(StreamConfig(name="FLOOR_EVENTS", subjects=["floor.events.>"]))
    await js.add_stream(StreamConfig(name="FLOOR_KV", subjects=["floor.kv.>"], max_msgs_per_subject=1))
    await js.add_stream(
        StreamConfig(name="FLOOR_WORK", subjects=["floor.work.>"], retention=RetentionPolicy.WORK_QUEUE)
    )
    config = ConsumerConfig(durable_name="floor", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=1_000)
    measured = Floor(outside.jetstream(), js)
    pulls = [
        await js.pull_subscribe("floor.work.default", durable="floor", stream="FLOOR_WORK", config=config)
        for _ in range(SLOTS)
    ]
    slots = [asyncio.create_task(measured.slot(pull)) for pull in pulls]
    try:
        for _ in range(20):
            await measured.submit()
        await until(lambda: measured.handled >= 20, pause_sec=0.01)
        return await measure(measured.submit, lambda: measured.handled)
    finally:
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        await outside.close()
        await inside.close()


async def main() -> None:
    """Print the table."""
    collect_less_often()
    print("three no-op tasks a run, one worker, submitted in the same process")
    for durability, told in (("sync", "fsync on"), ("fast", "fsync off")):
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            async with NatsServer(directory, durability=durability) as server:  # type: ignore[arg-type]
                rows = {"floor": await floor(server.url), "ours": await ours(server.url)}
        for name, (rate, latency) in rows.items():
            print(f"  {told:<9} {name:<5} {rate:8.0f} runs/s   {latency:6.2f} ms from submission to ACK")
        rate_ratio = rows["ours"][0] / rows["floor"][0]
        latency_ratio = rows["ours"][1] / rows["floor"][1]
        print(f"  {told:<9} ratio {rate_ratio:8.2f} (at least 0.5)  {latency_ratio:6.2f} (at most 2)")


if __name__ == "__main__":
    asyncio.run(main())
