"""Workers with random versions of flows, and what is done to them when a run's log has got so far."""

import asyncio
import itertools
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Final

from pyoco_server.app.snapshots.projection import worker_name
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.flows.model import FlowModel
from tests.kill.fleet import Fleet, WorkerProcess
from tests.kill.own_graph_cases import Case, write_flows

_WORKERS: Final = 2
_ROOT: Final = Path(__file__).parents[2]


class Deployed:
    """Workers with random versions of some flows, of which a few are always there."""

    def __init__(self, there: Fleet, luck: random.Random) -> None:
        self.there = there
        self.luck = luck
        self.stopped: Counter[str] = Counter()
        """How many workers were lost, by signal."""
        self.has_whole = False
        """Does a worker have all of the code?"""
        self._versions: dict[str, list[FlowModel]] = {}
        self._alive: dict[str, WorkerProcess] = {}
        self._wholes: set[str] = set()
        self._numbers = itertools.count(1)

    async def deploy(self, versions: dict[str, list[FlowModel]]) -> None:
        """Replace all workers by those that have these flows; the last version of each has all of the code."""
        for worker in self._alive.values():
            worker.kill()
        self._alive, self._versions = {}, versions
        for _ in range(_WORKERS):
            self.start()
        await asyncio.gather(*(worker.ready() for worker in self._alive.values()))

    def start(self, *, whole: bool = False) -> None:
        """Start a worker."""
        name = f"w{next(self._numbers)}"
        file = self.there.home / f"flows_of_{name}.py"
        code = {each: those[-1] if whole else self.luck.choice(those[:-1]) for each, those in self._versions.items()}
        write_flows(file, code)
        self._alive[name] = self.there.start_worker(
            name,
            flows=file,
            KILL_TEST_WORKER=name,
            PYTHONPATH=str(_ROOT),
            # A job that others must take goes to every slot of the workers that declined it before it reaches the next.
            PYOCO_WORKER_CONCURRENCY="3",
        )
        if whole:
            self._wholes.add(name)

    def start_whole(self) -> None:
        """Start a worker with all of the code unless there is one."""
        if not self._wholes & self._alive.keys():
            self.start(whole=True)

    def lose(self, name: str) -> None:
        """Kill a worker, or have it stop, and start another in its place."""
        worker = self._alive.pop(name, None)
        if worker is None:
            return
        how = self.luck.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        worker.send(how)
        self.stopped[how.name] += 1
        self.start()


class Interruptions:
    """Counts the commits of the runs under way, and does to each run at a commit what its case says."""

    def __init__(self, there: Fleet, deployed: Deployed) -> None:
        self.cases: dict[str, Case] = {}
        self.latest = time.monotonic()
        """When the latest commit was seen."""
        self._there = there
        self._deployed = deployed
        self._commits: Counter[str] = Counter()
        self._doing: set[asyncio.Task[None]] = set()

    def appended(self, run_id: str, _position: int) -> None:
        """A log has one more commit."""
        self.latest = time.monotonic()
        case = self.cases.get(run_id)
        if case is None:
            return
        self._commits[run_id] += 1
        number = self._commits[run_id]
        if number in case.lose_at:
            self._doing.add(asyncio.create_task(self._lose_owner(run_id)))
        if number == case.cancel_at:
            self._doing.add(asyncio.create_task(self._cancel(run_id)))

    async def done(self) -> None:
        """Wait for all that is under way, and raise what went wrong in it."""
        doing, self._doing = self._doing, set()
        await asyncio.gather(*doing)

    async def _lose_owner(self, run_id: str) -> None:
        events, _ = await self._there.platform.log.read(run_id)
        marks = [each.payload.worker_id for each in events if isinstance(each.payload, NodeStarted)]
        owners = [name for mark in marks if (name := worker_name(mark)) is not None]
        if owners:
            self._deployed.lose(owners[-1])

    async def _cancel(self, run_id: str) -> None:
        await self._there.cancel(run_id, "no longer wanted")
