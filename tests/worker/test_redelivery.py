"""Jobs that come back, and jobs of others: the log decides what is left to do, and nothing is done twice."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import options
from pyoco_server.app.recovery.dead_letter import DeadReason
from pyoco_server.core.payloads import NodeStarted, NodeSucceeded
from pyoco_server.worker.active_run import SETTLE_SEC
from pyoco_server.worker.quarantined_job import LONE_DEATHS, LONE_DELIVERIES
from pyoco_server.worker.settlement import Ack, Nak, NoAction, Quarantine, Settlement
from tests.app.runtime.flows import Calls, fan_flow, program_flow
from tests.invariants import check_no_repeats
from tests.worker.faulty import Fault
from tests.worker.world import PAUSE_SEC, USER, Hand, Held, World, attempt

RUN = "7f8a2a4e-6b1c-4b5e-9a63-1f0f4f3f7a11"
FOREIGN = {"run_id": RUN, "flow_name": "fan", "tag": "default", "submitted_at": 1_893_456_000, "params": {"n": 3}}


async def die(world: World, working: "asyncio.Task[object]") -> None:
    """End a worker's work as a killed process does: without any message."""
    silenced = ("delivery.nak", "snapshots.write", "queue.publish", "log.append")
    for call in silenced:
        world.trouble.always(call, Fault.NOT_DONE)
    working.cancel()
    await asyncio.wait([working])
    await asyncio.sleep(2 * SETTLE_SEC)  # a snapshot that was due is not written either
    for call in silenced:
        world.trouble.always(call, Fault.NONE)


def test_a_redelivered_run_continues_at_the_node() -> None:
    async def body(world: World) -> None:
        calls, held = Calls(), Held()
        flow = Flow("three") >> calls.task("first", 1) >> held.task() >> calls.task("last", 3)
        run_id = await world.submit("three")
        working = asyncio.create_task(world.hand({"three": flow}, "w1").work())
        await held.at_work()
        await die(world, working)
        held.release()
        before = world.clock.now()
        assert await world.hand({"three": flow}, "w2").work() == Ack()
        assert (world.clock.now() - before).total_seconds() == 30.0 + PAUSE_SEC
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("COMPLETED", "w2")
        assert calls.names == ["first", "last"]
        assert held.began == 2
        assert stored["task_records"]["held"]["attempt"] == 2
        check_no_repeats(await world.events(run_id))

    attempt(body)


def test_a_second_job_for_a_run_does_not_take_it_from_its_worker_at_once() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        first = await world.hand(flows, "w1").pull()
        await world.publish(first.body)  # queued again by a process that could not know that it is there
        working = asyncio.create_task(world.hand(flows, "w1").handle(first))
        await held.at_work()
        assert await world.hand(flows, "w2").work() == NoAction()
        assert held.began == 1
        held.release()
        assert await working == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("COMPLETED", "w1")
        assert held.began == 1

    attempt(body)


@pytest.mark.parametrize("make", [fan_flow, program_flow])
def test_wherever_a_worker_dies_no_task_that_succeeded_runs_again(make: Callable[[Calls], Flow]) -> None:
    """The log stops answering at every append in turn: the worker releases the job, and another one continues."""

    async def body(world: World) -> None:
        params = {"n": 1, "items": [1, 2]}
        for number in range(40):
            calls = Calls()
            name = make(calls).name
            run_id = await world.submit(name, params)
            faults = [Fault.NONE] * number + [Fault.NOT_DONE if number % 2 else Fault.UNANSWERED]
            world.trouble.next("log.append", *faults)
            world.trouble.next("log.read", *([Fault.NOT_DONE] if number % 3 else []))
            appends = world.trouble.calls.count("log.append")
            for worker in itertools.count(1):
                settlement = await world.hand({name: make(calls)}, f"w{worker}").work()
                if isinstance(settlement, Ack):
                    break
                assert isinstance(settlement, Nak)
            assert (await world.stored(run_id))["status"] == "COMPLETED"
            events = await world.events(run_id)
            check_no_repeats(events)
            started = [event.payload for event in events if isinstance(event.payload, NodeStarted)]
            done = [event.payload.node_id for event in events if isinstance(event.payload, NodeSucceeded)]
            assert len(done) == len(set(done))
            assert all(payload.attempt <= 2 for payload in started)
            if world.trouble.calls.count("log.append") - appends <= number:
                return
            world.trouble._planned.clear()
        raise AssertionError("the run never got by without a fault")

    attempt(body)


def test_a_run_that_has_ended_is_acked_and_its_snapshot_brought_up_to_date() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        hand = world.hand({"fan": fan_flow(calls)})
        run_id = await world.submit("fan", {"n": 1})
        world.trouble.always("snapshots.write", Fault.NOT_DONE)
        assert await hand.work() == Nak(2.0)
        assert (await world.stored(run_id))["status"] == "PENDING"
        world.trouble.always("snapshots.write", Fault.NONE)
        assert await hand.work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("COMPLETED", "w1")
        assert stored["log_position"] == len(await world.events(run_id))
        assert calls.count("total") == 1

    attempt(body)


@pytest.mark.parametrize(
    ("flow", "reason", "message"),
    [("boom", "execution_error", "no good"), ("nowhere", "flow_not_found", "nowhere")],
)
def test_a_dead_letter_that_a_dying_worker_did_not_write_is_written_later(flow: str, reason: str, message: str) -> None:
    async def body(world: World) -> None:
        def boom(_: object) -> None:
            raise ValueError("no good")

        hand = world.hand({"boom": Flow("boom") >> Calls().task("only", boom)})
        await world.submit(flow)
        handled = await hand.handler.handle(await hand.pull())
        assert isinstance(handled.settlement, Ack)  # and it dies
        assert await world.dead() == []
        assert isinstance(await hand.work(), Ack)
        [letter] = await world.dead()
        assert letter["reason"] == reason
        assert message in letter["error"]

    attempt(body)


@pytest.mark.parametrize("publish", [True, False])
def test_dead_letters_that_are_switched_off_are_not_made_up_for(publish: bool) -> None:
    async def body(world: World) -> None:
        def boom(_: object) -> None:
            raise ValueError("no good")

        hand = world.hand({"boom": Flow("boom") >> Calls().task("only", boom)}, publish_execution_error=publish)
        await world.submit("boom")
        await hand.handler.handle(await hand.pull())
        await hand.work()
        assert len(await world.dead()) == publish

    attempt(body)


def test_a_snapshot_that_is_up_to_date_is_left_alone() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        await world.submit("fan", {"n": 1})
        world.trouble.next("delivery.ack", Fault.NOT_DONE)
        await hand.work()
        written = len(world.snapshots.written)
        assert await hand.work() == Ack()
        assert len(world.snapshots.written) == written

    attempt(body)


# --- The last delivery -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_deliver", [2, 3, 20])
def test_a_run_that_each_of_its_workers_died_of_fails_with_its_last_delivery(max_deliver: int) -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> options(held.task(), max_crashes=100)}
        run_id = await world.submit("held")
        while (settlement := await _work_or_die(world, flows, held)) is None:
            pass
        assert isinstance(settlement, Ack)
        assert held.began == max_deliver - 1
        assert settlement.letter is not None
        assert settlement.letter.reason is DeadReason.EXECUTION_ERROR
        stored, [letter] = await world.stored(run_id), await world.dead()
        assert (stored["status"], stored["tasks"]) == ("FAILED", {"held": "CANCELLED"})
        assert letter["num_delivered"] == max_deliver
        assert f"delivered {max_deliver} times without an end" in stored["error"]
        assert "during held" in stored["error"]
        assert (letter["reason"], letter["run_id"]) == ("execution_error", run_id)
        assert await world.queue.backlog("default") == 0

    attempt(body, max_deliver=max_deliver)


def test_a_run_whose_deliveries_were_lost_to_other_runs_is_tried_alone() -> None:
    """A job that waits, or is only in flight, can lose a delivery to a crash that another job causes."""

    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        for _ in range(2):
            assert await world.queue.pull("default", timeout_sec=100) is not None  # and never acknowledged
        assert isinstance(await _work_or_die(world, flows, held), Quarantine)
        assert await _work_or_die(world, flows, held) is None
        assert isinstance(await _work_or_die(world, flows, held), Ack)
        assert held.began == LONE_DEATHS
        assert (await world.stored(run_id))["status"] == "FAILED"
        [letter] = await world.dead()
        assert letter["num_delivered"] > 3

    attempt(body, max_deliver=3)


def test_a_run_that_was_handed_back_each_time_is_not_to_blame() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        for number in range(2):
            working = asyncio.create_task(world.hand(flows, f"w{number}").work())
            await held.at_work()
            working.cancel()
            await asyncio.wait([working])
        held.release()
        while not isinstance(await world.hand(flows, "w3").work(), Ack):
            assert not (await world.state(run_id)).is_terminal
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, max_deliver=3)


async def _work_or_die(world: World, flows: dict[str, Flow], held: Held) -> Settlement | None:
    """A worker takes the next job, and dies as soon as it has begun the task; else what became of the job."""
    working = asyncio.create_task(world.hand(flows).work())
    at_work = asyncio.create_task(held.at_work())
    await asyncio.wait({working, at_work}, return_when=asyncio.FIRST_COMPLETED)
    at_work.cancel()
    if working.done():
        return working.result()
    await die(world, working)
    return None


def test_the_last_delivery_of_a_run_that_was_cancelled_ends_it_cancelled() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand(flows, "w1").work())
        await held.at_work()
        await die(world, working)
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert await world.hand(flows, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert await world.dead() == []

    attempt(body, max_deliver=2)


def test_a_job_that_is_delivered_only_once_is_run() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan", {"n": 1})
        assert await world.hand({"fan": fan_flow(Calls())}).work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, max_deliver=1)


def test_a_job_that_crashes_every_worker_ends_failed() -> None:
    async def body(world: World) -> None:
        async def surprise() -> None:
            raise LookupError("a bug")

        run_id = await world.submit("fan", {"n": 1})
        hand = world.hand({"fan": fan_flow(Calls())})
        tries = 0
        world.trouble.meanwhile["log.subscribe"] = surprise
        while not isinstance(settlement := await hand.work(), Ack):
            tries += isinstance(settlement, Nak)
            world.trouble.meanwhile["log.subscribe"] = surprise
        assert tries == 2 + LONE_DELIVERIES
        assert (await world.stored(run_id))["status"] == "FAILED"
        assert [letter["reason"] for letter in await world.dead()] == ["execution_error"]

    attempt(body, max_deliver=3)


# --- Jobs of others --------------------------------------------------------------------------------------------------


def test_a_documented_job_of_a_foreign_producer_is_adopted() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        await world.publish({**FOREIGN, "priority": "extra fields are ignored"})
        assert await world.hand({"fan": fan_flow(calls)}).work() == Ack()
        stored = await world.stored(RUN)
        assert (stored["status"], stored["params"], stored["tags"]) == ("COMPLETED", {"n": 3}, ["default"])
        assert stored["submitted_at"] == 1_893_456_000
        created = (await world.events(RUN))[0]
        assert (created.actor.kind, created.actor.id) == ("external", "queue")
        assert calls.count("total") == 1

    attempt(body)


def test_a_foreign_job_that_is_queued_twice_runs_once() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        hand = world.hand({"fan": fan_flow(calls)})
        for _ in range(2):
            await world.publish(FOREIGN)
            assert await hand.work() == Ack()
        assert calls.count("total") == 1

    attempt(body)


def test_two_workers_that_adopt_one_run_agree_who_did() -> None:
    async def body(world: World) -> None:
        flows = {"fan": fan_flow(Calls())}
        await world.publish(FOREIGN)
        await world.publish(FOREIGN)
        first, second = world.hand(flows, "w1"), world.hand(flows, "w2")
        one, other = await first.pull(), await second.pull()

        async def be_quicker() -> None:
            assert await second.handle(other) == Ack()

        world.trouble.meanwhile["log.append"] = be_quicker
        assert await first.handle(one) == Ack()
        check_no_repeats(await world.events(RUN))
        assert (await world.stored(RUN))["status"] == "COMPLETED"

    attempt(body)


# --- Flows that change -----------------------------------------------------------------------------------------------


def test_a_run_whose_flow_has_lost_a_step_is_held(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        calls, held = Calls(), Held("gone")
        old = Flow("changing") >> held.task() >> calls.task("last", 1)
        run_id = await world.submit("changing")
        working = asyncio.create_task(world.hand({"changing": old}, "w1").work())
        await held.at_work()
        await die(world, working)
        hand: Hand = world.hand({"changing": Flow("changing") >> calls.task("other", 1) >> calls.task("last", 1)}, "w2")
        assert await hand.work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["held"]["needs"]) == ("RUNNING", ["gone"])
        assert await world.dead() == []

    attempt(body, max_deliver=3)
    assert "run_held" in [record.__dict__.get("action") for record in caplog.records]
