"""Each sweep does what a process that died left undone."""

import asyncio

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.recovery.reconciler import PUT_OFF_SEC
from pyoco_server.app.runs.run_log import OpenRun
from pyoco_server.core import Actor
from tests.app.recovery.swept import CREATION, OPTIONS, SENDER, Swept, commands_on_graph, sweeping
from tests.waiting import PATIENCE_SEC
from tests.worker.faulty import Fault
from tests.worker.test_redelivery import die
from tests.worker.world import USER, Held


def test_a_wait_past_its_deadline_fails_the_parked_run() -> None:
    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval", deadline_sec=60)
        hand = swept.world.hand({"asking": flow})
        run_id = await swept.world.submit("asking")
        await hand.work()
        await swept.sweep()
        assert await swept.status(run_id) == "RUNNING"
        await swept.world.pass_time(61)
        await swept.sweep()
        assert await swept.status(run_id) == "FAILED"
        assert "nobody resumed" in (await swept.world.stored(run_id))["error"]

    sweeping(body)


def test_a_wait_past_its_deadline_takes_its_default_and_a_worker_goes_on() -> None:
    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval", deadline_sec=60, default={"by": "default"})
        hand = swept.world.hand({"asking": flow})
        run_id = await swept.world.submit("asking")
        await hand.work()
        await swept.world.pass_time(61)
        await swept.sweep()
        await swept.sweep()  # a second time, or by a second gateway, changes nothing
        await hand.work()
        assert await swept.status(run_id) == "COMPLETED"
        types = await swept.world.types(run_id)
        assert types.count("NODE_RESUMED") == 1

    sweeping(body)


def test_a_cancel_that_no_worker_ends_is_ended_after_its_grace_period() -> None:
    async def body(swept: Swept) -> None:
        held = Held("stuck")
        hand = swept.world.hand({"stuck": Flow("stuck") >> held.task()})
        run_id = await swept.world.submit("stuck")
        going = asyncio.create_task(hand.work())
        await held.at_work()
        await die(swept.world, going)
        snapshot = await swept.world.cancel(run_id, USER, "enough")
        assert snapshot["status"] == "CANCELLING"
        await swept.sweep()
        assert await swept.status(run_id) == "CANCELLING"
        await swept.world.pass_time(7)
        await swept.sweep()
        assert await swept.status(run_id) == "CANCELLED"
        assert (await swept.world.types(run_id)).count("EXECUTION_CANCELED") == 1
        held.release()

    sweeping(body)


def test_a_snapshot_behind_its_log_is_replaced() -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("any")
        swept.world.trouble.always("snapshots.write", Fault.NOT_DONE)
        await swept.world.cancel(run_id, USER)
        swept.world.trouble.always("snapshots.write", Fault.NONE)
        await swept.sweep()
        assert await swept.status(run_id) == "PENDING"
        await swept.world.pass_time(4)
        await swept.sweep()
        assert await swept.status(run_id) == "CANCELLED"

    sweeping(body)


def test_a_run_without_a_sign_of_life_gets_another_job() -> None:
    async def body(swept: Swept) -> None:
        held = Held("held")
        flows = {"held": Flow("held") >> held.task()}
        first, second = swept.world.hand(flows, "w1"), swept.world.hand(flows, "w2")
        run_id = await swept.world.submit("held")
        going = asyncio.create_task(first.work())
        await held.at_work()
        await die(swept.world, going)
        lost = await second.pull()  # as if the stream of jobs had been lost
        await lost.term()
        held.release()
        await swept.sweep()
        assert await swept.world.queue.backlog("default") == 0
        await swept.world.pass_time(90)
        await swept.sweep()
        assert await swept.world.queue.backlog("default") == 1
        await second.work()
        assert await swept.status(run_id) == "COMPLETED"

    sweeping(body)


def test_a_run_with_the_tag_of_executions_of_others_is_a_run_like_any_other() -> None:
    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval")
        hand = swept.world.hand({"asking": flow})
        lost = await swept.world.submit("asking", tag="external")
        delivery = await hand.pull("external")
        await delivery.term()  # as if the stream of jobs had been lost
        await swept.world.pass_time(90)
        await swept.sweep()
        await hand.work("external")
        assert (await swept.world.stored(lost))["tasks"] == {"approval": "RUNNING"}
        await swept.world.resume(lost, "approval", {"by": "ann"}, USER)
        await hand.work("external")
        assert await swept.status(lost) == "COMPLETED"

    sweeping(body)


def test_executions_driven_from_outside_do_not_keep_lost_runs_from_being_rescued() -> None:
    async def body(swept: Swept) -> None:
        commands = await commands_on_graph(swept)
        outside = [(await commands.create_from(CREATION, SENDER)).execution_id for _ in range(120)]
        unmarked = await swept.world.snapshots.read(outside[0])  # as it was written before there was such a mark
        assert unmarked is not None
        said = msgspec.json.decode(unmarked.body)
        assert said.pop("driven_outside") is True
        await swept.world.snapshots.write(outside[0], msgspec.json.encode(said), position=unmarked.position)
        run_id = await swept.world.submit("any")
        delivery = await swept.world.queue.inner.pull("default", timeout_sec=0)
        assert delivery is not None
        await delivery.term()
        await swept.world.pass_time(90)
        await swept.sweep()
        await swept.keeper.catch_up()
        assert await swept.world.queue.backlog("default") == 1
        assert await swept.world.queue.backlog("external") == 0
        assert [run.summary["run_id"] for run in await swept.index.silent(1e12)] == [run_id]

    sweeping(body)


@pytest.mark.parametrize("tag", [["a"], {"a": 1}, None, 7, "a b", ""])
def test_a_snapshot_with_an_invalid_tag_does_not_keep_lost_runs_from_being_rescued(tag: object) -> None:
    async def body(swept: Swept) -> None:
        foreign = msgspec.json.encode({"status": "RUNNING", "tag": tag})
        await swept.world.snapshots.inner.write("foreign", foreign, position=1)
        await swept.world.submit("any")
        delivery = await swept.world.queue.inner.pull("default", timeout_sec=0)
        assert delivery is not None
        await delivery.term()  # as if the stream of jobs had been lost
        await swept.world.pass_time(90)
        await swept.sweep()
        assert await swept.world.queue.backlog("default") == 1

    sweeping(body)


def test_runs_of_a_tag_without_workers_do_not_keep_lost_runs_from_being_rescued() -> None:
    async def body(swept: Swept) -> None:
        for _ in range(220):
            await swept.world.submit("any", tag="nobodys")
        await swept.world.pass_time(1)
        for tag, lost in {"first": 3, "second": 1}.items():  # after the last silent run, it starts with the first again
            for _ in range(lost):
                await swept.world.submit("any", tag=tag)
                delivery = await swept.world.queue.inner.pull(tag, timeout_sec=0)
                assert delivery is not None
                await delivery.term()  # as if the stream of jobs had been lost
            await swept.world.pass_time(90)
            for _ in range(3):  # a hundred each
                assert await swept.world.queue.backlog(tag) == 0
                await swept.sweep()
            assert await swept.world.queue.backlog(tag) == lost
        assert await swept.world.queue.backlog("nobodys") == 220

    sweeping(body)


@pytest.mark.parametrize("gateways", [2, 4])
def test_many_sweep_at_once_and_nothing_is_done_twice(gateways: int) -> None:
    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval", deadline_sec=60, default={"by": "default"})
        hand = swept.world.hand({"asking": flow})
        runs = [await swept.world.submit("asking") for _ in range(10)]
        for _ in runs:
            await hand.work()
        await swept.world.pass_time(61)
        await swept.keeper.catch_up()
        await asyncio.gather(*(swept.reconciler.expire_waits() for _ in range(gateways)))
        for run_id in runs:
            assert (await swept.world.types(run_id)).count("NODE_RESUMED") == 1
        assert await swept.world.queue.backlog("default") == 10

    sweeping(body)


def test_a_sweep_that_crashes_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def body(swept: Swept) -> None:
        done = asyncio.Event()

        async def crash() -> None:
            raise ValueError("a mistake of ours")

        async def rescue() -> None:
            done.set()

        swept.reconciler.expire_waits, swept.reconciler.rescue = crash, rescue  # type: ignore[method-assign]
        swept.reconciler._options = msgspec.structs.replace(OPTIONS, interval_sec=0.0)
        running = asyncio.create_task(swept.reconciler.run())
        await asyncio.wait_for(done.wait(), PATIENCE_SEC)
        running.cancel()
        assert any(getattr(record, "action", "") == "sweep_crashed" for record in caplog.records)

    sweeping(body)


def test_many_waits_due_at_once_are_all_woken_by_one_sweep() -> None:
    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval", deadline_sec=60, default={"by": "default"})
        hand = swept.world.hand({"asking": flow})
        runs = [await swept.world.submit("asking") for _ in range(250)]
        for _ in runs:
            await hand.work()
        await swept.world.pass_time(61)
        await swept.keeper.catch_up()
        await swept.reconciler.expire_waits()
        assert await swept.world.queue.backlog("default") == 250
        for run_id in runs:
            assert (await swept.world.types(run_id)).count("NODE_RESUMED") == 1

    sweeping(body)


@pytest.mark.parametrize("window", [16, 4_096])
def test_waits_that_cannot_be_woken_do_not_keep_others_from_being_woken(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Also if there are more of them than the index is asked for at first."""
    monkeypatch.setattr("pyoco_server.app.recovery.reconciler._DUE_WINDOW", window)

    async def body(swept: Swept) -> None:
        flow = Flow("asking") >> wait("approval", deadline_sec=60, default={"by": "default"})
        hand = swept.world.hand({"asking": flow})
        run_id = await swept.world.submit("asking")
        await hand.work()
        stored = await swept.world.stored(run_id)
        for number in range(150):  # snapshots that others wrote, of runs without a log; they are due earlier
            deadline = {**stored["waiting"][0], "deadline": "2020-01-01T00:00:00Z"}
            foreign = {**stored, "run_id": f"foreign-{number}", "waiting": [deadline]}
            await swept.world.snapshots.write(f"foreign-{number}", msgspec.json.encode(foreign), position=1, revision=0)
        await swept.world.pass_time(61)
        await swept.keeper.catch_up()
        opened: list[str] = []
        original = swept.world.run_log.expire

        async def expire(of: str, node_id: str, actor: Actor) -> OpenRun:
            opened.append(of)
            return await original(of, node_id, actor)

        monkeypatch.setattr(swept.world.run_log, "expire", expire)
        await swept.reconciler.expire_waits()
        assert (await swept.world.types(run_id)).count("NODE_RESUMED") == 1
        assert len(opened) == 151
        await swept.reconciler.expire_waits()  # what could not be woken is put off, not tried every second
        assert len([of for of in opened if of != run_id]) == 150
        await swept.world.pass_time(PUT_OFF_SEC + 1)
        await swept.reconciler.expire_waits()
        assert len([of for of in opened if of != run_id]) == 300

    sweeping(body)
