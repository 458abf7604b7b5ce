"""``python -m tests.rebuild --runs 100000``: how long it takes to rebuild everything from the log alone.

Appends the logs of so many runs in every state, deletes every bucket and the queue, starts a gateway, and reports when
it was ready, and when all runs were listed with their statuses and had the jobs they need to continue.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.bootstrap.platform import open_platform
from pyoco_server.settings import Settings
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import settings_for
from tests.rebuild.stored import append_logs, by_status, delete_everything_derived, kinds

LOOK_SEC = 0.2


def main() -> int:
    """Rebuild once; return 1 if a run is missing or has the wrong status."""
    parser = argparse.ArgumentParser(prog="python -m tests.rebuild")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--patience-sec", type=float, default=1_800.0)
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("pyoco_server.app.recovery.rebuild").setLevel(logging.INFO)
    with tempfile.TemporaryDirectory() as directory, NatsServer(Path(directory)) as server:
        settings = settings_for(server.url, Path(directory) / "data")
        return asyncio.run(_rebuild(settings, given.runs, given.patience_sec))


async def _rebuild(settings: Settings, runs: int, patience_sec: float) -> int:
    made = await kinds()
    began = time.monotonic()
    async with open_platform(settings, name="the stopped platform") as platform:
        ids = await append_logs(platform, made, runs)
        await delete_everything_derived(platform)
    _say(f"appended the logs of {runs:,} runs", began)
    expected = by_status(made, ids, ended=False)
    began = time.monotonic()
    async with open_gateway(settings) as services:
        _say("the gateway is ready", began)
        found = Counter[str]()
        while found != expected and time.monotonic() < began + patience_sec:
            await asyncio.sleep(LOOK_SEC)
            found = Counter(await services.index.counts())
        _say(f"all runs are listed: {dict(found)}", began)
        _say(f"{await services.queue.backlog('default'):,} jobs are queued", began)
    return 0 if found == expected else 1


def _say(what: str, began: float) -> None:
    sys.stdout.write(f"{time.monotonic() - began:8.1f} s  {what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
