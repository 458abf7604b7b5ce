"""The worker as a whole: slots, tags, loops that die, and clean shutdown."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.worker.worker import TagScheduler, Worker
from tests.app.runtime.flows import Calls
from tests.waiting import wait_until
from tests.wheels.building import wheel_name
from tests.wheels.test_registry import add
from tests.wheels.test_sync import World as WheelWorld
from tests.worker.faulty import Fault
from tests.worker.world import USER, Hand, Held, World, attempt

QUICK: dict[str, Any] = {"run_heartbeat_interval_sec": 0.02, "ack_progress_interval_sec": 0.02, "poll_timeout_sec": 0.2}


class Crowd:
    """Counts how many tasks are at work at a time; each stays until the others have had their chance."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def flow(self) -> Flow:
        async def body() -> None:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1

        return Flow("crowd") >> TaskWrapper(Task(func=body, name="body"))


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    """Run the worker, and at the end stop it without waiting for its runs."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        worker.stop()
        await asyncio.wait([task])


def one_flow(calls: Calls) -> Flow:
    return Flow("one") >> calls.task("only", 1)


# --- Slots and tags --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_runs_at_a_time_than_slots(concurrency: int) -> None:
    async def body(world: World) -> None:
        crowd = Crowd()
        for _ in range(12):
            await world.submit("crowd")
        worker = world.hand({"crowd": crowd.flow()}, concurrency=concurrency, **QUICK).worker()
        async with working(worker):
            await wait_until(lambda: worker.handled == 12)
        assert (crowd.total, crowd.most) == (12, concurrency)
        assert world.queue.settled == ["ack"] * 12

    attempt(body, virtual=False)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_with_fewer_slots_than_tags_no_tag_starves(concurrency: int) -> None:
    async def body(world: World) -> None:
        crowd = Crowd()
        tags = ("a", "b", "c")
        for _ in range(30):
            await world.submit("crowd", tag="a")
        late = [await world.submit("crowd", tag=tag) for tag in ("b", "c")]
        hand = world.hand({"crowd": crowd.flow()}, tags=tags, concurrency=concurrency, **QUICK)
        worker = hand.worker()
        async with working(worker):
            await wait_until(lambda: worker.handled >= 8)
            ended = [(await world.state(run_id)).is_terminal for run_id in late]
        assert ended == [True, True]

    attempt(body, virtual=False)


def test_a_job_is_taken_although_the_only_slot_waits_at_another_tag() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"one": one_flow(Calls())}, tags=("a", "b"), concurrency=1, poll_timeout_sec=600.0)
        worker = hand.worker()
        async with working(worker):
            await wait_until(lambda: world.trouble.calls.count("queue.pull") >= 1)
            for tag in ("b", "a", "b"):
                await world.submit("one", tag=tag)
            await wait_until(lambda: worker.handled == 3)

    attempt(body, virtual=False)


def test_a_worker_with_many_slots_has_few_requests_out_and_fills_them_all() -> None:
    async def body(world: World) -> None:
        held = Held()
        flow, many = Flow("held") >> held.task(), 200
        worker = world.hand({"held": flow}, concurrency=many, poll_timeout_sec=600.0).worker()
        async with working(worker):
            await wait_until(lambda: world.trouble.calls.count("queue.pull") >= 32)
            await asyncio.sleep(0.05)
            assert world.trouble.calls.count("queue.pull") == 32
            for _ in range(many):
                await world.submit("held")
            await wait_until(lambda: held.began == many)
            assert world.trouble.calls.count("queue.pull") == many, "without a free slot there is no pull"
            held.release()
            await wait_until(lambda: worker.handled == many)

    attempt(body, virtual=False)


def test_every_tag_has_a_request_out_however_many_there_are() -> None:
    async def body(world: World) -> None:
        tags = tuple(f"tag-{number}" for number in range(50))
        hand = world.hand({"one": one_flow(Calls())}, tags=tags, concurrency=50, poll_timeout_sec=600.0)
        worker = hand.worker()
        async with working(worker):
            await wait_until(lambda: world.trouble.calls.count("queue.pull") == len(tags))
            for tag in tags:
                await world.submit("one", tag=tag)
            await wait_until(lambda: worker.handled == len(tags))

    attempt(body, virtual=False)


def test_turns_are_spread_and_go_round() -> None:
    turns = TagScheduler(["a", "b", "c"])
    assert [turns.take() for _ in range(3)] == ["a", "b", "c"]
    turns.give_back("b")
    assert turns.take() == "b"
    alone = TagScheduler(["a", "b", "c"])
    seen = []
    for _ in range(6):
        seen.append(alone.take())
        alone.give_back(seen[-1])
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_a_queue_that_is_away_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.pull", Fault.NOT_DONE)
        await world.submit("one")
        worker = world.hand({"one": one_flow(Calls())}, concurrency=1, **QUICK).worker()
        async with working(worker):
            await wait_until(lambda: worker.handled == 1)

    attempt(body, virtual=False)
    assert "pull_failed" in [record.__dict__.get("action") for record in caplog.records]


# --- Signs of life ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0010")
def test_a_long_run_is_not_delivered_to_another_worker() -> None:
    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("held")
        worker = world.hand({"held": Flow("held") >> held.task()}, concurrency=2, **QUICK).worker()
        async with working(worker):
            await held.at_work()
            await wait_until(lambda: world.trouble.calls.count("delivery.in_progress") >= 20)
            stored = await world.stored(run_id)
            assert (stored["status"], stored["driven_by"]) == ("RUNNING", "w1")
            held.release()
            await wait_until(lambda: worker.handled == 1)
        assert held.began == 1
        assert world.queue.settled == ["ack"]

    attempt(body, virtual=False, ack_wait_sec=0.2)


@pytest.mark.spec("004 REQ-0024")
def test_a_cancel_is_seen_by_the_heartbeat_alone() -> None:
    async def body(world: World) -> None:
        held = Held()
        world.trouble.is_silent = True
        run_id = await world.submit("held")
        worker = world.hand({"held": Flow("held") >> held.task()}, **QUICK).worker()
        async with working(worker):
            await held.at_work()
            await world.cancel(run_id, USER)
            await wait_until(lambda: worker.handled == 1)
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert held.stopped == 1

    attempt(body, virtual=False)


@pytest.mark.parametrize("call", ["registry.update", "log.read", "delivery.in_progress"])
def test_a_loop_that_dies_takes_the_worker_with_it(call: str) -> None:
    """A worker without its heartbeats would only seem to live."""

    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("held")
        hand = world.hand({"held": Flow("held") >> held.task()}, worker_heartbeat_interval_sec=0.02, **QUICK)
        running = asyncio.create_task(hand.worker().run())
        await held.at_work()

        async def surprise() -> None:
            raise LookupError("a bug")

        world.trouble.meanwhile[call] = surprise
        with pytest.raises(LookupError):
            await running
        assert hand.handler.running == {}
        assert world.queue.settled == ["nak 0"]
        assert (await world.stored(run_id))["driven_by"] is None

    attempt(body, virtual=False)


# --- The end ---------------------------------------------------------------------------------------------------------


async def busy(world: World, **options: Any) -> tuple[Hand, Held, Worker, "asyncio.Task[None]"]:
    held = Held()
    await world.submit("held")
    hand = world.hand({"held": Flow("held") >> held.task()}, concurrency=2, **QUICK, **options)
    worker = hand.worker()
    running = asyncio.create_task(worker.run())
    await held.at_work()
    return hand, held, worker, running


async def check_good_bye(world: World) -> None:
    entry = await world.registry.get("w1")
    assert entry is not None
    assert (entry["state"], entry["stop_reason"], entry["current_run_id"]) == (
        "STOPPED_GRACEFUL",
        "graceful_shutdown",
        None,
    )
    assert entry["stopped_at"] is not None


def test_a_stopping_worker_finishes_its_runs_and_takes_no_more() -> None:
    async def body(world: World) -> None:
        _, held, worker, running = await busy(world)
        worker.stop()
        await world.submit("held")
        await asyncio.sleep(0)
        assert not running.done()
        held.release()
        await running
        assert (held.began, worker.handled) == (1, 1)
        assert [how for how in world.queue.settled if how != "nak 0"] == [
            "ack"
        ]  # a job that comes too late is released
        assert await world.queue.pull("default", timeout_sec=0) is not None  # there for the next at once
        await check_good_bye(world)

    attempt(body, virtual=False)


@pytest.mark.parametrize("how", ["timeout", "second stop", "cancelled"])
def test_runs_that_do_not_end_in_time_are_released(how: str) -> None:
    async def body(world: World) -> None:
        hand, held, worker, running = await busy(world, stop_timeout_sec=0.05 if how == "timeout" else 60.0)
        if how == "cancelled":
            running.cancel()
        else:
            worker.stop()
        if how == "second stop":
            worker.stop()
        await asyncio.wait([running])
        assert running.cancelled() == (how == "cancelled")
        assert held.stopped == 1
        assert hand.handler.running == {}
        assert world.queue.settled == ["nak 0"]
        await check_good_bye(world)
        held.release()
        other = world.hand({"held": Flow("held") >> held.task()}, "w2")
        await other.work()
        assert held.began == 2
        assert world.queue.settled == ["nak 0", "ack"]

    attempt(body, virtual=False)


def test_a_worker_without_work_stops_at_once_and_says_so() -> None:
    async def body(world: World) -> None:
        worker = world.hand({}, poll_timeout_sec=600.0).worker()
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: world.trouble.calls.count("queue.pull") == 8)
        worker.stop()
        await running
        await check_good_bye(world)

    attempt(body, virtual=False)


def test_a_lost_deregistration_does_not_keep_the_worker() -> None:
    async def body(world: World) -> None:
        worker = world.hand({}, **QUICK).worker()
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: world.trouble.calls.count("queue.pull") >= 8)
        world.trouble.always("registry.update", Fault.NOT_DONE)
        worker.stop()
        await running

    attempt(body, virtual=False)


def test_a_worker_that_cannot_begin_waits_for_the_queue_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.trouble.always("queue.prepare", Fault.NOT_DONE)
        calls = Calls()
        run_id = await world.submit("one")
        async with working(world.hand({"one": one_flow(calls)}, **QUICK).worker()) as running:
            await wait_until(lambda: world.trouble.calls.count("queue.prepare") >= 3)
            assert not running.done()
            world.trouble.always("queue.prepare", Fault.NONE)
            await wait_until(lambda: calls.names == ["only"])
        assert (await world.state(run_id)).execution_id == run_id

    attempt(body, virtual=False)
    assert [record.__dict__.get("action") for record in caplog.records].count("queue_awaited") == 1


def test_a_worker_that_waits_for_the_queue_can_be_stopped() -> None:
    async def body(world: World) -> None:
        world.trouble.always("queue.prepare", Fault.NOT_DONE)
        worker = world.hand({}).worker()
        running = asyncio.create_task(worker.run())
        await wait_until(lambda: "queue.prepare" in world.trouble.calls)
        worker.stop()
        await running

    attempt(body, virtual=False)


# --- Once ------------------------------------------------------------------------------------------------------------


def test_run_once_handles_one_job() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        for tag in ("b", "b"):
            await world.submit("one", tag=tag)
        hand = world.hand({"one": one_flow(calls)}, tags=("a", "b"), **QUICK)
        assert await hand.worker().run_once() is True
        assert calls.names == ["only"]
        assert await world.queue.backlog("b") == 1
        await check_good_bye(world)

    attempt(body, virtual=False)


def test_run_once_says_that_there_was_nothing() -> None:
    async def body(world: World) -> None:
        assert await world.hand({}, **QUICK).worker().run_once() is False
        await check_good_bye(world)

    attempt(body, virtual=False)


def test_run_once_can_be_stopped_and_releases_its_job() -> None:
    async def body(world: World) -> None:
        held = Held()
        await world.submit("held")
        worker = world.hand({"held": Flow("held") >> held.task()}, **QUICK).worker()
        running = asyncio.create_task(worker.run_once())
        await held.at_work()
        worker.stop()
        worker.stop()
        assert await running is False
        assert world.queue.settled == ["nak 0"]
        await check_good_bye(world)

    attempt(body, virtual=False)


def test_run_once_pulls_when_the_wheels_are_in_use() -> None:
    async def body(world: World) -> None:
        hand = world.hand({}, **QUICK)
        wheels = WheelWorld(interval_sec=60.0, gate=hand.handler.gate)
        await add(wheels.registry, wheel_name("a", "1.0"))
        wheels.house.on_install = lambda: events.append(world.trouble.calls.count("queue.pull"))
        events = list[int]()
        await hand.worker(wheels.sync).run_once()
        assert events == [0]
        assert world.trouble.calls.count("queue.pull") == 1

    attempt(body, virtual=False)


def test_only_slots_that_pull_or_have_a_job_are_inside_the_gate() -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()}, concurrency=100, poll_timeout_sec=0.05)
        worker, gate = hand.worker(), hand.handler.gate
        async with working(worker):
            for _ in range(3):
                await world.submit("held")
            await wait_until(lambda: held.began == 3)
            await wait_until(lambda: world.trouble.calls.count("queue.pull") > 300)
            assert gate.present <= 3 + 32, "a slot that waits for its turn to pull is outside"
            world.trouble.next("queue.pull", Fault.NOT_DONE)
            held.release()
            await wait_until(lambda: worker.handled == 3)
        assert gate.present == 0

    attempt(body, virtual=False)


def test_a_worker_with_many_idle_slots_gets_its_wheels_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"one": one_flow(Calls())}, concurrency=100, poll_timeout_sec=0.05)
        wheels = WheelWorld(interval_sec=0.05, first_hold_sec=2.0, gate=hand.handler.gate)
        worker = hand.worker(wheels.sync)
        async with working(worker):
            await wait_until(lambda: world.trouble.calls.count("queue.pull") > 200)
            await add(wheels.registry, wheel_name("a", "1.0"))
            await wait_until(lambda: wheels.house.active)
            await world.submit("one")
            await wait_until(lambda: worker.handled == 1)

    caplog.set_level(logging.INFO)
    attempt(body, virtual=False)
    assert not [record for record in caplog.records if getattr(record, "action", "") == "wheel_sync_deferred"]
