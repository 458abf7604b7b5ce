"""What a run costs on the worker, beside the same number of raw operations on NATS: the floor.

One process submits and works, as the floor does; three no-op coroutines a run. Per run: one append, one snapshot and
one job to submit; one pull, four appends, one snapshot and one ACK to run.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path

from bench.engine import chain, nothing_async
from bench.floor import SLOTS, WARM_UP, Measured, floor, measure, until
from pyoco_server.adapters.jetstream.durability.policy import Durability
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.runs.submit import Submission
from pyoco_server.bootstrap import open_platform, open_worker, submitter, worker_options
from pyoco_server.cli.shared.startup import collect_less_often
from pyoco_server.core import Actor, ActorKind
from pyoco_server.settings import load_settings
from pyoco_server.worker.flow_source import Flows, FlowSource

ME = Actor(ActorKind.USER, "bench")


async def ours(url: str) -> Measured:
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

        for _ in range(WARM_UP):
            await submit()
        await until(lambda: worker.handled >= WARM_UP, pause_sec=0.01)
        result = await measure(submit, lambda: worker.handled)
        worker.stop()
        await working
        return result


async def main() -> None:
    """Print the table."""
    collect_less_often()
    print("three no-op tasks a run, one worker, submitted in the same process")
    kinds: dict[Durability, str] = {"sync": "fsync on", "fast": "fsync off"}
    for durability, words in kinds.items():
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            async with NatsServer(directory, durability=durability) as server:
                rows = {"floor": await floor(durability), "ours": await ours(server.url)}
        for name, row in rows.items():
            print(
                f"  {words:<9} {name:<5} {row.runs_per_sec:8.0f} runs/s   "
                f"{row.latency_ms:6.2f} ms from submission to ACK"
            )
        rate_ratio = rows["ours"].runs_per_sec / rows["floor"].runs_per_sec
        latency_ratio = rows["ours"].latency_ms / rows["floor"].latency_ms
        print(f"  {words:<9} ratio {rate_ratio:8.2f} (at least 0.5)  {latency_ratio:6.2f} (at most 2)")


if __name__ == "__main__":
    asyncio.run(main())
