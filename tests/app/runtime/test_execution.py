"""Decisions gather and share commits, and each caller receives the true outcome of its own."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.app.runtime.execution import AT_ONCE, Execution
from pyoco_server.core import CommandRejected, Commit, Event, EventType, ExecutionState, Graph, NodeStatus, fold
from pyoco_server.core.commands import Command
from pyoco_server.core.payloads import NodeReady, NodeSucceeded
from tests.app.runtime.faulty_log import Fault, PlannedLog, execution_on
from tests.build import Ids, command, diamond, types
from tests.waiting import wait_until

BRANCHES = tuple(f"b{number}" for number in range(8))
GRAPH = diamond(*BRANCHES)


class Bench:
    """An execution that has been started, its log, and another process's view of the same log."""

    def __init__(self, graph: Graph = GRAPH, *, largest: int | None = None) -> None:
        new_id = Ids()
        self.log = PlannedLog(largest=largest)
        self.mine = execution_on(self.log, graph, new_id)
        self.other = execution_on(self.log.inner, graph, new_id)
        self.received: list[Event] = []
        self.mine.subscribe(lambda events, _: self.received.extend(events))

    async def begin(self, *started: str) -> "Bench":
        await self.mine.do(command("CreateExecution", graphId="g"))
        await self.mine.do(command("StartExecution"))
        for node_id in started:
            await self.mine.do(command("StartNode", node_id))
        await self.other.load()
        self.log.commits.clear()
        return self

    async def check(self) -> None:
        """What the execution believes is what the log says, and its listeners received all of it, once, in order."""
        await self.mine.load()
        log = await self.log.all()
        assert self.mine.state == fold(log)
        assert [event.event_id for event in self.received] == [event.event_id for event in log]
        assert self.mine._pending == []

    async def succeeded(self) -> list[str]:
        """Return the branches of all success events in the log, with repetitions."""
        ends = [event.payload for event in await self.log.all() if isinstance(event.payload, NodeSucceeded)]
        return [end.node_id for end in ends if end.node_id in BRANCHES]

    async def while_closed(self, *work: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
        """Start these one after the other while the log does not answer."""
        self.log.requests.close()
        tasks = []
        for one in work:
            tasks.append(asyncio.create_task(one))
            await wait_until(lambda: self.log.requests.waiting == 1)
            await asyncio.sleep(0)
        return tasks


def progress(node_id: str, percent: int) -> Command:
    made: Command = command("ReportNodeProgress", node_id, progress=percent)
    return made


async def outcomes(tasks: Sequence[asyncio.Task[Any]]) -> list[Any]:
    """Return for each task the types of its events, or the class of its error."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else types(one) for one in results]


# --- Gathering -------------------------------------------------------------------------------------------------------


def test_decisions_during_an_append_share_the_next_commit() -> None:
    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        work = [bench.mine.do(command("SucceedNode", node_id)) for node_id in BRANCHES]
        tasks = await bench.while_closed(*work)
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert [one[0] for one in answers] == [EventType.NODE_SUCCEEDED] * len(BRANCHES)
        assert len(bench.log.commits) == 2
        assert answers[-1][-1] is EventType.NODE_READY  # the last of them passed the join
        await bench.check()

    asyncio.run(scenario())


def test_a_commit_has_the_cancel_first_then_failures_and_progress_last() -> None:
    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            bench.mine.do(progress("b1", 2)),
            bench.mine.do(command("SucceedNode", "b2"), observed=True),
            bench.mine.do(command("FailNode", "b3", error={"code": "E", "message": "m"}), observed=True),
            bench.mine.do(command("CancelExecution")),
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        second = bench.log.commits[1]
        kinds = [event.type for event in await bench.log.all() if event.event_id in second]
        wanted = [EventType.EXECUTION_CANCEL_REQUESTED, EventType.NODE_FAILED, EventType.NODE_SUCCEEDED]
        assert kinds[0] is wanted[0]
        assert [kind for kind in kinds if kind in wanted] == wanted
        assert answers[1] is CommandRejected  # progress does not count after the cancel
        await bench.check()

    asyncio.run(scenario())


def test_more_than_fit_in_a_commit_are_written_in_the_next() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        tasks = await bench.while_closed(*(bench.mine.do(progress("b0", 1)) for _ in range(2 * AT_ONCE + 10)))
        bench.log.requests.open()
        assert await outcomes(tasks) == [[EventType.NODE_PROGRESS_REPORTED]] * len(tasks)
        assert [len(commit) for commit in bench.log.commits] == [1, AT_ONCE, AT_ONCE, 9]
        await bench.check()

    asyncio.run(scenario())


def test_a_refusal_affects_only_its_own_decision() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            bench.mine.do(command("SucceedNode", "b0")),
            bench.mine.do(command("SucceedNode", "b0", output={"again": 1}, attempt=7)),
            bench.mine.do(command("StartNode", "b1")),
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert answers[2] is CommandRejected
        assert (answers[1][0], answers[3]) == (EventType.NODE_SUCCEEDED, [EventType.NODE_STARTED])
        assert len(bench.log.commits) == 2
        await bench.check()

    asyncio.run(scenario())


def test_a_decision_that_raises_affects_only_its_caller() -> None:
    def broken(_: ExecutionState) -> Commit:
        raise ZeroDivisionError

    async def scenario() -> None:
        bench = await Bench().begin("b0")
        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)), bench.mine.decide(broken), bench.mine.do(progress("b0", 2))
        )
        bench.log.requests.open()
        reported = [EventType.NODE_PROGRESS_REPORTED]
        assert await outcomes(tasks) == [reported, ZeroDivisionError, reported]
        await bench.check()

    asyncio.run(scenario())


def test_follow_ups_are_written_in_the_same_commit() -> None:
    def start_ready(events: Sequence[Event], state: ExecutionState) -> list[Command]:
        ready = [event.payload.node_id for event in events if isinstance(event.payload, NodeReady)]
        return [command("StartNode", node_id) for node_id in ready if state.nodes[node_id].status is NodeStatus.READY]

    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        bench.mine.follow_ups = start_ready
        work = [bench.mine.do(command("SucceedNode", node_id)) for node_id in BRANCHES]
        tasks = await bench.while_closed(*work)
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert answers[-1][-2:] == [EventType.NODE_READY, EventType.NODE_STARTED]
        assert len(bench.log.commits) == 2
        assert bench.mine.state.nodes["after"].status is NodeStatus.RUNNING
        await bench.check()

    asyncio.run(scenario())


# --- Too large -------------------------------------------------------------------------------------------------------


def test_decisions_too_large_for_one_commit_are_written_separately() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0", "b1")
        bench.log.limited.largest = 2

        def huge(state: ExecutionState) -> Commit:
            events: list[Event] = []
            for percent in range(3):
                made = bench.mine.step(state, progress("b0", percent))
                events, state = events + made.events, made.state
            return Commit(events, state)

        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            bench.mine.do(progress("b0", 2)),
            bench.mine.decide(huge),
            bench.mine.do(command("SucceedNode", "b1")),
            bench.mine.do(progress("b0", 3)),
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        reported = [EventType.NODE_PROGRESS_REPORTED]
        assert (answers[0], answers[1], answers[2], answers[4]) == (reported, reported, TooLargeError, reported)
        assert answers[3][0] is EventType.NODE_SUCCEEDED
        assert [len(commit) for commit in bench.log.commits] == [1, len(answers[3]), 1, 1]
        await bench.check()

    asyncio.run(scenario())


# --- Others write too ------------------------------------------------------------------------------------------------


def test_a_writer_that_loses_the_race_decides_again() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0", "b1")
        bench.log.overtake = lambda: bench.other.do(command("SucceedNode", "b0"))
        bench.log.faults.append(Fault.OVERTAKEN)
        tasks = await bench.while_closed(
            bench.mine.do(command("SucceedNode", "b0", output={"mine": 1}, attempt=1)),
            bench.mine.do(command("SucceedNode", "b1")),
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert answers[1][0] is EventType.NODE_SUCCEEDED
        assert await bench.succeeded() == ["b0", "b1"]
        await bench.check()

    asyncio.run(scenario())


def test_a_cancel_of_another_process_is_noticed_at_once() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        unfollow = await bench.mine.follow()
        await bench.other.do(command("CancelExecution"))
        await wait_until(lambda: bench.mine.state.is_cancel_requested)
        unfollow()
        await bench.other.do(command("SucceedNode", "b0"), observed=True)
        await bench.check()
        assert bench.log.inner._listeners == {}

    asyncio.run(scenario())


@pytest.mark.parametrize("doing", ["look", "load", "decide", "failing", "cancelled"])
def test_an_append_announced_during_a_read_is_not_missed(doing: str) -> None:
    """An append is announced during a read that does not see it; it must be read later, however that read ends."""

    async def scenario() -> None:
        bench = await Bench().begin("b0")
        await bench.mine.follow()
        after_read, written = asyncio.Event(), asyncio.Event()
        read = bench.log.inner.read

        async def slow_read(execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
            found = await read(execution_id, after=after)
            if not written.is_set():
                after_read.set()
                await written.wait()
                if doing == "failing":
                    raise UnavailableError("the log cannot be read")
            return found

        bench.log.inner.read = slow_read  # type: ignore[method-assign]
        await bench.mine._lock.acquire()
        await bench.other.do(progress("b0", 1))  # received but not read, since the lock is held
        bench.mine._lock.release()
        work: dict[str, Any] = {"look": None, "load": bench.mine.load}
        begin = work.get(doing, lambda: bench.mine.do(progress("b0", 2)))
        if begin is None:
            bench.mine._appended(bench.other.position)
            task = bench.mine._looking
        else:
            task = asyncio.create_task(begin())
        assert task is not None
        await after_read.wait()
        await bench.other.do(progress("b0", 50))
        if doing == "cancelled":
            task.cancel()
        written.set()
        answers = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError) == (doing == "cancelled")
        await wait_until(lambda: bench.mine.position >= bench.other.position)
        await bench.check()

    asyncio.run(scenario())


def test_many_announcements_are_handled_by_one_reader() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        await bench.mine.follow()
        before = len(asyncio.all_tasks())
        for percent in range(50):
            await bench.other.do(progress("b0", percent))
        assert len(asyncio.all_tasks()) <= before + 1
        await wait_until(lambda: bench.mine.position == bench.other.position)
        await bench.check()

    asyncio.run(scenario())


# --- Outcome unknown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.LATE])
def test_a_commit_that_is_there_after_all_is_answered(fault: Fault) -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0", "b1")
        bench.log.faults.extend([Fault.NONE, fault])
        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            bench.mine.do(command("SucceedNode", "b0", attempt=1)),
            bench.mine.do(command("SucceedNode", "b1", attempt=1)),
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert [one[0] for one in answers[1:]] == [EventType.NODE_SUCCEEDED] * 2
        assert len(bench.log.commits) == 2
        await bench.check()

    asyncio.run(scenario())


def test_only_decisions_with_an_unknown_outcome_are_unavailable() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0", "b1")
        bench.log.faults.extend([Fault.NONE, Fault.NOT_SENT])
        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            bench.mine.do(command("StartNode", "b0", attempt=1)),  # it has: nothing to write
            bench.mine.do(command("SucceedNode", "b0")),
            bench.mine.do(command("FailNode", "b7")),  # goes first, and is refused: it was never started
            bench.mine.do(command("SucceedNode", "b1")),
            bench.mine.do(progress("b1", 5)),  # refused if b1 has succeeded: who knows?
        )
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert [answers[1], answers[3]] == [[], CommandRejected]
        assert [answers[2], answers[4], answers[5]] == [UnavailableError] * 3
        assert (await outcomes([asyncio.create_task(bench.mine.do(command("SucceedNode", "b1")))]))[0][0]
        await bench.check()

    asyncio.run(scenario())


def test_after_an_unknown_outcome_the_log_is_read_before_anything_is_decided() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        bench.log.faults.append(Fault.LOST_ACK)
        bench.log.unreadable = 1
        with pytest.raises(UnavailableError):
            await bench.mine.do(command("CancelExecution"))
        assert not bench.mine.state.is_cancel_requested
        seen: list[bool] = []

        def decision(state: ExecutionState) -> Commit:
            seen.append(state.is_cancel_requested)
            return Commit([], state)

        assert await bench.mine.decide(decision) == []
        assert seen == [True]
        await bench.check()

    asyncio.run(scenario())


def test_a_commit_that_arrives_after_all_answers_is_accepted() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        bench.log.faults.append(Fault.LATE)
        bench.log.unreadable = 2
        bench.log.is_delayed = True
        for _ in range(2):  # neither the first nor, since the log cannot be read, the second
            with pytest.raises(UnavailableError):
                await bench.mine.do(command("SucceedNode", "b0", attempt=1))
        bench.log.is_delayed = False
        answers = await outcomes([asyncio.create_task(bench.mine.do(command("SucceedNode", "b0", attempt=1)))])
        assert answers[0] in (CommandRejected, [])  # it has succeeded, and this caller did not do it
        assert len(bench.log.commits) == 1
        await bench.check()

    asyncio.run(scenario())


def test_an_execution_continues_when_its_log_is_back() -> None:
    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        bench.log.faults.append(Fault.NOT_SENT)
        bench.log.unreadable = 3
        for _ in range(3):
            with pytest.raises(UnavailableError):
                await bench.mine.do(command("SucceedNode", "b0"))
        await asyncio.gather(*(bench.mine.do(command("SucceedNode", node_id)) for node_id in BRANCHES))
        assert bench.mine.state.nodes["after"].status is NodeStatus.READY
        await bench.check()

    asyncio.run(scenario())


# --- Callers who leave -----------------------------------------------------------------------------------------------


def test_a_caller_cancelled_before_its_turn_withdraws_its_decision() -> None:
    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        work = [bench.mine.do(command("SucceedNode", node_id)) for node_id in BRANCHES[:4]]
        tasks = await bench.while_closed(*work)
        tasks[2].cancel()
        await asyncio.sleep(0)
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert answers[2] is asyncio.CancelledError
        assert [one[0] for one in (answers[0], answers[1], answers[3])] == [EventType.NODE_SUCCEEDED] * 3
        assert bench.mine.state.nodes["b2"].status is NodeStatus.RUNNING
        await bench.check()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_written", [True, False])
def test_cancelling_the_caller_that_writes_for_others_does_not_affect_them(is_written: bool) -> None:
    async def scenario() -> None:
        bench = await Bench().begin(*BRANCHES)
        first, *others = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            *(bench.mine.do(command("SucceedNode", node_id, attempt=1)) for node_id in BRANCHES[:5]),
        )
        bench.log.requests.let_one_pass()
        await wait_until(first.done)
        await wait_until(lambda: bench.log.requests.waiting == 1)
        if is_written:
            bench.log.answers.close()
            bench.log.requests.let_one_pass()
            await wait_until(lambda: bench.log.answers.waiting == 1)
        others[0].cancel()
        bench.log.answers.open()
        bench.log.requests.open()
        answers = await outcomes(others)
        assert answers[0] is asyncio.CancelledError
        assert [one[0] for one in answers[1:]] == [EventType.NODE_SUCCEEDED] * 4
        expected = NodeStatus.SUCCEEDED if is_written else NodeStatus.RUNNING
        assert bench.mine.state.nodes["b0"].status is expected
        assert sorted(await bench.succeeded()) == [*BRANCHES[0 if is_written else 1 : 5]]
        await bench.check()

    asyncio.run(scenario())


def test_a_listener_that_raises_does_not_affect_other_callers() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0", "b1", "b2")

        def broken(events: Sequence[Event], _: ExecutionState) -> None:
            if EventType.NODE_SUCCEEDED in types(events):
                raise ZeroDivisionError

        tasks = await bench.while_closed(
            bench.mine.do(progress("b0", 1)),
            *(bench.mine.do(command("SucceedNode", node_id, attempt=1)) for node_id in ("b1", "b2")),
        )
        bench.mine.subscribe(broken)
        bench.log.requests.open()
        answers = await outcomes(tasks)
        assert ZeroDivisionError in answers
        assert sum(one is not ZeroDivisionError and one[0] is EventType.NODE_SUCCEEDED for one in answers) == 1
        await bench.check()

    asyncio.run(scenario())


def test_an_execution_can_begin_with_events_that_were_read_before() -> None:
    async def scenario() -> None:
        bench = await Bench().begin("b0")
        third: Execution = execution_on(bench.log, GRAPH, Ids())
        events, position = await bench.log.inner.read("run-1")
        third.begin_at(events, position)
        assert (third.state, third.position) == (bench.mine.state, bench.mine.position)
        assert await third.load() == []

    asyncio.run(scenario())
