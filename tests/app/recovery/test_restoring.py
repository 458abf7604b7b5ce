"""Runs that have a log and lack their snapshot, their job, or both: they were accepted, and are restored."""

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.submit import Submission
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.snapshots.status import NOT_ACCEPTED, was_retracted
from tests.app.recovery.swept import CREATION, SENDER, Swept, commands_on_graph, sweeping
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import USER

FOREIGN = {"run_id": "foreign-1", "flow_name": "any", "tag": "default", "submitted_at": 1.0}


async def begun(swept: Swept) -> str:
    """A run of which nothing but its log is left; the queue has forgotten that it had its job."""
    run_id = await swept.world.submit("any")
    delivery = await swept.world.queue.inner.pull("default", timeout_sec=0)
    assert delivery is not None
    await delivery.term()
    await swept.world.pass_time(121)
    await swept.world.snapshots.inner.delete(run_id)
    return run_id


async def restart(swept: Swept) -> None:
    """All gateways have died, and another one starts that has seen no append."""
    swept.lagging = SnapshotLag()
    swept.rebuild = swept.another_rebuild()
    swept.reconciler = swept.another()
    await swept.keeper.catch_up()


async def check_retracted(swept: Swept, run_id: str) -> None:
    state = await swept.world.state(run_id)
    assert was_retracted(state)
    assert state.cancel_reason == NOT_ACCEPTED
    assert await swept.world.stored(run_id) == {}


async def check_restored(swept: Swept, run_id: str) -> None:
    assert await swept.status(run_id) == "PENDING"
    calls = Calls()
    hand = swept.world.hand({"any": Flow("any") >> calls.task("only", 1)})
    while await swept.world.queue.backlog("default"):
        await hand.work()
    assert await swept.status(run_id) == "COMPLETED"
    assert calls.names.count("only") >= 1


@pytest.mark.parametrize("is_seen", [True, False], ids=["append seen", "before the start"])
def test_a_run_that_has_only_its_log_is_restored_and_runs(is_seen: bool) -> None:
    async def body(swept: Swept) -> None:
        run_id = await begun(swept)
        if is_seen:
            await swept.world.pass_time(4)
            await swept.sweep()
        else:
            await restart(swept)
            await swept.rebuild.compare()
        await check_restored(swept, run_id)

    sweeping(body)


@pytest.mark.parametrize("call", ["log.read", "snapshots.read", "snapshots.write", "queue.publish"])
def test_a_run_that_cannot_be_restored_now_is_restored_later(call: str) -> None:
    async def body(swept: Swept) -> None:
        run_id = await begun(swept)
        await swept.world.pass_time(4)
        swept.world.trouble.always(call, Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await swept.reconciler.repair_snapshots()
        swept.world.trouble.always(call, Fault.NONE)
        await swept.world.pass_time(4)
        await swept.sweep()
        await check_restored(swept, run_id)

    sweeping(body)


@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_a_rejected_submission_whose_log_could_not_be_closed_is_closed_by_its_mark(is_shared: bool) -> None:
    """Its gateway could still write the mark, answered with an error, and died."""

    async def body(swept: Swept) -> None:
        world = swept.world

        async def the_log_takes_nothing() -> None:
            world.trouble.always("log.append", Fault.NOT_DONE)

        world.trouble.meanwhile["queue.publish"] = the_log_takes_nothing
        world.trouble.next("queue.publish", Fault.UNANSWERED)
        with pytest.raises(UnavailableError):
            await world.submitter.submit(Submission(flow_name="any"), USER, run_id="run-1", is_shared=is_shared)
        [retracting] = world.submitter._creator._retracting
        retracting.cancel()
        assert await world.types("run-1") == ["EXECUTION_CREATED"]
        world.trouble.always("log.append", Fault.NONE)
        await restart(swept)
        await swept.rebuild.compare()
        await check_retracted(swept, "run-1")

    sweeping(body)


def test_an_execution_driven_from_outside_is_accepted_without_a_snapshot_and_gets_one() -> None:
    async def body(swept: Swept) -> None:
        commands = await commands_on_graph(swept)
        swept.world.trouble.always("snapshots.write", Fault.NOT_DONE)
        answer = await commands.create_from(CREATION, SENDER)
        swept.world.trouble.always("snapshots.write", Fault.NONE)
        assert await swept.world.stored(answer.execution_id) == {}
        await swept.world.pass_time(4)
        await swept.sweep()
        assert await swept.status(answer.execution_id) == "PENDING"
        await swept.world.pass_time(60)
        await swept.sweep()
        assert not (await swept.world.state(answer.execution_id)).is_cancel_requested

    sweeping(body)


def test_a_run_a_worker_has_adopted_is_left_to_its_job() -> None:
    async def body(swept: Swept) -> None:
        calls = Calls()
        hand = swept.world.hand({"any": Flow("any") >> calls.task("only", 1)})
        await swept.world.publish(FOREIGN)
        swept.world.trouble.next("log.append", Fault.UNANSWERED)  # created, and the worker gives up for now
        await hand.work()
        assert await swept.world.types("foreign-1") == ["EXECUTION_CREATED"]
        await restart(swept)
        await swept.rebuild.compare()
        await hand.work()
        assert await swept.status("foreign-1") == "COMPLETED"

    sweeping(body)


def test_a_snapshot_of_what_was_retracted_is_removed() -> None:
    async def body(swept: Swept) -> None:
        for is_seen in (True, False):
            run_id = await swept.world.submit("any")
            delivery = await swept.world.queue.inner.pull("default", timeout_sec=0)
            assert delivery is not None
            await delivery.term()
            await swept.keeper.catch_up()
            await swept.world.run_log.retract(run_id, USER)  # and the process died before it deleted the snapshot
            if not is_seen:
                await restart(swept)
                await swept.rebuild.compare()
            await swept.world.pass_time(4 if is_seen else 100)
            await swept.sweep()
            await check_retracted(swept, run_id)

    sweeping(body)
