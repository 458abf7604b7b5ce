"""Comparing the log with what is derived from it: what is missing is restored, and what is whole is left alone."""

import asyncio

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.recovery.rebuild import Rebuild
from tests.app.recovery.swept import Swept, sweeping
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import Hand, Held


def queued(swept: Swept) -> str:
    """The bodies of all jobs."""
    return " ".join(job.body.decode() for job in swept.world.queue.inner.jobs())


async def restarted(swept: Swept) -> Rebuild:
    """The comparison of a gateway that has just started, with an index that is up to date."""
    await swept.keeper.catch_up()
    return swept.another_rebuild()


def hand_with_flows(swept: Swept, calls: Calls) -> Hand:
    flows = {"one": Flow("one") >> calls.task("only", 1), "ask": Flow("ask") >> wait("approval")}
    return swept.world.hand(flows)


async def parked(swept: Swept, hand: Hand) -> str:
    run_id = await swept.world.submit("ask")
    await hand.work()
    return run_id


def test_stores_that_nothing_has_changed_since_are_not_compared() -> None:
    async def body(swept: Swept) -> None:
        await swept.world.submit("one")
        stopped = await restarted(swept)
        await stopped.compare()
        await swept.keeper.catch_up()
        await stopped.note_state()
        again = await restarted(swept)
        swept.world.trouble.calls.clear()
        again._restore_all = None  # type: ignore[assignment,method-assign]  # calling it would fail
        await again.compare()
        assert swept.world.trouble.calls == []

    sweeping(body)


@pytest.mark.parametrize("change", ["submit", "snapshot lost", "job lost", "index lost"])
def test_stores_are_compared_after_any_change(change: str) -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("one")
        stopped = await restarted(swept)
        await stopped.compare()
        await swept.keeper.catch_up()
        await stopped.note_state()
        match change:
            case "submit":
                run_id = await swept.world.submit("one")
                await swept.world.snapshots.inner.delete(run_id)
            case "snapshot lost":
                swept.world.snapshots.lose([run_id])
            case "job lost":
                swept.world.queue.lose(lambda _: True)
            case _:
                await swept.index.clear("")
        await (await restarted(swept)).compare()
        assert await swept.status(run_id) == "PENDING"
        assert run_id in queued(swept)

    sweeping(body)


def test_a_stop_with_a_snapshot_that_is_due_or_an_outage_leaves_stores_to_be_compared() -> None:
    async def body(swept: Swept) -> None:
        stopped = await restarted(swept)
        await stopped.compare()
        await swept.world.submit("one")  # its snapshot has not come to the index
        await stopped.note_state()
        assert await swept.index.compared() == ""
        await swept.keeper.catch_up()
        stopped.request()
        await stopped.note_state()
        assert await swept.index.compared() == ""
        await stopped.compare()
        await stopped.note_state()
        assert await swept.index.compared() != ""

    sweeping(body)


def test_runs_without_a_job_get_one_if_they_want_a_worker() -> None:
    async def body(swept: Swept) -> None:
        calls = Calls()
        hand = hand_with_flows(swept, calls)
        waiting, resumed = [await parked(swept, hand) for _ in range(2)]
        await swept.world.resume(resumed, "approval", {"by": "ann"})
        pending, done = await swept.world.submit("one"), await swept.world.submit("one")
        await hand.work()  # the wake-up
        assert await swept.status(resumed) == "COMPLETED"
        swept.world.queue.lose(lambda _: True)
        await swept.world.cancel(done)
        await (await restarted(swept)).compare()
        assert [run_id in queued(swept) for run_id in (pending, waiting, resumed, done)] == [True, False, False, False]
        await hand.work()
        assert await swept.status(pending) == "COMPLETED"

    sweeping(body)


def test_a_resumed_run_whose_wake_up_and_snapshot_are_lost_continues() -> None:
    async def body(swept: Swept) -> None:
        hand = hand_with_flows(swept, Calls())
        run_id = await parked(swept, hand)
        await swept.world.resume(run_id, "approval", {"by": "ann"})
        swept.world.queue.lose(lambda _: True)
        swept.world.snapshots.lose([run_id])
        await (await restarted(swept)).compare()
        await hand.work()
        assert await swept.status(run_id) == "COMPLETED"

    sweeping(body)


def test_a_run_that_has_its_job_or_its_owner_gets_no_other_job() -> None:
    async def body(swept: Swept) -> None:
        held = Held()
        hand = swept.world.hand({"held": Flow("held") >> held.task()})
        run_id = await swept.world.submit("held")
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await swept.world.submit("held")
        await (await restarted(swept)).compare()
        assert len(swept.world.queue.inner.jobs()) == 2
        lost = swept.world.queue.lose(lambda job: run_id in str(job.body))
        rebuild = await restarted(swept)
        rebuild.request()
        comparing = asyncio.create_task(rebuild.compare())
        held.release()
        await working
        await swept.world.pass_time(4)
        await comparing
        assert [run_id in str(job.body) for job in (*lost, *swept.world.queue.inner.jobs())] == [True, False]

    sweeping(body)


def test_a_comparison_that_cannot_be_finished_is_repeated() -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("one")
        swept.world.snapshots.lose([run_id])
        rebuild = await restarted(swept)
        swept.world.trouble.always("log.read", Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await rebuild.compare()
        await rebuild.note_state()
        assert await swept.index.compared() == ""
        swept.world.trouble.always("log.read", Fault.NONE)
        await rebuild.compare()
        assert await swept.status(run_id) == "PENDING"

    sweeping(body)
