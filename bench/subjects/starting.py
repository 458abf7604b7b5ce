"""A cold start: from the start of ``pyoco-server dev`` with nothing there to the end of a first run."""

import asyncio
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.asking import Asker, completed
from bench.peers.stand import free_ports
from bench.rows import Row, Size
from bench.serving import BIN, QUIET, stand_here

FLOWS = Path(__file__).parents[1] / "peers" / "programs" / "pyoco_flows.py"
LOOK_SEC = 0.01


def rows(size: Size) -> Iterator[Row]:
    """Durable, in a new directory every time."""
    times = [asyncio.run(_started()) for _ in range(size.choose(5, 2))]
    subject = "cold start, pyoco-server dev"
    yield Row(subject, "from its start until it answers", statistics.median(up for up, _ in times), "s")
    yield Row(subject, "from its start to a first run's end", statistics.median(done for _, done in times), "s")


async def _started() -> tuple[float, float]:
    with stand_here() as stand:
        (port,) = free_ports(1)
        shutil.copy(FLOWS, stand.directory / "flows.py")
        began = time.perf_counter()
        stand.start("dev", [str(BIN / "pyoco-server"), "dev", "flows.py", "--port", str(port)], env=QUIET)
        asker = Asker(port)
        run_id = await _first_submission(asker)
        up = time.perf_counter() - began
        await asker.until(run_id, completed, pause_sec=LOOK_SEC)
        return up, time.perf_counter() - began


async def _first_submission(asker: Asker) -> str:
    """Submit as soon as a gateway accepts it."""
    while True:
        try:
            return await asker.submit("three")
        except OSError:
            await asyncio.sleep(LOOK_SEC)
