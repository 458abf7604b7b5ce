"""Parked runs and their wake-ups: no wake-up is lost, and none is handled twice."""

import asyncio

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.worker.settlement import Ack, Nak, NoAction
from tests.app.runtime.flows import Calls, approval_flow
from tests.waiting import wait_until
from tests.worker.faulty import Fault
from tests.worker.world import USER, Held, World, attempt


def rounds_flow(calls: Calls, *, deadline_sec: float | None = None) -> Flow:
    """A wait inside a loop, and a task behind it."""
    flow = Flow("rounds")
    flow >> wait("nod", deadline_sec=deadline_sec)["$ctx.params.items as item"] >> calls.task("after", "after")
    return flow


def test_the_job_of_a_parked_run_is_acked() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"approval": approval_flow(Calls())})
        run_id = await world.submit("approval")
        assert await hand.work() == Ack()
        assert hand.handler.running == {}
        stored = await world.stored(run_id)
        assert (stored["status"], stored["driven_by"]) == ("RUNNING", None)
        assert stored["tasks"] == {"draft": "SUCCEEDED", "approval": "RUNNING", "publish": "PENDING"}
        assert [(entry["task"], entry["prompt"]) for entry in stored["waiting"]] == [
            ("approval", {"question": "publish?"})
        ]
        assert await world.dead() == []

    attempt(body)


def test_a_resume_wakes_the_run_for_any_worker() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        flows = {"approval": approval_flow(calls)}
        run_id = await world.submit("approval")
        await world.hand(flows, "w1").work()
        await world.resume(run_id, "approval", {"ok": True}, USER)
        assert await world.hand(flows, "w2").work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("COMPLETED", "w2")
        assert stored["task_records"]["publish"]["output"] == {"ok": True}
        assert calls.names == ["draft", "publish"]

    attempt(body)


def test_a_wake_up_of_a_run_that_waits_for_something_else_is_needless() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"approval": approval_flow(Calls())})
        run_id = await world.submit("approval")
        await hand.work()
        before = await world.types(run_id)
        await world.run_log.wake(await world.run_log.open(run_id))
        assert await hand.work() == Ack()
        assert await world.types(run_id) == before

    attempt(body)


def test_a_wake_up_of_a_run_that_has_ended_is_needless() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"approval": approval_flow(Calls())})
        run_id = await world.submit("approval")
        await hand.work()
        await world.resume(run_id, "approval", 1, USER)
        await world.cancel(run_id, USER)
        assert await hand.work() == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_wake_up_of_an_unknown_run_creates_none(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        run_id = "11111111-0000-4000-8000-000000000000"
        job = {"run_id": run_id, "flow_name": "approval", "tag": "default", "submitted_at": 1}
        await world.publish({**job, "log_position": 7, "wake": True})
        assert await world.hand({"approval": approval_flow(Calls())}).work() == Ack()
        assert await world.events(run_id) == []
        assert await world.stored(run_id) == {}

    attempt(body)
    assert "log_gone" in [record.__dict__.get("action") for record in caplog.records]


def test_a_wake_up_survives_the_death_of_its_worker() -> None:
    """The run is at work when the wake-up comes back, and the only job there is for it is this one."""

    async def body(world: World) -> None:
        held = Held("publish")
        flow = Flow("approval") >> wait("approval") >> held.task()
        run_id = await world.submit("approval")
        first, second = world.hand({"approval": flow}, "w1"), world.hand({"approval": flow}, "w2")
        await first.work()
        await world.resume(run_id, "approval", 1, USER)
        doomed = asyncio.create_task(first.work())
        await held.at_work()
        world.trouble.always("delivery.nak", Fault.NOT_DONE)
        world.trouble.always("snapshots.write", Fault.NOT_DONE)
        doomed.cancel()
        await asyncio.wait([doomed])
        world.trouble.always("snapshots.write", Fault.NONE)
        held.release()
        assert await second.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert held.began == 2

    attempt(body)


def test_a_wait_inside_a_loop_that_expires_wakes_the_loop() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"rounds": rounds_flow(Calls(), deadline_sec=60)})
        run_id = await world.submit("rounds", {"items": [1, 2]})
        await hand.work()
        [waiting] = (await world.stored(run_id))["waiting"]
        await world.run_log.expire(run_id, waiting["node_id"], USER)
        assert isinstance(await hand.work(), Ack)
        assert (await world.stored(run_id))["status"] == "FAILED"

    attempt(body)


def test_a_wait_inside_a_loop_is_resumed_round_by_round() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        flows = {"rounds": rounds_flow(calls)}
        run_id = await world.submit("rounds", {"items": [1, 2, 3]})
        await world.hand(flows, "w0").work()
        for number in (1, 2, 3):
            [waiting] = (await world.stored(run_id))["waiting"]
            await world.resume(run_id, waiting["node_id"], number, USER)
            assert await world.hand(flows, f"w{number}").work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["waiting"]) == ("COMPLETED", [])
        assert calls.names == ["after"]

    attempt(body)


def test_two_resumes_and_only_one_wake_up_are_enough() -> None:
    async def body(world: World) -> None:
        flow = Flow("both")
        for name in ("one", "other"):
            flow.add_task(wait(name).task)
        hand = world.hand({"both": flow})
        run_id = await world.submit("both")
        await hand.work()
        await world.resume(run_id, "one", 1, USER)
        world.trouble.next("queue.publish", Fault.NOT_DONE)
        await world.resume(run_id, "other", 2, USER)
        assert await hand.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


# --- While a worker owns the run -------------------------------------------------------------------------------------


def beside_flow(held: Held) -> Flow:
    """A wait beside a task that takes its time."""
    flow = Flow("beside")
    flow.add_task(held.task().task)
    flow.add_task(wait("nod").task)
    return flow


def test_a_wake_up_of_an_owned_run_is_delivered_again_later() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"beside": beside_flow(held)}
        run_id = await world.submit("beside")
        first, second = world.hand(flows, "w1"), world.hand(flows, "w2")
        driving = asyncio.create_task(first.work())
        await held.at_work()
        await first.handler.running[run_id].beat()
        assert (await world.stored(run_id))["driven_by"] == "w1"
        world.trouble.is_silent = True  # the owner does not receive the resume for now
        await world.resume(run_id, "nod", 1, USER)
        assert isinstance(await second.work(), Nak)
        await first.handler.running[run_id].beat()
        held.release()
        assert await driving == Ack()
        assert await second.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert held.began == 1

    attempt(body)


def test_exhausted_wake_ups_do_not_fail_an_owned_run() -> None:
    """The owner receives the resume late: the wake-up exhausts its deliveries, and the run continues."""

    async def body(world: World) -> None:
        held = Held()
        flows = {"beside": beside_flow(held)}
        run_id = await world.submit("beside")
        first, second = world.hand(flows, "w1"), world.hand(flows, "w2")
        driving = asyncio.create_task(first.work())
        await held.at_work()
        driven = first.handler.running[run_id]
        await driven.beat()
        world.trouble.is_silent = True
        await world.resume(run_id, "nod", 1, USER)
        dispositions = []
        for _ in range(3):
            dispositions.append(await second.work())
            await driven.report_progress()
            await world.pass_time(0.6)
        assert dispositions == [Nak(0.3), Nak(0.6), Ack()]
        await driven.beat()
        held.release()
        assert await driving == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert held.began == 1

    attempt(body, max_deliver=3)


def test_a_wake_up_that_the_owner_has_handled_starts_nothing_and_stays_queued() -> None:
    """It may be the very job that the driver has in hand, delivered to a worker that was paused."""

    async def body(world: World) -> None:
        held = Held()
        flows = {"beside": beside_flow(held)}
        run_id = await world.submit("beside")
        first = world.hand(flows, "w1")
        driving = asyncio.create_task(first.work())
        await held.at_work()
        driver = first.handler.running[run_id].run
        await world.resume(run_id, "nod", 1, USER)
        await wait_until(lambda: driver.state.nodes["nod"].status == "SUCCEEDED")
        second = world.hand(flows, "w2")
        assert await second.work() == Nak(0.3)
        held.release()
        assert await driving == Ack()
        assert await second.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert held.began == 1

    attempt(body)


def test_a_wake_up_that_reaches_the_owner_leaves_its_job_alone() -> None:
    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("beside")
        hand = world.hand({"beside": beside_flow(held)})
        driving = asyncio.create_task(hand.work())
        await held.at_work()
        job = hand.handler.running[run_id].delivery
        await world.run_log.wake(await world.run_log.open(run_id))
        assert isinstance(await hand.work(), Nak)
        assert hand.handler.running[run_id].delivery is job
        held.release()
        assert await driving == Ack()
        await world.resume(run_id, "nod", 1, USER)
        assert isinstance(await hand.work(), Ack)
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


def test_a_job_that_is_redelivered_to_its_owner_replaces_the_first_delivery() -> None:
    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("held")
        hand = world.hand({"held": Flow("held") >> held.task()})
        driving = asyncio.create_task(hand.work())
        await held.at_work()
        await world.pass_time(31)
        again = await hand.pull()
        assert again.times_delivered == 2
        assert await hand.handle(again) == NoAction()
        assert hand.handler.running[run_id].delivery is again
        assert held.began == 1
        held.release()
        assert await driving == Ack()
        assert world.queue.settled == ["ack"]
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


def test_an_owner_without_heartbeats_loses_the_run() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        flows = {"approval": approval_flow(calls)}
        run_id = await world.submit("approval")
        await world.hand(flows, "w1").work()
        stored = {**await world.stored(run_id), "driven_by": "w1"}
        position = stored["log_position"]
        await world.snapshots.inner.write(run_id, msgspec.json.encode(stored), position=position)
        await world.resume(run_id, "approval", 1, USER)
        second = world.hand(flows, "w2")
        assert isinstance(await second.work(), Nak)
        await world.pass_time(4)
        assert await second.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)
