"""Gateways and workers as processes of their own on one NATS, and the runs they are given."""

import asyncio
import contextlib
import json
import random
import resource
import socket
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyoco_server import bootstrap
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.app.runs.submit import Submission, Submitter
from pyoco_server.bootstrap import Platform
from pyoco_server.core import Actor, ActorKind
from pyoco_server.settings import Settings
from tests.kill.flows import TRACES
from tests.kill.processes import GatewayProcess, Process, WorkerProcess, eventually
from tests.kill.reading import described, read_log

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

_FLOWS: Final = Path(__file__).with_name("flows.py")

Snapshot = dict[str, Any]


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which no process listens."""
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
        return port


class NoSnapshotError(AssertionError):
    """A run has no snapshot; a replica of a cluster may not have it yet."""


class Crew:
    """All gateways and workers on one NATS, and the test's own connection to it."""

    def __init__(self, platform: Platform, settings: Settings, variables: Mapping[str, str], home: Path) -> None:
        """``variables`` are settings of all; among them where NATS is."""
        self.platform = platform
        self.settings = settings
        self.submitter: Submitter = bootstrap.submitter(platform, settings)
        self.run_log: RunLog = bootstrap.run_log_of(platform, settings)
        self._commands = RunCommands(self.run_log, platform.graphs)
        self.home = home
        self.traces = home / "traces"
        self.traces.mkdir(exist_ok=True)
        self.workers: list[WorkerProcess] = []
        self.gateways: list[GatewayProcess] = []
        self.refused: list[str] = []
        """Runs that were not accepted."""
        self._variables = variables

    # --- Commands, by the code that HTTP requests use ----------------------------------------------------------------

    async def cancel(self, run_id: str, reason: str | None = None) -> Snapshot:
        """Cancel a run and return the answer."""
        return await self._commands.cancel(run_id, Sender(actor=ME), reason)

    async def resume(self, run_id: str, node_id: str, value: object) -> None:
        """Resume a wait."""
        await self._commands.resume(run_id, node_id, value, Sender(actor=ME))

    # --- Processes ---------------------------------------------------------------------------------------------------

    def start_worker(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        limit_memory: int = 0,
        within: Sequence[str] = (),
        flows: Path = _FLOWS,
        **variables: str,
    ) -> WorkerProcess:
        """Start a worker; ``limit_memory`` is the most it may have, in bytes; ``within`` goes before its command."""
        name = name or f"w{len(self.workers) + 1}"
        output = self.home / f"{name}-{len(self.workers)}.log"
        command = [*within, sys.executable, "-m", "pyoco_server.cli.worker", "--worker-id", name]
        command += ["--nats-url", url or self._variables["PYOCO_NATS_URL"], "--flows", str(flows)]
        env = {**self._variables, TRACES: str(self.traces), **variables}
        worker = WorkerProcess.start(name, command, output, cwd=self.home, env=env)
        if limit_memory:
            resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit_memory, limit_memory))
        self.workers.append(worker)
        return worker

    def start_gateway(
        self,
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        within: Sequence[str] = (),
        **variables: str,
    ) -> GatewayProcess:
        """Start a gateway, at a port of its own unless one is given; its index is kept under its name."""
        port = port or free_port(host)
        output = self.home / f"{name}-{len(self.gateways)}.log"
        command = [
            *within,
            sys.executable,
            "-m",
            "pyoco_server.cli.server",
            "up",
            "--host",
            host,
            "--port",
            str(port),
        ]
        data = {"PYOCO_DATA_DIR": str(self.home / f"{name}-data"), "PYOCO_INSECURE_NO_AUTH": "1"}
        env = {**self._variables, TRACES: str(self.traces), **data, **variables}
        gateway = GatewayProcess.start(name, command, output, cwd=self.home, env=env)
        gateway.url = f"http://{host}:{port}"
        self.gateways.append(gateway)
        return gateway

    async def end_all(self) -> None:
        """Kill them all; what they started ends by itself."""
        processes: list[Process] = [*self.workers, *self.gateways]
        for process in processes:
            process.kill()
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

    async def submit(self, flow_name: str, *, run_id: str | None = None, **params: object) -> str:
        """Submit a run and return its id; its tasks can see it."""
        run_id = run_id or uuid.uuid4().hex
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
        if stored is None:
            raise NoSnapshotError(f"run {run_id} has no snapshot")
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
        """Wait until this is true of the snapshots of all runs; the error describes those of which it is not."""
        left = dict.fromkeys(run_ids)

        async def look() -> bool:
            while left:
                some = list(left)[:100]
                with contextlib.suppress(UnavailableError, NoSnapshotError):
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
                "\n".join([str(problem), *[await self.described(run_id) for run_id in [*left][:3]]])
            ) from None

    async def until_all_ended(self, run_ids: Collection[str], *, within: float = 60.0) -> None:
        """Wait until all runs have ended."""
        await self.until_all(run_ids, lambda snapshot: snapshot["status"] in ENDED, within=within)

    async def described(self, run_id: str) -> str:
        """A run in words: its snapshot and its log."""
        log = described(await read_log(self.platform, self.settings, run_id))
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
                        await self.resume(run_id, "approval", {"by": "tester"})
                        left.discard(run_id)
            await asyncio.sleep(0.05)
