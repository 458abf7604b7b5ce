"""A server, workers as processes of their own, and what is done to them."""

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pyoco_server import bootstrap
from pyoco_server.adapters.nats_server import NatsServer
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.app.submitting import Submission, Submitter
from pyoco_server.bootstrap import Platform
from pyoco_server.core import Actor, ActorKind
from pyoco_server.settings import Settings, load_settings
from tests.kill.flows import TRACES
from tests.kill.reading import read_log, told

FULL: Final = os.environ.get("PYOCO_KILL_SCALE") == "full"
ME: Final = Actor(ActorKind.USER, "tester")
TAG: Final = "default"
ENDED: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})

HASTY: Final = {
    "PYOCO_CONSUMER_ACK_WAIT_SEC": "2",
    "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "0.5",
    "PYOCO_CONSUMER_MAX_DELIVER": "500",
    "PYOCO_RUN_HEARTBEAT_INTERVAL_SEC": "0.5",
}
"""Settings under which a dead worker is missed soon, and a run survives many of them."""

timeout = pytest.mark.timeout(1_800 if FULL else 120)

Snapshot = dict[str, Any]


def scaled(small: int, full: int) -> int:
    """How many: few every day, many on demand (PYOCO_KILL_SCALE=full)."""
    return full if FULL else small


def chance() -> random.Random:
    """Chance with a seed that can be given again (PYOCO_KILL_SEED)."""
    seed = int(os.environ.get("PYOCO_KILL_SEED") or random.randrange(1_000_000))
    sys.stdout.write(f"PYOCO_KILL_SEED={seed}\n")
    return random.Random(seed)


def report(figures: str) -> None:
    """Say what was measured; shown with ``pytest -rP``."""
    sys.stdout.write(f"{figures}\n")


async def eventually(
    holds: Callable[[], Awaitable[object]], what: Callable[[], str] | str, *, within: float = 30.0, pause: float = 0.02
) -> None:
    """Come back when it holds; AssertionError says what did not."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what if isinstance(what, str) else what()}"
        await asyncio.sleep(pause)


class WorkerProcess:
    """A ``pyoco-worker`` of our own."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.name = name
        self.output = output
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL: it can do nothing about anything any more."""
        self.send(signal.SIGKILL)
        self._process.wait()

    async def exit_code(self, within: float = 20.0) -> int:
        """Wait for its end."""
        return await asyncio.to_thread(self._process.wait, within)

    async def ready(self) -> None:
        """Wait until it takes jobs."""
        await eventually(self._is_ready, lambda: f"{self.name} takes jobs\n{self.output.read_text()}")

    async def _is_ready(self) -> bool:
        assert self.is_alive, f"{self.name} died at its start\n{self.output.read_text()}"
        return self.said("worker_started") > 0

    def said(self, action: str) -> int:
        """How often its log tells of something."""
        return self.output.read_text().count(f'"action": "{action}"')

    def memory(self) -> int:
        """How much memory it has, in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))


class Fleet:
    """Everything there is in one test."""

    def __init__(
        self, server: NatsServer, platform: Platform, settings: Settings, variables: Mapping[str, str], home: Path
    ) -> None:
        self.server = server
        self.platform = platform
        self.settings = settings
        self.submitter: Submitter = bootstrap.submitter(platform, settings)
        self.desk: RunDesk = bootstrap.run_desk(platform, settings)
        self.home = home
        self.traces = home / "traces"
        self.workers: list[WorkerProcess] = []
        self.refused: list[str] = []
        """Runs that were not accepted."""
        self._variables = variables

    # --- Workers -----------------------------------------------------------------------------------------------------

    def start_worker(
        self, name: str | None = None, *, url: str | None = None, limit_memory: int = 0, **variables: str
    ) -> WorkerProcess:
        """Start a worker; ``limit_memory`` is the most it may have, in bytes."""
        name = name or f"w{len(self.workers) + 1}"
        output = self.home / f"{name}-{len(self.workers)}.log"
        command = [sys.executable, "-m", "pyoco_server.cli.worker", "--worker-id", name]
        command += ["--nats-url", url or self.server.url, "--flows", str(Path(__file__).with_name("flows.py"))]
        with output.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 our own program
                command,
                cwd=self.home,
                env={**os.environ, **self._variables, TRACES: str(self.traces), **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        if limit_memory:
            resource.prlimit(process.pid, resource.RLIMIT_AS, (limit_memory, limit_memory))
        worker = WorkerProcess(name, process, output)
        self.workers.append(worker)
        return worker

    async def end_workers(self) -> None:
        """Kill them all; what they started ends by itself."""
        for worker in self.workers:
            worker.kill()
        await eventually(self._is_alone, lambda: f"no process is left, but there are {self._left()}", within=10)

    async def _is_alone(self) -> bool:
        return not self._left()

    def _left(self) -> list[int]:
        """The processes that know where traces go: workers, and those they started."""
        mark, found = f"{TRACES}={self.traces}".encode(), list[int]()
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    # --- Runs --------------------------------------------------------------------------------------------------------

    async def submit(self, flow_name: str, **params: object) -> str:
        """Submit a run and return its id; its tasks can see it."""
        run_id = uuid.uuid4().hex
        submission = Submission(flow_name=flow_name, params={"run": run_id, **params}, tag=TAG)
        await self.submitter.submit(submission, ME, run_id=run_id)
        return run_id

    async def submit_all(self, flow_names: Iterable[str], *, at_once: int = 32) -> list[str]:
        """Submit many; those that are not accepted are kept in ``refused``."""
        places, accepted = asyncio.Semaphore(at_once), list[str]()

        async def one(flow_name: str) -> None:
            async with places:
                run_id = uuid.uuid4().hex
                submission = Submission(flow_name=flow_name, params={"run": run_id}, tag=TAG)
                try:
                    await self.submitter.submit(submission, ME, run_id=run_id)
                except UnavailableError:
                    self.refused.append(run_id)
                    await eventually(self._is_connected, "the connection is back")
                else:
                    accepted.append(run_id)

        await asyncio.gather(*map(one, flow_names))
        return accepted

    async def _is_connected(self) -> bool:
        return self.platform.connection.is_connected

    async def snapshot(self, run_id: str) -> Snapshot:
        """How a run stands."""
        stored = await self.platform.snapshots.read(run_id)
        assert stored is not None, f"run {run_id} has no snapshot"
        snapshot: Snapshot = json.loads(stored.body)
        return snapshot

    async def until(
        self, run_id: str, holds: Callable[[Snapshot], object], *, within: float = 30.0, pause: float = 0.02
    ) -> Snapshot:
        """Wait until a run's snapshot is as it should be, and return it."""
        found: Snapshot = {}

        async def look() -> object:
            nonlocal found
            found = await self.snapshot(run_id)
            return holds(found)

        await eventually(look, lambda: f"run {run_id}: {json.dumps(found)}", within=within, pause=pause)
        return found

    async def until_all(
        self, run_ids: Collection[str], holds: Callable[[Snapshot], object], *, within: float = 60.0
    ) -> None:
        """Wait until this is true of the snapshots of all runs; which ones it is not true of is told."""
        left = dict.fromkeys(run_ids)

        async def look() -> bool:
            while left:
                some = list(left)[:100]
                with contextlib.suppress(UnavailableError):
                    for run_id, found in zip(some, await asyncio.gather(*map(self.snapshot, some)), strict=True):
                        if holds(found):
                            del left[run_id]
                if any(run_id in left for run_id in some):
                    return False
            return True

        try:
            await eventually(look, lambda: f"{len(left)} runs are where they should be", within=within, pause=0.1)
        except AssertionError as problem:
            raise AssertionError(
                "\n".join([str(problem), *[await self.told(run_id) for run_id in [*left][:3]]])
            ) from None

    async def until_all_ended(self, run_ids: Collection[str], *, within: float = 60.0) -> None:
        """Wait until all runs have ended."""
        await self.until_all(run_ids, lambda snapshot: snapshot["status"] in ENDED, within=within)

    async def told(self, run_id: str) -> str:
        """A run in words: its snapshot and its log."""
        log = told(await read_log(self.platform, self.settings, run_id))
        return f"run {run_id}: {json.dumps(await self.snapshot(run_id))}\n{log}"

    async def resume_waits(self, run_ids: Collection[str], chance: random.Random) -> None:
        """Resume every wait of these runs some time after it began to wait; comes back when all have been."""
        left = set(run_ids)
        while left:
            for run_id in sorted(left):
                with contextlib.suppress(UnavailableError):
                    found = await self.snapshot(run_id)
                    if found["status"] in ENDED:
                        left.discard(run_id)
                    elif found["waiting"] and chance.random() < 0.3:
                        await self.desk.resume(run_id, "approval", {"by": "tester"}, ME)
                        left.discard(run_id)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def fleet(home: Path, **variables: str) -> AsyncIterator[Fleet]:
    """A server with nobody on it but us; ``variables`` are settings of all."""
    (home / "traces").mkdir()
    async with NatsServer(home / "nats") as server:
        everywhere = {**HASTY, **variables, "PYOCO_NATS_URL": server.url, "PYOCO_LOAD_DOTENV": "0"}
        settings = load_settings(everywhere).settings
        async with bootstrap.open_platform(settings, name="tester") as platform:
            made = Fleet(server, platform, settings, everywhere, home)
            try:
                yield made
            finally:
                await made.end_workers()
