"""Jobs that may crash their worker: they run alone in it, so that no other job is lost with them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.ports import Delivery
from pyoco_server.app.recovery.quarantine_history import QuarantineHistory
from pyoco_server.worker.quarantined_job import QuarantinedDelivery, history_for, recognised, replace
from pyoco_server.worker.settlement import Ack, Nak, Quarantine
from pyoco_server.worker.slot_gate import SlotGate
from tests.app.runtime.flows import Calls
from tests.waiting import wait_until
from tests.worker.faulty import Fault
from tests.worker.test_redelivery import die
from tests.worker.test_worker_loop import QUICK, Crowd, working
from tests.worker.world import USER, Hand, Held, World, attempt


async def pulled(world: World) -> Delivery:
    found = await world.queue.pull("default", timeout_sec=100)
    assert found is not None
    return found


async def submit_lone(world: World, flow_name: str) -> str:
    """Submit a run whose job is only run alone; no worker receives the job before it."""
    run_id = await world.submit(flow_name, tag="elsewhere")
    delivery = await world.queue.pull("elsewhere", timeout_sec=1)
    assert delivery is not None
    await world.publish({**msgspec.json.decode(delivery.body), "quarantine": {"deliveries": 3, "after": 1}})
    return run_id


async def queued_history(world: World) -> QuarantineHistory:
    """Return the quarantine history in the next job."""
    return msgspec.convert(msgspec.json.decode((await pulled(world)).body)["quarantine"], QuarantineHistory)


class Waiting:
    """A worker with a run at work, and a lone job that waits for its end."""

    def __init__(self, world: World, **options: Any) -> None:
        self.other, self.suspect, self.late = Held("other"), Held("suspect"), Held("late")
        flows = {held.name: Flow(held.name) >> held.task() for held in (self.other, self.suspect, self.late)}
        self.world = world
        self.hand = world.hand(flows, concurrency=3, **QUICK, **options)
        self.worker = self.hand.worker()
        self.run_id = ""

    @contextlib.asynccontextmanager
    async def begun(self) -> AsyncIterator["asyncio.Task[None]"]:
        await self.world.submit("other")
        async with working(self.worker) as running:
            await self.other.at_work()
            self.run_id = await submit_lone(self.world, "suspect")
            gate = self.hand.handler.gate
            await wait_until(lambda: gate.is_claimed and gate.present == 2)
            yield running


# --- Alone -----------------------------------------------------------------------------------------------------------


def test_a_lone_job_begins_when_the_others_are_done_and_none_begins_beside_it() -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun():
            await world.submit("late")
            said = world.trouble.calls.count("delivery.in_progress")
            await wait_until(lambda: world.trouble.calls.count("delivery.in_progress") >= said + 30)
            assert (waiting.suspect.began, waiting.late.began) == (0, 0)
            waiting.other.release()
            await waiting.suspect.at_work()
            pulls = world.trouble.calls.count("queue.pull")
            said = world.trouble.calls.count("delivery.in_progress")
            await wait_until(lambda: world.trouble.calls.count("delivery.in_progress") >= said + 30)
            assert (waiting.late.began, world.trouble.calls.count("queue.pull")) == (0, pulls)
            waiting.suspect.release()
            await waiting.late.at_work()
            waiting.late.release()
            await wait_until(lambda: waiting.worker.handled == 3)
        assert (await world.stored(waiting.run_id))["status"] == "COMPLETED"

    attempt(body, virtual=False, ack_wait_sec=0.2)


def test_of_many_lone_jobs_one_is_run_at_a_time_and_none_loses_a_try() -> None:
    async def body(world: World) -> None:
        crowd = Crowd()
        runs = [await submit_lone(world, "crowd") for _ in range(6)]
        hand = world.hand({"crowd": crowd.flow()}, concurrency=4, **QUICK)
        async with working(hand.worker()):
            await wait_until(lambda: crowd.total == 6 and not hand.handler.gate.is_claimed)
        assert crowd.most == 1
        assert set(world.queue.settled) == {"ack"}
        for run_id in runs:
            assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, virtual=False)


def test_a_lone_job_that_finds_no_place_is_queued_again_and_that_does_not_count() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})
        await submit_lone(world, "one")
        delivery = await pulled(world)
        with hand.handler.gate.exclusive(delivery):
            assert isinstance(await hand.handle(delivery), Quarantine)
        assert await queued_history(world) == QuarantineHistory(4, after=1, alone=0)

    attempt(body)


def test_no_job_begins_beside_a_lone_one_unless_the_worker_stops() -> None:
    async def body(world: World) -> None:
        await world.submit("one")
        delivery, place, order = await pulled(world), SlotGate(), list[str]()

        async def come_in(name: str) -> None:
            async with place.shared():
                order.append(name)

        with place.exclusive(delivery) as is_first:
            with place.exclusive(delivery) as is_second:
                assert (is_first, is_second) == (True, False)
            assert place.is_claimed
            coming = asyncio.create_task(come_in("after"))
            await asyncio.sleep(0)
            order.append("alone")
        await coming
        with place.exclusive(delivery):
            coming = asyncio.create_task(come_in("at the end"))
            await asyncio.sleep(0)
            place.close()
            await coming
        with place.exclusive(delivery) as is_granted:
            assert not is_granted
        assert order == ["alone", "after", "at the end"]

    attempt(body)


# --- Who is a suspect ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deaths", "is_suspect"), [(1, False), (2, True)])
def test_a_run_that_two_workers_died_with_is_run_alone(deaths: int, is_suspect: bool) -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        await world.submit("held")
        for _ in range(deaths):
            working = asyncio.create_task(hand.work())
            await held.at_work()
            await die(world, working)
        working = asyncio.create_task(hand.work())
        await held.at_work()
        assert hand.handler.gate.is_claimed == is_suspect
        held.release()
        assert await working == Ack()
        assert not hand.handler.gate.is_claimed

    attempt(body)


def test_a_run_that_was_handed_back_in_good_order_is_no_suspect() -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        await world.submit("held")
        for _ in range(5):
            working = asyncio.create_task(hand.work())
            await held.at_work()
            assert not hand.handler.gate.is_claimed
            working.cancel()
            await asyncio.wait([working])
        held.release()
        assert await hand.work() == Ack()

    attempt(body)


def test_a_suspect_that_finds_no_place_comes_again_later() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("one")
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})
        for _ in range(2):
            await (await pulled(world)).nak(0.0)
        delivery = await pulled(world)
        with hand.handler.gate.exclusive(delivery):
            assert isinstance(await hand.handle(delivery), Nak)
        assert await hand.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


def test_a_rescued_run_is_run_alone() -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        run_id = await world.submit("held")
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await die(world, working)
        await world.pass_time(20.0)
        await world.run_log.rescue(run_id)
        working = asyncio.create_task(hand.work())
        await held.at_work()
        assert hand.handler.gate.is_claimed
        held.release()
        await working

    attempt(body)


# --- While it waits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_cancel_does_not_wait_for_the_place(is_begun: bool) -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun():
            if is_begun:  # by a worker that died before it could report it
                elsewhere = world.hand({"suspect": Flow("suspect") >> waiting.suspect.task()}, "w2")
                await world.publish(
                    {"run_id": waiting.run_id, "flow_name": "suspect", "tag": "b", "submitted_at": 1.0}, tag="b"
                )
                work = asyncio.create_task(elsewhere.work("b"))
                await waiting.suspect.at_work()
                await die(world, work)
            await world.cancel(waiting.run_id, USER)
            await wait_until(lambda: waiting.worker.handled == 1)
            assert (await world.stored(waiting.run_id))["status"] == "CANCELLED"
            assert not waiting.hand.handler.gate.is_claimed
            waiting.other.release()
            await wait_until(lambda: waiting.worker.handled == 2)

    attempt(body, virtual=False)


def test_a_run_that_another_worker_resumed_meanwhile_is_left_to_it() -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun():
            elsewhere = world.hand({"suspect": Flow("suspect") >> waiting.suspect.task()}, "w2")
            await world.publish(
                {"run_id": waiting.run_id, "flow_name": "suspect", "tag": "b", "submitted_at": 1.0}, tag="b"
            )
            work = asyncio.create_task(elsewhere.work("b"))
            await waiting.suspect.at_work()
            await elsewhere.handler.running[waiting.run_id].beat()
            waiting.other.release()
            await wait_until(lambda: waiting.worker.handled == 2)
            waiting.suspect.release()
            assert await work == Ack()
        assert (waiting.suspect.began, world.queue.settled) == (1, ["ack"] * 3)

    attempt(body, virtual=False)


def test_a_worker_that_stops_releases_waiting_jobs_and_finishes_the_rest() -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun() as running:
            waiting.worker.stop()
            await wait_until(lambda: waiting.worker.handled == 1)
            assert not running.done()
            waiting.other.release()
            await running
        assert (waiting.other.began, waiting.suspect.began) == (1, 0)
        assert await queued_history(world) == QuarantineHistory(4, after=1, alone=0)

    attempt(body, virtual=False)


def test_a_worker_that_is_cancelled_releases_waiting_jobs() -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun() as running:
            running.cancel()
            await asyncio.wait([running])
        assert (await world.queue.backlog("default"), waiting.suspect.began) == (1, 0)

    attempt(body, virtual=False)


def test_lost_signs_of_life_of_a_waiting_job_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        waiting = Waiting(world)
        async with waiting.begun():
            world.trouble.always("delivery.in_progress", Fault.NOT_DONE)
            said = world.trouble.calls.count("delivery.in_progress")
            await wait_until(lambda: world.trouble.calls.count("delivery.in_progress") >= said + 4)
            waiting.other.release()
            waiting.suspect.release()
            await wait_until(lambda: waiting.worker.handled == 2)

    attempt(body, virtual=False)
    assert "in_progress_failed" in [record.__dict__.get("action") for record in caplog.records]


# --- Lone jobs -------------------------------------------------------------------------------------------------------


def test_a_worker_that_stops_amid_a_lone_run_does_not_count_against_it() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await submit_lone(world, "held")
        for number in range(4):
            hand: Hand = world.hand(flows, f"w{number}")
            working = asyncio.create_task(hand.work())
            await held.at_work()
            working.cancel()
            await asyncio.wait([working])
        held.release()
        assert await world.hand(flows, "w5").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, max_deliver=3)


def test_deliveries_in_which_nothing_was_begun_do_not_count_soon() -> None:
    """A job that waits to be alone may lose its worker to the jobs that run there."""

    async def body(world: World) -> None:
        run_id = await submit_lone(world, "one")
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})
        for _ in range(4):
            await pulled(world)  # and never acknowledged
        while not isinstance(await hand.work(), Ack):
            assert not (await world.state(run_id)).is_terminal
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, max_deliver=5)


def test_a_resumed_run_that_was_quarantined_continues() -> None:
    """The job that replaces a wake-up is delivered for the first time, but it is not the first for the run."""

    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"resumed": Flow("resumed") >> wait("approval") >> held.task()})
        run_id = await world.submit("resumed")
        assert await hand.work() == Ack()
        await world.resume(run_id, "approval", {"by": "ann"}, USER)
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await die(world, working)
        held.release()
        delivery = await pulled(world)
        await replace(delivery, history_for(delivery, await world.events(run_id)), world.queue)
        assert await hand.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


def test_a_job_that_cannot_be_replaced_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        await world.submit("one")
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})
        await pulled(world)
        world.trouble.next("queue.publish", Fault.TOO_LARGE)
        assert isinstance(await hand.work(), Quarantine)
        assert world.queue.settled == []

    attempt(body, max_deliver=2)
    assert "job_not_settled" in [record.__dict__.get("action") for record in caplog.records]


@pytest.mark.parametrize(
    ("said", "is_lone"), [({"deliveries": 3, "after": 1}, True), (None, False), ("x", False), ({"after": "x"}, False)]
)
def test_only_a_valid_quarantine_history_in_a_job_is_used(said: object, is_lone: bool) -> None:
    async def body(world: World) -> None:
        await world.publish({"run_id": "r", "params": {"quarantine": 1}, "quarantine": said})
        delivery = recognised(await pulled(world), world.queue)
        assert isinstance(delivery, QuarantinedDelivery) == is_lone
        assert delivery.times_delivered == (4 if is_lone else 1)

    attempt(body)
