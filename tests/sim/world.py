"""One world: a store, gateways, workers and clients, and the faults that its seed chooses.

In the first phase faults occur, and every answer must be correct. In the second none occurs, and every run must end.
"""

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import UnavailableError
from pyoco_server.worker.worker import Worker
from tests.sim import faults
from tests.sim.actors import ACK_WAIT_SEC, Gateway, Store, make_worker
from tests.sim.checks import check_at_the_end, quiet_problem
from tests.sim.clients import Client
from tests.sim.clock import SimClock
from tests.sim.flows import FLOWS, WHOLE, edited
from tests.sim.history import History
from tests.sim.loop import Process, SimLoop, StuckError
from tests.sim.network import Line, Network, at_once
from tests.sim.outside import GRAPHS, LATE_SEC, Outside, has_outsiders
from tests.sim.outsiders import Outsider

EVERY_DEPLOYED: Final = 3
"""One of this many worlds has workers with different code; in the others all workers have the same flows."""
DEPLOYS: Final = 2
"""How many more workers stop, and come back with other code."""
LIVENESS_SEC: Final = 120.0
"""The time after the last fault in which all runs must end."""
QUIET_SEC: Final = 40.0
"""The time after that in which snapshots and lists must become current."""


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold, and how."""

    invariant: str
    details: str

    @override
    def __str__(self) -> str:
        return f"{self.invariant}: {self.details}"


class Outcome(msgspec.Struct, frozen=True):
    """The result of a simulation."""

    seed: int
    violations: tuple[Violation, ...]
    trace: tuple[Line, ...]
    faults: faults.Faults
    accepted: int
    seconds: float
    steps: int


class Place:
    """A gateway or a worker across its lives: each start after a crash or a stop has a new process."""

    def __init__(self, name: str, process: Process, clock: SimClock) -> None:
        self.name = name
        self.process = process
        self.clock = clock
        self.gateway: Gateway | None = None
        self.worker: Worker | None = None
        self.index: SqliteRunIndex | None = None


class World:
    """A world made from a seed; it can be simulated once."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = SimLoop(self._chance("order"))
        self.network = Network(self.loop, self._chance("network"))
        self.chance = self._chance("world")
        self.faults = faults.choose(self._chance("faults"))
        self.store = Store(self.loop, self.network, self._chance("queue"), max_deliver=self.faults.max_deliver)
        self.history = History()
        self.violations: list[Violation] = []
        self.runs: list[str] = []
        """Runs that a gateway has confirmed."""
        self.flow_of: dict[str, str] = {}
        self.keys: list[tuple[str, str]] = []
        """Idempotency keys in use, with their flows."""
        self.resumed: set[tuple[str, str]] = set()
        """Pairs of run and node that a gateway has confirmed as resumed."""
        self.watched: set[str] = set()
        """Runs that a client is watching."""
        self.outside = Outside()
        self.gateways: list[Place] = []
        self.workers: list[Place] = []
        self.called: Counter[tuple[str, str]] = Counter()
        self.missed: set[str] = set()
        """Flows that a worker did not have in one of its lives."""
        self.has_deploys = seed % EVERY_DEPLOYED == 1
        """Whether workers come back with edited flows."""
        self._is_whole = False
        """Whether workers that start from now on have all flows."""
        self._lives = 0
        self.loop.on_crash = self._crash
        self.loop.on_pause = self._pause
        self.store.snapshots.on_regress = lambda details: self.violation("snapshots never go back", details)
        self.loop.at_work = self._at_work

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    # --- Reports from clients, stores and tasks ----------------------------------------------------------------------

    def violation(self, invariant: str, details: str) -> None:
        """Record that an invariant does not hold."""
        self.network.note(f"VIOLATION {invariant}: {details}", self.loop.server)
        self.violations.append(Violation(invariant, details))

    @property
    def known(self) -> list[str]:
        """Runs and executions that a gateway has confirmed."""
        return [*self.runs, *self.outside.executions]

    def note_run(self, run_id: str, flow_name: str) -> None:
        """Record that a gateway has confirmed a run."""
        if run_id not in self.flow_of:
            self.flow_of[run_id] = flow_name
            self.runs.append(run_id)

    def _at_work(self, run_id: str, task: str) -> int:
        self.network.note(f"calls {task} of {run_id}")
        self.called[run_id, task] += 1
        log, node = self.store.log, (run_id, task)
        if node in log.succeeded and log.begun[node] <= log.succeeded[node]:
            self.violation("what has succeeded is called again only as a logged attempt", f"{task} of {run_id}")
        return self.called[run_id, task]

    # --- Processes ---------------------------------------------------------------------------------------------------

    def _place(self, name: str) -> Place:
        skew = self.faults.skew_sec * (2 * self.chance.random() - 1)
        return Place(name, self.loop.process(name), SimClock(self.loop, skew))

    def _start(self, place: Place) -> None:
        self._lives += 1
        chance = self._chance(f"life {self._lives}")
        if place in self.gateways:
            self.loop.start(place.process, self._run_gateway(place, chance))
        else:
            self.loop.start(place.process, self._run_worker(place, chance))

    async def _run_gateway(self, place: Place, chance: random.Random) -> None:
        if place.index is None:
            place.index = SqliteRunIndex()
        place.gateway = Gateway(self.loop, self.network, self.store, place.index, place.clock, chance)
        await place.gateway.run(sweeps=self.faults.sweeps)

    def _code(self) -> tuple[Mapping[str, Flow], bool]:
        """Return the flows of a worker's next life, and whether it can enumerate them."""
        code = self._chance(f"code {self._lives}")
        if not self.has_deploys:
            return FLOWS, True
        flows = WHOLE if self._is_whole else FLOWS if code.random() < 0.2 else edited(code)
        self.missed |= FLOWS.keys() - flows.keys()
        return flows, code.random() < 0.8

    async def _run_worker(self, place: Place, chance: random.Random) -> None:
        flows, announces = self._code()
        place.worker = make_worker(self.store, place.name, place.clock, chance, flows, announces=announces)
        try:
            await place.worker.run()
        except UnavailableError:
            self.network.note("could not start")
        except (Exception, asyncio.CancelledError) as error:  # a worker that ends with an error is a finding
            if self.network.is_over:
                raise
            self.violation("no worker dies by itself", repr(error))
        self._restart_later(place)

    def _crash(self, process: Process) -> None:
        place = next(each for each in (*self.gateways, *self.workers) if each.process is process)
        self.network.note("CRASH", process)
        self.loop.kill(process)
        self._restart_later(place)

    def _restart_later(self, place: Place) -> None:
        if not self.network.is_over:
            self.loop.server_later(0.1 + 2 * self.chance.random(), self._restart, place)

    def _restart(self, place: Place) -> None:
        self.loop.kill(place.process)
        place.process = self.loop.process(place.name)
        place.gateway = place.worker = None
        self.network.note("starts again", place.process)
        self._start(place)

    # --- Trouble -----------------------------------------------------------------------------------------------------

    async def _trouble(self, until: float) -> None:
        """Cause the planned faults, one after the other, until the given time."""
        planned = [
            *[self._plan_crash] * self.faults.crashes,
            *[self._plan_pause] * self.faults.pauses,
            *[self._cut_off] * self.faults.cuts,
            *[self._stop_worker] * (self.faults.stops + (DEPLOYS if self.has_deploys else 0)),
        ]
        self.chance.shuffle(planned)
        for deed in planned:
            await asyncio.sleep(self.chance.random() * 2 * (until - self.loop.time()) / (len(planned) + 1))
            if self.loop.time() >= until:
                return
            deed()

    def _victim(self) -> Place:
        """Choose a process for a fault; gateways only if they reconcile, so that another life completes their work."""
        gateways = self.gateways if self.faults.sweeps else []
        return self.chance.choice([*gateways, *self.workers, *self.workers])

    def _plan_crash(self) -> None:
        """Make a process crash before one of its next steps."""
        process = self._victim().process
        if process.crash_at < process.steps:
            process.crash_at = self._soon(process)

    def _plan_pause(self) -> None:
        """Make a process pause before one of its next steps."""
        process = self._victim().process
        if process.pause_at < process.steps:
            process.pause_at = self._soon(process)

    def _soon(self, process: Process) -> int:
        """Return one of the next steps: choosing a step, not a time, hits the busy phases of a process."""
        return process.steps + 1 + int(300 * self.chance.random() ** 2)

    def _pause(self, process: Process) -> None:
        seconds = 2.2 * ACK_WAIT_SEC * self.chance.random()
        self.network.note(f"PAUSED for {seconds:.2f} s", process)
        self.loop.pause(process)
        self.loop.server_later(seconds, self.loop.unpause, process)

    def _cut_off(self) -> None:
        name, seconds = self._victim().name, 2 * ACK_WAIT_SEC * self.chance.random()
        self.network.note(f"CUT OFF {name} for {seconds:.2f} s", self.loop.server)
        self.network.cut_off.add(name)
        self.loop.server_later(seconds, self.network.cut_off.discard, name)

    def _stop_worker(self) -> None:
        worker = self.chance.choice(self.workers).worker
        if worker is not None:
            self.network.note("STOP a worker", self.loop.server)
            worker.stop()

    def _rage(self) -> None:
        self.network.rates = self.faults.rates
        self.network.hint_loss = self.faults.hint_loss
        self.store.queue.repeat, self.store.queue.wake_loss = self.faults.repeat, self.faults.wake_loss
        slowest = self.faults.slow_disk_sec
        if slowest:
            self.loop.disk_delay = lambda: slowest * self.chance.random() ** 4

    def _calm(self) -> None:
        """End all faults, except the errors of clocks."""
        self.network.note("CALM", self.loop.server)
        self.network.rates, self.network.hint_loss = {}, 0.0
        self.store.queue.repeat, self.store.queue.wake_loss = 0.0, 0.0
        self.network.cut_off.clear()
        self.loop.disk_delay = lambda: 0.0
        for place in (*self.gateways, *self.workers):
            place.process.crash_at = place.process.pause_at = -1
            self.loop.unpause(place.process)
        if self.has_deploys:
            self._deploy()

    def _deploy(self) -> None:
        """Start every worker again with all flows, so that held runs resume."""
        self._is_whole = True
        for place in self.workers:
            self.network.note("DEPLOY", place.process)
            self._restart(place)

    # --- The whole ---------------------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        """Simulate the world and check its invariants."""
        asyncio.set_event_loop(None)
        with _silence():
            try:
                self.loop.run_until_complete(self.loop.spawn(self.loop.server, self._play()))
            except StuckError as error:
                self.violation("everything ends", str(error))
            self._judge_leftovers()
            seconds, steps = self.loop.time(), self.loop.steps
            self.network.is_over = True
            self.loop.tear_down()
            for place in self.gateways:
                if place.index is not None:
                    place.index._close()
        return Outcome(
            seed=self.seed,
            violations=tuple(self.violations),
            trace=tuple(self.network.trace),
            faults=self.faults,
            accepted=len(self.runs),
            seconds=seconds,
            steps=steps,
        )

    async def _play(self) -> None:
        for number in range(self.chance.choice([1, 1, 2])):
            self.gateways.append(self._place(f"gateway-{number + 1}"))
        for number in range(self.chance.choice([1, 2, 2])):
            self.workers.append(self._place(f"worker-{number + 1}"))
        for place in (*self.gateways, *self.workers):
            self._start(place)
        await asyncio.sleep(0.1)
        clients = [Client(self, f"client-{number + 1}", self._chance(f"client {number}")) for number in range(2)]
        span = self.chance.choice([2.0, 6.0, 10.0])
        self._rage()
        trouble = self.loop.spawn(self.loop.server, self._trouble(self.loop.time() + span))
        acting = [
            self.loop.spawn(client.process, client.act(self.chance.choice([2, 4, 6]), span)) for client in clients
        ]
        outsiders = self._outsiders() if has_outsiders(self.seed) else []
        acting += [self.loop.spawn(each.process, each.act(12, span)) for each in outsiders]
        await asyncio.wait([trouble, *acting])
        for task in (trouble, *acting):
            task.result()
        self._calm()
        await self._must_end(clients[0], outsiders)
        for execution_id in sorted(self.outside.archiving):  # the outcome is unknown: an outsider repeats the command
            await self.loop.spawn(outsiders[0].process, outsiders[0].archive(execution_id))
        await self._must_be_quiet()
        check_at_the_end(self)

    def _outsiders(self) -> list[Outsider]:
        for graph_id, encoded in GRAPHS.items():
            at_once(self.store.graphs.inner.put(graph_id, encoded))
        return [Outsider(self, f"outsider-{number + 1}", self._chance(f"outsider {number}")) for number in range(3)]

    async def _must_end(self, client: Client, outsiders: Sequence[Outsider]) -> None:
        """Check that all accepted runs end, once clients and outsiders have done what they wait for."""
        began = self.loop.time()
        left = self.known
        while self.loop.time() < began + LIVENESS_SEC:
            left = [run_id for run_id in self.known if run_id not in self.store.log.ended]
            if not left:
                return
            is_late = self.loop.time() >= began + LATE_SEC
            for run_id in left:
                if run_id in self.flow_of:
                    await self.loop.spawn(client.process, client.resume_all(run_id))
                elif is_late or run_id not in self.outside.left:
                    await self.loop.spawn(outsiders[0].process, outsiders[0].finish(run_id))
            await asyncio.sleep(2.0)
        self.violation("everything ends", f"{LIVENESS_SEC:g} s after the last fault, these have not ended: {left}")

    async def _must_be_quiet(self) -> None:
        """Check that snapshots and lists become current with the logs."""
        until = self.loop.time() + QUIET_SEC
        problem = await quiet_problem(self)
        while problem is not None and self.loop.time() < until:
            await asyncio.sleep(2.0)
            problem = await quiet_problem(self)
        if problem is not None:
            self.violation(*problem)

    def _judge_leftovers(self) -> None:
        for problem in self.loop.problems:
            self.violation("nothing crashes unseen", problem)
        for error in self.loop.unretrieved():
            if not isinstance(error, UnavailableError):
                self.violation("nothing crashes unseen", repr(error))


def simulate(seed: int) -> Outcome:
    """Simulate the world of this seed."""
    with no_collecting():
        return World(seed).play()


@contextmanager
def no_collecting() -> Iterator[None]:
    """Disable the garbage collector: it runs at times that no seed decides, and may run code of dead processes."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if collects:
            gc.enable()


@contextmanager
def _silence() -> Iterator[None]:
    """Disable logging: the faults here are intended, and their log lines only distract."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
