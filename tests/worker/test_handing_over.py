"""Two workers on one run, cancels, and workers that must stop: who owns the run, and how the others notice."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import wait
from pyoco_server.core import Event, EventType
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.messages import CATALOGUE
from pyoco_server.worker.settlement import Ack, NoAction, Settlement
from tests.app.runtime.flows import Calls
from tests.invariants import check_no_repeats
from tests.waiting import wait_until
from tests.worker.faulty import Fault
from tests.worker.world import PAUSE_SEC, USER, Hand, Held, World, attempt


async def begin(hand: Hand, held: Held) -> "asyncio.Task[Settlement]":
    """Let a worker take the next job, as far as its held task."""
    working = asyncio.create_task(hand.work())
    await held.at_work()
    return working


def _begun(events: Sequence[Event]) -> int:
    return sum(isinstance(event.payload, NodeStarted) and event.payload.node_id == "held" for event in events)


# --- Two workers -----------------------------------------------------------------------------------------------------


def test_a_worker_that_was_thought_dead_stops_and_does_not_ack() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        first = await begin(world.hand(flows, "w1"), held)
        await world.pass_time(31)
        second = await begin(world.hand(flows, "w2"), held)
        assert await first == NoAction()
        assert held.stopped == 1
        assert world.queue.settled == []
        held.release()
        assert await second == Ack()
        assert world.queue.settled == ["ack"]
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"], stored["task_records"]["held"]["attempt"]) == (
            "COMPLETED",
            "w2",
            2,
        )
        check_no_repeats(await world.events(run_id))

    attempt(body)


def test_a_worker_that_slept_through_the_takeover_commits_nothing() -> None:
    """The log does not notify it; it decides again, on what the other worker wrote."""

    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task() >> Calls().task("after", 1)}
        run_id = await world.submit("held")
        world.trouble.is_silent = True
        first = await begin(world.hand(flows, "w1"), held)
        await world.pass_time(31)
        second = asyncio.create_task(world.hand(flows, "w2").work())
        while _begun(await world.events(run_id)) < 2:  # noqa: ASYNC110 the log has nothing to wait at
            await asyncio.sleep(0)
        passing = asyncio.create_task(world.pass_time(PAUSE_SEC))  # not by itself: the first is at work
        await held.at_work()
        held.release()
        await passing
        dispositions = sorted([type(await first).__name__, type(await second).__name__])
        assert dispositions == ["Ack", "NoAction"]
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        events = await world.events(run_id)
        check_no_repeats(events)
        succeeded = [event for event in events if event.type is EventType.NODE_SUCCEEDED]
        assert len({str(event.payload) for event in succeeded}) == len(succeeded)

    attempt(body)


def test_two_processes_with_one_name_do_not_take_each_other_for_themselves() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        first = await begin(world.hand(flows, "same"), held)
        await world.pass_time(31)
        second = await begin(world.hand(flows, "same"), held)
        assert await first == NoAction()
        held.release()
        assert await second == Ack()
        workers = [
            event.payload.worker_id
            for event in await world.events(run_id)
            if isinstance(event.payload, NodeStarted) and event.payload.node_id == "held"
        ]
        assert len(set(workers)) == 2
        assert (await world.stored(run_id))["worker_id"] == "same"

    attempt(body)


# --- Cancel ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0024")
@pytest.mark.parametrize("through", ["subscription", "heartbeat"])
def test_a_cancel_reaches_the_owner_of_the_run(through: str) -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task() >> Calls().task("after", 1)})
        run_id = await world.submit("held")
        world.trouble.is_silent = through == "heartbeat"
        working = await begin(hand, held)
        answer = await world.cancel(run_id, USER, "enough")
        assert (answer["status"], answer["cancel_requested_by"], answer["cancel_reason"]) == (
            "CANCELLING",
            None,
            "enough",
        )
        if through == "heartbeat":
            assert not working.done()
            assert held.stopped == 0
            await hand.handler.running[run_id].beat()
        assert await working == Ack()
        assert held.stopped == 1
        stored = await world.stored(run_id)
        assert (stored["status"], stored["error"]) == ("CANCELLED", None)
        assert stored["tasks"] == {"held": "CANCELLED", "after": "CANCELLED"}
        assert await world.dead() == []
        assert world.queue.settled == ["ack"]

    attempt(body)


@pytest.mark.spec("004 REQ-0024", "004 ERR-PYOCO-0021")
def test_a_task_that_ignores_the_cancel_has_its_grace_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        began, end = threading.Event(), threading.Event()

        def stubborn() -> None:
            began.set()
            end.wait(10)

        flow = Flow("stubborn") >> TaskWrapper(Task(func=stubborn, name="stubborn"))
        hand = world.hand({"stubborn": flow}, cancel_grace_sec=30.0)
        run_id = await world.submit("stubborn")
        working = asyncio.create_task(hand.work())
        await wait_until(began.is_set)
        await world.cancel(run_id, USER)
        await world.pass_time(29)
        assert (await world.stored(run_id))["status"] == "CANCELLING"
        await world.pass_time(2)
        assert await working == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        end.set()

    attempt(body)
    (logged,) = [record for record in caplog.records if record.__dict__.get("err_id") == "ERR-PYOCO-0021"]
    entry = CATALOGUE["ERR-PYOCO-0021"]
    assert (logged.getMessage(), logged.__dict__["msg_id"]) == (entry.en, entry.msg_id)


def test_a_cancel_before_a_worker_owns_the_run_leaves_nothing_to_do() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await world.submit("one")
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert await world.hand({"one": Flow("one") >> calls.task("only", 1)}).work() == Ack()
        assert calls.names == []
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_cancel_while_the_flow_is_looked_up_wins() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await world.submit("one")

        async def cancel() -> None:
            await world.cancel(run_id, USER)

        world.trouble.meanwhile["log.subscribe"] = cancel
        assert await world.hand({"one": Flow("one") >> calls.task("only", 1)}).work() == Ack()
        assert calls.names == []
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


@pytest.mark.parametrize("number", range(6))
def test_a_cancel_wins_whenever_it_comes(number: int) -> None:
    """Between any two appends of the worker: once CANCELLING is answered, nothing but CANCELLED follows."""

    async def body(world: World) -> None:
        calls = Calls()
        flow = Flow("chain") >> calls.task("a", 1) >> calls.task("b", 2) >> calls.task("c", 3)
        run_id = await world.submit("chain")
        answers: list[str] = []

        async def cancel_at(turn: int) -> None:
            if turn < number:
                world.trouble.meanwhile["log.append"] = lambda: cancel_at(turn + 1)
            else:
                answers.append((await world.cancel(run_id, USER))["status"])

        world.trouble.meanwhile["log.append"] = lambda: cancel_at(0)
        await world.hand({"chain": flow}).work()
        ended = (await world.stored(run_id))["status"]
        assert (answers, ended) in [(["CANCELLING"], "CANCELLED"), (["COMPLETED"], "COMPLETED"), ([], "COMPLETED")]
        check_no_repeats(await world.events(run_id))

    attempt(body)


def test_the_next_worker_finishes_the_cancel_of_a_run_whose_worker_died() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        working = await begin(world.hand(flows, "w1"), held)
        world.trouble.always("delivery.nak", Fault.NOT_DONE)
        working.cancel()
        await asyncio.wait([working])
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert await world.hand(flows, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert held.began == 1

    attempt(body)


# --- A worker that must go -------------------------------------------------------------------------------------------


def test_a_released_run_is_resumed_by_another_worker_at_once() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task() >> wait("nod")}
        run_id = await world.submit("held")
        first = world.hand(flows, "w1")
        working = await begin(first, held)
        await first.handler.running[run_id].beat()
        assert (await world.stored(run_id))["driven_by"] == "w1"
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        assert world.queue.settled == ["nak 0"]
        assert first.handler.running == {}
        stored = await world.stored(run_id)
        assert (stored["status"], stored["driven_by"]) == ("RUNNING", None)
        held.release()
        before = world.clock.now()
        assert await world.hand(flows, "w2").work() == Ack()
        assert (world.clock.now() - before).total_seconds() == PAUSE_SEC

    attempt(body)


def test_a_job_whose_flow_is_still_being_looked_up_is_released_too() -> None:
    async def body(world: World) -> None:
        asked, answer = threading.Event(), threading.Event()

        def resolve(_: str) -> Flow:
            asked.set()
            answer.wait(10)
            return Flow("one") >> Calls().task("only", 1)

        run_id = await world.submit("one")
        working = asyncio.create_task(world.hand(resolve).work())
        await wait_until(asked.is_set)
        working.cancel()
        await asyncio.wait([working])
        answer.set()
        assert world.queue.settled == ["nak 0"]
        assert await world.hand(resolve).work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


@pytest.mark.spec("004 REQ-0010")
def test_signs_of_life_say_that_the_run_and_its_job_are_taken_care_of() -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        run_id = await world.submit("held")
        working = await begin(hand, held)
        driven = hand.handler.running[run_id]
        for _ in range(3):
            await world.pass_time(20)
            await driven.beat()
            await driven.report_progress()
            stored = await world.stored(run_id)
            assert stored["heartbeat_at"] == world.clock.now().timestamp()
            assert (stored["status"], stored["driven_by"]) == ("RUNNING", "w1")
            assert stored["updated_at"] < stored["heartbeat_at"]
        held.release()
        assert await working == Ack()

    attempt(body)


@pytest.mark.spec("004 REQ-0010", "004 REQ-0024", "004 ERR-PYOCO-0009", "004 ERR-PYOCO-0003")
def test_lost_signs_of_life_are_logged_and_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        run_id = await world.submit("held")
        working = await begin(hand, held)
        driven = hand.handler.running[run_id]
        world.trouble.next("delivery.in_progress", Fault.NOT_DONE)
        await driven.report_progress()
        for call in ("log.read", "snapshots.write"):
            world.trouble.next(call, Fault.NOT_DONE)
            await driven.beat()
        held.release()
        assert await working == Ack()

    attempt(body)
    logged: list[Any] = [record.__dict__.get("err_id") for record in caplog.records]
    assert (logged.count("ERR-PYOCO-0009"), logged.count("ERR-PYOCO-0003")) == (1, 2)
