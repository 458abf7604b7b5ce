"""Runs that were begun and never accepted, and those that only look like it."""

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.snapshots.lag import SnapshotLag
from pyoco_server.app.snapshots.status import NOT_ACCEPTED, was_retracted
from tests.app.recovery.swept import CREATION, SENDER, Swept, desk_with_graph, sweeping
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import USER

FOREIGN = {"run_id": "foreign-1", "flow_name": "any", "tag": "default", "submitted_at": 1.0}


async def begun(swept: Swept) -> str:
    """A run whose submitter died before it wrote anything but the log."""
    run_id = await swept.world.submit("any")
    await swept.world.snapshots.inner.delete(run_id)
    delivery = await swept.world.queue.inner.pull("default", timeout_sec=0)
    assert delivery is not None
    await delivery.term()
    return run_id


async def restart(swept: Swept) -> None:
    """All gateways have died, and another one starts that has seen no append."""
    swept.lagging = SnapshotLag()
    swept.reconciler = swept.another()
    await swept.keeper.catch_up()


async def check_retracted(swept: Swept, run_id: str) -> None:
    state = await swept.world.state(run_id)
    assert was_retracted(state)
    assert state.cancel_reason == NOT_ACCEPTED
    assert await swept.world.stored(run_id) == {}


def test_a_run_that_was_begun_and_never_accepted_is_closed() -> None:
    async def body(swept: Swept) -> None:
        swept.reconciler._may_have_missed = False  # nothing happened before it was there
        run_id = await begun(swept)
        await swept.world.pass_time(4)
        await swept.sweep()
        assert not (await swept.world.state(run_id)).is_terminal
        await swept.world.pass_time(31)
        await swept.sweep()
        await check_retracted(swept, run_id)

    sweeping(body)


def test_one_that_was_begun_while_no_gateway_was_there_is_found_by_the_next() -> None:
    async def body(swept: Swept) -> None:
        run_id = await begun(swept)
        accepted = await swept.world.submit("any")
        await restart(swept)
        await swept.sweep()
        assert not (await swept.world.state(run_id)).is_terminal
        await swept.world.pass_time(31)
        await swept.sweep()
        await check_retracted(swept, run_id)
        assert await swept.status(accepted) == "PENDING"
        assert await swept.world.types(accepted) == ["EXECUTION_CREATED"]

    sweeping(body)


def test_all_logs_are_looked_over_once_and_after_an_outage() -> None:
    async def body(swept: Swept) -> None:
        await swept.sweep()
        run_id = await begun(swept)
        swept.lagging = swept.reconciler._lagging = SnapshotLag()  # the append was not seen
        for _ in range(3):
            await swept.world.pass_time(601)
            await swept.sweep()
        assert not (await swept.world.state(run_id)).is_terminal
        swept.reconciler._may_have_missed = True  # as an outage leaves it
        await swept.sweep()
        await swept.world.pass_time(31)
        await swept.sweep()
        await check_retracted(swept, run_id)

    sweeping(body)


def test_one_that_cannot_be_closed_now_is_closed_later() -> None:
    async def body(swept: Swept) -> None:
        run_id = await begun(swept)
        await restart(swept)
        await swept.sweep()
        await swept.world.pass_time(31)
        swept.world.trouble.always("log.read", Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await swept.reconciler.close_orphans()
        swept.world.trouble.always("log.read", Fault.NONE)
        await swept.sweep()
        await swept.sweep()
        await check_retracted(swept, run_id)

    sweeping(body)


def test_an_execution_driven_from_outside_is_accepted_without_a_snapshot_and_gets_one() -> None:
    async def body(swept: Swept) -> None:
        desk = await desk_with_graph(swept)
        swept.world.trouble.always("snapshots.write", Fault.NOT_DONE)
        answer = await desk.create_from(CREATION, SENDER)
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
        await swept.sweep()
        await swept.world.pass_time(31)
        await swept.sweep()
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
            await swept.world.desk.retract(run_id, USER)  # and the process died before it deleted the snapshot
            if not is_seen:
                await restart(swept)
            await swept.world.pass_time(4 if is_seen else 100)
            await swept.sweep()
            await check_retracted(swept, run_id)

    sweeping(body)
