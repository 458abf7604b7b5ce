"""A cancel that another program wrote into a snapshot is not lost, whichever process writes the snapshot next."""

import asyncio

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.worker.settlement import Ack
from tests.app.recovery.swept import OPTIONS, Swept, sweeping
from tests.app.runtime.flows import Calls
from tests.interop.outside import FOREIGN, gateway_cancels, hand_for, put, shown_as_driven, worker_writes
from tests.kill.processes import eventually
from tests.worker.world import USER, Held, World, attempt

ENDS = ("COMPLETED", "FAILED", "CANCELLED")


async def announce(swept: Swept, run_id: str) -> None:
    """A gateway is shown the snapshot when it is written; another program may overwrite it before the gateway acts."""
    stored = await swept.world.snapshots.inner.read(run_id)
    assert stored is not None
    swept.foreign.announced(run_id, SnapshotChange(run_id, stored.body, stored.revision))


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024", "004 §付録F")
@pytest.mark.parametrize("job", ["ours", "foreign"])
def test_a_worker_sees_the_cancel_of_another_gateway(job: str) -> None:
    """No gateway of ours is there: the heartbeat finds it."""

    async def body(world: World) -> None:
        held = Held()
        run_id = "foreign-1"
        if job == "ours":
            run_id = await world.submit("f")
        else:
            await world.publish(FOREIGN)
        worker = world.hand({"f": Flow("f") >> held.task()}, run_heartbeat_interval_sec=0.1).worker()
        working = asyncio.create_task(worker.run_once())
        await held.at_work()
        await shown_as_driven(world, run_id)
        await gateway_cancels(world, run_id)
        await working
        assert held.stopped == 1
        stored = await world.stored(run_id)
        assert (stored["status"], stored["cancel_requested_by"]) == ("CANCELLED", None)

    attempt(body, virtual=False)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_worker_sees_the_cancel_at_a_task_boundary(is_last: bool) -> None:
    async def body(world: World) -> None:
        held, calls = Held(), Calls()
        flow = Flow("f") >> held.task()
        await world.publish(FOREIGN)
        hand = world.hand({"f": flow if is_last else flow >> calls.task("after", 1)})
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await shown_as_driven(world, "foreign-1")
        await gateway_cancels(world, "foreign-1")
        held.release()
        assert await working == Ack()
        assert (await world.stored("foreign-1"))["status"] == "CANCELLED"
        assert calls.names == []

    attempt(body, virtual=False)


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
@pytest.mark.parametrize("call", ["log.append", "snapshots.write"])
@pytest.mark.parametrize("job", ["ours", "foreign"])
def test_a_cancel_that_came_before_the_end_was_shown_wins(job: str, call: str) -> None:
    """Our worker has looked for a cancel; another gateway accepts one before the snapshot says that the run ended."""

    async def body(world: World) -> None:
        held, run_id = Held(), "foreign-1"
        if job == "ours":
            run_id = await world.submit("f")
        else:
            await world.publish(FOREIGN)
        working = asyncio.create_task(world.hand({"f": Flow("f") >> held.task()}).work())
        await held.at_work()
        await shown_as_driven(world, run_id)
        world.trouble.meanwhile[call] = lambda: gateway_cancels(world, run_id)
        held.release()
        assert await working == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["tasks"]) == ("CANCELLED", {"held": "SUCCEEDED"})
        assert (await world.types(run_id))[-2:] == ["EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED"]
        assert stored["log_position"] == (await world.log.inner.read(run_id))[1]

    attempt(body, virtual=False)


def test_a_cancel_that_is_found_while_the_end_is_written_wins() -> None:
    """Another write of the snapshot meets the cancel first, and waits until the log has the end."""

    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("f")
        working = asyncio.create_task(world.hand({"f": Flow("f") >> held.task()}).work())
        await held.at_work()
        writes = world.trouble.calls.count("snapshots.write")

        async def has_met() -> bool:
            return world.trouble.calls.count("snapshots.write") > writes

        async def cancel_meanwhile() -> None:
            await gateway_cancels(world, run_id)
            await eventually(has_met, "the worker shows that it has the run")
            await asyncio.sleep(0)  # it goes as far as it can before the log has the end

        world.trouble.meanwhile["log.append"] = cancel_meanwhile
        held.release()
        assert await working == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body, virtual=False)


def test_a_gateway_leaves_a_cancel_to_the_worker_that_is_about_to_show_the_end() -> None:
    async def body(swept: Swept) -> None:
        world, held = swept.world, Held()
        run_id = await world.submit("f")
        working = asyncio.create_task(world.hand({"f": Flow("f") >> held.task()}).work())
        await held.at_work()

        async def cancel_and_sweep() -> None:
            await gateway_cancels(world, run_id)
            await swept.sweep()
            assert (await world.stored(run_id))["status"] == "CANCELLING"

        world.trouble.before_answer["log.append"] = cancel_and_sweep
        held.release()
        assert await working == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    sweeping(body)


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_cancel_that_overwrote_a_shown_end_is_replaced_in_the_end(is_noted: bool) -> None:
    """The other gateway read the snapshot before the end was shown, and wrote it after."""

    async def body(swept: Swept) -> None:
        world = swept.world
        run_id = await world.submit("f")
        before = await world.snapshots.inner.read(run_id)
        assert before is not None
        assert await hand_for(world, Calls()).work() == Ack()
        now = world.clock.now().timestamp()
        said = {**msgspec.json.decode(before.body), "status": "CANCELLING", "cancel_requested_at": now}
        await put(world, run_id, msgspec.json.encode(said))
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLING"  # perhaps its worker is about to see it
        await world.pass_time(OPTIONS.audit_sec)
        if is_noted:  # as it is after a pause
            swept.foreign.note(run_id)
            await swept.foreign.reconcile_noted()
        else:
            await swept.sweep()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (await world.types(run_id))[-1] == "EXECUTION_COMPLETED"

    sweeping(body)


def test_a_cancel_that_came_before_a_failure_was_shown_wins() -> None:
    """The worker fails the run without driving it: it does not have the flow."""

    async def body(world: World) -> None:
        run_id = await world.submit("unknown")
        world.trouble.before_answer["log.append"] = lambda: gateway_cancels(world, run_id)
        assert await hand_for(world, Calls()).work() == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert await world.dead() == []

    attempt(body)


@pytest.mark.parametrize("job", ["ours", "foreign"])
def test_a_cancel_that_was_accepted_while_the_run_was_queued_is_seen(job: str) -> None:
    async def body(world: World) -> None:
        calls, run_id = Calls(), "foreign-1"
        if job == "ours":
            run_id = await world.submit("f")
        else:
            await worker_writes(world, run_id, "PENDING", tasks={})
            await world.publish(FOREIGN)
        await gateway_cancels(world, run_id)
        await world.pass_time(10.0)
        assert await hand_for(world, calls).work() == Ack()
        assert calls.names == []
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_gateway_takes_over_the_cancel_of_another_one() -> None:
    async def body(swept: Swept) -> None:
        world, held = swept.world, Held()
        queued, running = await world.submit("f", tag="unserved"), await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        for run_id in (queued, running):
            await gateway_cancels(world, run_id)
        await swept.sweep()
        assert (await world.stored(queued))["status"] == "CANCELLED"
        assert await working == Ack()
        assert held.stopped == 1
        assert (await world.stored(running))["status"] == "CANCELLED"

    sweeping(body)


def test_a_cancel_that_another_worker_overwrote_is_not_lost() -> None:
    """It read the snapshot before the cancel, and wrote it after."""

    async def body(swept: Swept) -> None:
        world = swept.world
        run_id = await world.submit("f")
        await hand_for(world, Calls()).pull()
        await worker_writes(world, run_id, "RUNNING")
        await gateway_cancels(world, run_id)
        stored = await world.snapshots.inner.read(run_id)
        assert stored is not None
        swept.foreign.announced(run_id, SnapshotChange(run_id, stored.body, stored.revision))
        await worker_writes(world, run_id, "RUNNING")
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLING"
        await worker_writes(world, run_id, "COMPLETED")
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    sweeping(body)


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
@pytest.mark.parametrize("end", ENDS)
def test_an_overwritten_cancel_of_a_run_that_has_no_log_is_not_lost(end: str) -> None:
    """A gateway and a worker of another program: the worker writes what it last read, and never sees the cancel."""

    async def body(swept: Swept) -> None:
        world, run_id = swept.world, "foreign-1"
        await worker_writes(world, run_id, "RUNNING", tag="default")
        await swept.sweep()
        assert await world.types(run_id) == []
        await gateway_cancels(world, run_id)
        await announce(swept, run_id)
        await worker_writes(world, run_id, "RUNNING", tag="default")
        for _ in range(3):
            await swept.sweep()
            assert (await world.stored(run_id))["status"] == "CANCELLING"  # the worker reads it at its next heartbeat
            await worker_writes(world, run_id, "RUNNING", tag="default")
        await worker_writes(world, run_id, end, tag="default")
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert (await world.types(run_id))[-1] == "EXECUTION_CANCELED"
        await swept.sweep()
        assert await world.queue.backlog("default") == 0

    sweeping(body)


def test_an_end_that_overwrote_a_cancel_of_a_run_that_has_no_log_does_not_win() -> None:
    async def body(swept: Swept) -> None:
        world, run_id = swept.world, "foreign-1"
        await worker_writes(world, run_id, "RUNNING")
        await gateway_cancels(world, run_id)
        await announce(swept, run_id)
        await worker_writes(world, run_id, "COMPLETED")
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    sweeping(body)


def test_an_end_that_a_cancel_overwrote_stays_the_end() -> None:
    """The other gateway read the snapshot before the end, and wrote it after."""

    async def body(swept: Swept) -> None:
        world, run_id = swept.world, "foreign-1"
        await worker_writes(world, run_id, "RUNNING")
        await worker_writes(world, run_id, "COMPLETED")
        await announce(swept, run_id)
        await worker_writes(world, run_id, "RUNNING")
        await gateway_cancels(world, run_id)
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    sweeping(body)


def test_a_cancel_in_the_queue_ends_a_run_that_has_no_log_and_no_worker_executes_it() -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        await worker_writes(world, "foreign-1", "PENDING", tasks={})
        await world.publish(FOREIGN)
        await gateway_cancels(world, "foreign-1")
        await announce(swept, "foreign-1")
        await worker_writes(world, "foreign-1", "PENDING", tasks={})
        await swept.sweep()
        assert (await world.stored("foreign-1"))["status"] == "CANCELLED"
        assert await hand_for(world, calls).work() == Ack()
        assert calls.names == []
        await worker_writes(world, "foreign-1", "RUNNING")  # a worker of the other program had taken the job
        await swept.sweep()
        assert (await world.stored("foreign-1"))["status"] == "CANCELLED"

    sweeping(body)


def test_a_cancel_behind_many_signs_of_life_is_not_lost() -> None:
    """A gateway that could not act for a while was shown more snapshots than it keeps."""

    async def body(swept: Swept) -> None:
        world, run_id = swept.world, "foreign-1"
        for _ in range(40):
            await worker_writes(world, run_id, "RUNNING")
            await announce(swept, run_id)
        await gateway_cancels(world, run_id)
        await announce(swept, run_id)
        for _ in range(40):
            await worker_writes(world, run_id, "RUNNING")
            await announce(swept, run_id)
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLING"

    sweeping(body)


def test_a_cancel_of_a_run_whose_log_is_gone_does_not_begin_another() -> None:
    async def body(swept: Swept) -> None:
        world, run_id = swept.world, "foreign-1"
        await worker_writes(world, run_id, "RUNNING", log_position=7)
        await gateway_cancels(world, run_id)
        await swept.sweep()
        assert await world.types(run_id) == []

    sweeping(body)


def test_a_cancel_written_while_a_command_is_written_is_not_lost() -> None:
    """The snapshot changes between the read and the write of the process that shows the run."""

    async def body(swept: Swept) -> None:
        world = swept.world
        run_id = await world.submit("f", tag="unserved")

        async def cancel_meanwhile() -> None:
            await gateway_cancels(world, run_id)

        world.trouble.meanwhile["snapshots.write"] = cancel_meanwhile
        await world.run_log.write_snapshot(await world.run_log.open(run_id))
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert (await world.types(run_id))[-1] == "EXECUTION_CANCELED"

    sweeping(body)


def test_a_job_ends_its_cancelled_run_that_no_worker_has_ended() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await world.submit("f")
        await worker_writes(world, run_id, "RUNNING")
        await world.cancel(run_id, USER)
        await world.pass_time(10.0)
        assert await hand_for(world, calls).work() == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert calls.names == []

    attempt(body)
