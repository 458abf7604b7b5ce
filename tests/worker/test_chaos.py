"""Random faults together: calls that fail, answers that are lost, workers that die, cancels and resumes in between.

First any call may fail, and no answer may be false; then no call fails any more, and every run must end.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import options, wait
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.app.snapshots.status import was_retracted
from pyoco_server.core import CommandRejected, Event, fold
from pyoco_server.core.payloads import NodeSucceeded
from tests.app.runtime.flows import Calls, approval_flow, fan_flow, program_flow
from tests.invariants import check_no_repeats, check_step
from tests.worker.faulty import Fault
from tests.worker.world import USER, Hand, World, attempt

PARAMS = {"n": 1, "items": [1, 2]}
FLOWS = ("fan", "program", "approval", "rounds")
WORKERS = 3


class PatientCalls(Calls):
    """Tasks that do not fail because workers died in them: faults may hit the same task many times in a row."""

    @override
    def task(self, name: str, value: Callable[..., Any] | Any = None) -> TaskWrapper:
        return options(super().task(name, value), max_crashes=1_000)


def flows() -> dict[str, Flow]:
    calls, rounds = PatientCalls(), Flow("rounds")
    rounds >> calls.task("before", 1) >> wait("nod")["$ctx.params.items as item"] >> calls.task("after", 1)
    flows = fan_flow(PatientCalls()), program_flow(PatientCalls()), approval_flow(PatientCalls()), rounds
    return {flow.name: flow for flow in flows}


class Chaos:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.cancelled: set[str] = set()
        self._workers: list[asyncio.Task[None]] = []

    def rage(self) -> None:
        """From now on any call may fail."""
        faults = [Fault.NOT_DONE, Fault.UNANSWERED]
        self.world.trouble.otherwise = lambda: self.chance.choice(faults) if self.chance.random() < 0.08 else Fault.NONE

    def calm(self) -> None:
        self.world.trouble.otherwise = lambda: Fault.NONE

    # --- Workers -----------------------------------------------------------------------------------------------------

    def start(self, number: int) -> "asyncio.Task[None]":
        return asyncio.create_task(self._work(self.world.hand(flows(), f"w{number}")))

    async def _work(self, hand: Hand) -> None:
        while True:
            try:
                delivery = await self.world.queue.pull("default", timeout_sec=5)
            except UnavailableError:
                await self.world.clock.sleep(0.5)
                continue
            if delivery is not None:
                await hand.handle(delivery)

    async def kill(self, worker: "asyncio.Task[None]") -> None:
        worker.cancel()
        await asyncio.wait([worker])

    # --- People ------------------------------------------------------------------------------------------------------

    async def act(self) -> None:
        """Submit, cancel or resume a run."""
        deed = self.chance.choice([self.submit, self.submit, self.cancel, self.resume, self.resume])
        try:
            await deed()
        except (UnavailableError, CommandRejected):
            return

    async def submit(self) -> None:
        run_id = self.world.new_id()
        try:
            await self.world.submit(self.chance.choice(FLOWS), PARAMS, run_id=run_id)
        except UnavailableError:
            self.refused.append(run_id)
        else:
            self.accepted.append(run_id)

    async def cancel(self) -> None:
        if self.accepted:
            run_id = self.chance.choice(self.accepted)
            if (await self.world.cancel(run_id, USER))["status"] == "CANCELLING":
                self.cancelled.add(run_id)

    async def resume(self) -> None:
        for run_id in self.chance.sample(self.accepted, len(self.accepted)):
            for node in (await self.world.state(run_id)).live_nodes():
                if node.status == "WAITING":
                    await self.world.resume(run_id, node.node_id, 1, USER)
                    return

    # --- The whole ---------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        workers = [self.start(number) for number in range(WORKERS)]
        self.rage()
        for _ in range(30):
            await self.act()
            await self.world.clock.sleep(self.chance.random() * 3)
            if self.chance.random() < 0.15:
                place = self.chance.randrange(WORKERS)
                await self.kill(workers[place])
                workers[place] = self.start(place)
        self.calm()
        await self._drain()
        for worker in workers:
            await self.kill(worker)

    async def _drain(self) -> None:
        """Resume waits and rescue runs, without faults, until every run has ended."""
        open_runs = [*self.accepted]
        for _ in range(100):
            open_runs = [run for run in self.accepted if not (await self.world.state(run)).is_terminal]
            if not open_runs:
                await self.world.clock.sleep(60)
                await self._mend_snapshots()
                return
            for run_id in open_runs:
                for node in (await self.world.state(run_id)).live_nodes():
                    if node.status == "WAITING":
                        await self.world.resume(run_id, node.node_id, 1, USER)
            await self.world.clock.sleep(100)
            for run_id in open_runs:
                await self.world.run_log.rescue(run_id)
        raise AssertionError(f"runs never ended: {open_runs}")

    async def _mend_snapshots(self) -> None:
        """Write the snapshots that a cancel could not: such a run has no job, and the gateway's audit finds it."""
        for run_id in self.accepted:
            run = await self.world.run_log.open(run_id)
            if run.execution.state.is_cancel_requested:
                await self.world.run_log.update_snapshot(run)

    async def check(self) -> None:
        for run_id in [*self.accepted, *self.refused]:
            events = await self.world.events(run_id)
            if events:
                self._check_log(events)
        for run_id in self.accepted:
            await self._check_accepted(run_id)

    def _check_log(self, events: Any) -> None:
        state = RunProjection(events[0].execution_id).state
        for event in events:
            state = check_step(state, event)
        check_no_repeats(events)
        done = [event.payload.node_id for event in events if isinstance(event.payload, NodeSucceeded)]
        assert len(done) == len(set(done))

    async def _check_accepted(self, run_id: str) -> None:
        events: list[Event] = [*await self.world.events(run_id)]
        state = fold(events)
        stored = await self.world.stored(run_id)
        assert state.status == ("CANCELED" if state.is_cancel_requested else "COMPLETED"), state.failure
        if run_id in self.cancelled:
            assert state.status == "CANCELED"
        assert not was_retracted(state)
        projection = RunProjection(run_id)
        projection.listen(events, state)
        fresh = projection.snapshot(position=len(events))
        assert {**stored, "heartbeat_at": 0, "driven_by": 0} == {**fresh, "heartbeat_at": 0, "driven_by": 0}


@pytest.mark.filterwarnings(
    "ignore:.*never awaited", "ignore:.*coroutine object.*"
)  # rounds cancelled before they began
@pytest.mark.parametrize("seed", range(8))
def test_every_accepted_run_ends_as_its_answers_said(seed: int) -> None:
    async def body(world: World) -> None:
        chaos = Chaos(world, seed)
        await chaos.play()
        await chaos.check()
        assert chaos.accepted

    attempt(body, max_deliver=10_000)
