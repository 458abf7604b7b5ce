"""Many callers, a log that fails in every way, callers who leave: what they received is what the log says."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.core import CommandRejected, Event, ExecutionState, NodeStatus, fold
from pyoco_server.core.commands import Command
from pyoco_server.core.payloads import NodeReady, NodeStarted
from tests.app.runtime.faulty_log import Fault, PlannedLog, execution_on
from tests.build import Ids, command, diamond
from tests.invariants import check_log

BRANCHES = tuple(f"b{number}" for number in range(6))
GRAPH = diamond(*BRANCHES)
LARGEST = 12


class Caller:
    """Gives one command, notes the answer, and may leave before."""

    def __init__(self, name: str, given: Command) -> None:
        self.name = name
        self.command = given
        self.answer: Any = None

    async def call(self, execution: Any, pause: int) -> None:
        for _ in range(pause):
            await asyncio.sleep(0)
        try:
            self.answer = await execution.do(self.command, observed=True)
        except (CommandRejected, UnavailableError, TooLargeError, asyncio.CancelledError) as error:
            self.answer = error

    @property
    def may_be_written(self) -> bool:
        """Whether the caller cannot know if its command is in the log."""
        return isinstance(self.answer, UnavailableError | asyncio.CancelledError)


def commands_of(chance: random.Random, count: int) -> list[Command]:
    """Return starts, ends, progress and now and then a cancel, each by another caller."""
    made: list[Command] = []
    for number in range(count):
        actor = {"kind": "user", "id": f"caller{number}"}
        node_id = chance.choice(BRANCHES)
        kind = chance.choices(["start", "succeed", "fail", "progress", "cancel"], [8, 6, 1, 4, 0.3])[0]
        match kind:
            case "start":
                given = command("StartNode", node_id, attempt=1, workerId=actor["id"], actor=actor)
            case "succeed":
                given = command("SucceedNode", node_id, actor=actor, output={"by": actor["id"]})
            case "fail":
                given = command("FailNode", node_id, actor=actor, error={"code": "E", "message": "m"})
            case "progress":
                given = command("ReportNodeProgress", node_id, actor=actor, progress=number % 101)
            case _:
                given = command("CancelExecution", actor=actor)
        made.append(given)
    return made


def start_ready(events: Sequence[Event], state: ExecutionState) -> list[Command]:
    ready = [event.payload.node_id for event in events if isinstance(event.payload, NodeReady)]
    return [
        command("StartNode", node_id, workerId="driver", actor={"kind": "system", "id": "driver"})
        for node_id in ready
        if state.nodes[node_id].status is NodeStatus.READY
    ]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), trouble=st.sampled_from([0.0, 0.2, 0.6]), leaving=st.sampled_from([0.0, 0.3]))
def test_callers_receive_what_the_log_says(seed: int, trouble: float, leaving: float) -> None:
    asyncio.run(scenario(random.Random(seed), trouble, leaving))


async def scenario(chance: random.Random, trouble: float, leaving: float) -> None:
    new_id = Ids()
    log = PlannedLog()
    mine, other = execution_on(log, GRAPH, new_id), execution_on(log.inner, GRAPH, new_id)
    received: list[Event] = []
    mine.subscribe(lambda events, _: received.extend(events))
    await mine.do(command("CreateExecution", graphId="g"))
    await mine.do(command("StartExecution"))
    mine.follow_ups = start_ready
    await mine.follow()
    _spoil(log, chance, trouble, other)
    callers = [Caller(f"caller{number}", given) for number, given in enumerate(commands_of(chance, 40))]
    tasks = [asyncio.create_task(caller.call(mine, chance.randrange(60))) for caller in callers]
    while not all(task.done() for task in tasks):
        if chance.random() < leaving:
            chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    log.faults.clear()
    log.fails_to_read = lambda: False
    await mine.load()
    events = await log.all()
    assert [event.event_id for event in received] == [event.event_id for event in events]
    assert mine.state == fold(events)
    assert mine._pending == []
    check_log(GRAPH, events, mine.state)
    for caller in callers:
        _check(caller, events, log.commits)


def _spoil(log: PlannedLog, chance: random.Random, trouble: float, other: Any) -> None:
    kinds = [Fault.LOST_ACK, Fault.NOT_SENT, Fault.LATE, Fault.OVERTAKEN]
    log.faults.extend(chance.choice(kinds) if chance.random() < trouble else Fault.NONE for _ in range(200))
    log.turns = lambda: chance.randrange(4)
    log.limited.largest = LARGEST if chance.random() < trouble else None
    log.fails_to_read = lambda: chance.random() < trouble / 2

    async def overtake() -> None:
        try:
            await other.do(command("StartNode", chance.choice(BRANCHES), attempt=1, workerId="other"))
        except CommandRejected:
            await other.load()

    log.overtake = overtake


def _check(caller: Caller, log: Sequence[Event], commits: Sequence[Sequence[str]]) -> None:
    ids = [event.event_id for event in log]
    by_caller = [event.event_id for event in log if event.actor.id == caller.name]
    if isinstance(caller.answer, list):
        answered = [event.event_id for event in caller.answer]
        assert [event_id for event_id in ids if event_id in set(answered)] == answered
        assert set(by_caller) <= set(answered), "written more than it received"
        assert not answered or any(set(answered) <= set(commit) for commit in commits), "spread over commits"
    elif not caller.may_be_written:
        assert by_caller == [], f"received {caller.answer!r}, but written"
    started = [event for event in log if isinstance(event.payload, NodeStarted) and event.event_id in set(by_caller)]
    assert len(started) <= 1
