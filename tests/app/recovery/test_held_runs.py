"""Held runs resume when their code is announced, and jobs go to workers that have their code."""

from collections.abc import Sequence
from typing import Any

import pytest

from pyoco_server.app.ports import RunQuery
from pyoco_server.app.recovery.announced_flows import announced
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.worker.hand_over import DECLINED_DELAY_SEC
from pyoco_server.worker.settlement import Ack, HandOver
from tests.app.recovery.swept import Swept, sweeping
from tests.worker.test_own_graph import flow_of
from tests.worker.world import USER, Hand, World, attempt

Names = Sequence[str]
WHOLE = ["a", "w", "b"]
SLOTS = 16


async def crew(world: World, worker_id: str, names: Names | None, calls: list[str], *, announce: bool = True) -> Hand:
    """A worker that has the flow ``f`` of these tasks, or none; it announces its flows unless it cannot enumerate."""
    flows = {} if names is None else {"f": flow_of(names, calls)}
    hand = world.hand(flows, worker_id)
    if announce:
        hand.registration.note_flows({name: announced(*read_flow(flow), {}) for name, flow in flows.items()})
    await hand.registration.announce()
    return hand


async def held(swept: Swept, calls: list[str]) -> tuple[str, Hand]:
    """A run that waits for ``b``, and the worker that held it."""
    world = swept.world
    run_id = await world.submit("f")
    first = await crew(world, "w1", WHOLE, calls)
    assert await first.work() == Ack()
    await first.registration.stopped("deploy")
    await world.resume(run_id, "w", 1, USER)
    second = await crew(world, "w2", ["a", "w"], calls)
    assert await second.work() == Ack()
    assert (await world.stored(run_id))["held"]["needs"] == ["b"]
    await swept.sweep()
    return run_id, second


def test_a_held_run_resumes_when_a_worker_announces_its_code() -> None:
    async def body(swept: Swept) -> None:
        calls: list[str] = []
        world = swept.world
        run_id, _ = await held(swept, calls)
        assert [run.cursor.run_id for run in await swept.index.page(RunQuery(held=True))] == [run_id]
        assert await world.queue.inner.backlog("default") == 0, "no worker has the code yet"
        third = await crew(world, "w3", WHOLE, calls)
        await swept.sweep()
        await swept.another()._held.wake()  # another gateway sees the same
        assert await world.queue.inner.backlog("default") == 1
        assert await third.work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], calls) == ("COMPLETED", ["a", "b"])
        assert "held" not in stored
        await swept.sweep()
        assert await swept.index.page(RunQuery(held=True)) == []

    sweeping(body)


def test_a_worker_that_held_a_run_is_asked_again_only_when_its_code_has_changed() -> None:
    async def body(swept: Swept) -> None:
        calls: list[str] = []
        world = swept.world
        _, second = await held(swept, calls)
        for _ in range(3):
            await world.pass_time(10)
            await second.registration.announce()
            await swept.sweep()
        assert await world.queue.inner.backlog("default") == 0
        await world.pass_time(1)
        second.registration.note_flows(None)  # wheels have changed what it has, and it cannot say how
        await second.registration.announce()
        await swept.sweep()
        assert await world.queue.inner.backlog("default") == 1

    sweeping(body)


def test_a_held_run_can_be_cancelled_at_once_even_if_its_node_was_at_work_in_a_worker_that_died() -> None:
    async def body(swept: Swept) -> None:
        world = swept.world
        run_id, _ = await held(swept, [])
        answer = await world.cancel(run_id)
        assert answer["status"] == "CANCELLING"
        stored = await world.stored(run_id)
        assert stored["status"] == "CANCELLED"
        assert "held" not in stored

    sweeping(body)


def test_the_hold_outlives_other_writers_of_the_snapshot_and_is_found_again_without_one() -> None:
    async def body(swept: Swept) -> None:
        world = swept.world
        run_id, second = await held(swept, [])
        before = (await world.stored(run_id))["held"]
        run = await world.run_log.open(run_id)
        await world.run_log.write_snapshot(run)
        assert (await world.stored(run_id))["held"] == before
        await world.snapshots.inner.delete(run_id)
        await world.run_log.write_snapshot(await world.run_log.open(run_id))
        assert "held" not in await world.stored(run_id)
        await world.pass_time(100)
        await second.registration.announce()
        await swept.sweep()  # no worker takes care of it: it gets a job
        assert await second.work() == Ack()
        assert (await world.stored(run_id))["held"]["needs"] == ["b"]

    sweeping(body)


@pytest.mark.parametrize("announce", [True, False])
def test_a_fresh_job_goes_to_a_worker_that_has_its_flow(announce: bool) -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        bare = await crew(world, "bare", None, calls)
        able = await crew(world, "able", ["a", "b"], calls, announce=announce)
        run_id = await world.submit("f")
        for _ in range(8):  # however often it comes back to the one that lacks it
            assert isinstance(await bare.work(), HandOver)
        assert await able.work() == Ack()
        assert ((await world.stored(run_id))["status"], calls) == ("COMPLETED", ["a", "b"])
        assert await world.dead() == []

    attempt(body, max_deliver=3)


def test_a_fresh_job_fails_only_when_every_live_worker_has_declined_it() -> None:
    async def body(world: World) -> None:
        hands = [await crew(world, f"w{number}", None, [], announce=False) for number in range(3)]
        run_id = await world.submit("f")
        seen: list[Any] = []
        for turn in range(30):
            seen.append(await hands[turn % 3].work())
            if seen[-1] != HandOver(hands[turn % 3].instance_id):
                break
        assert isinstance(seen[-1], Ack)
        assert (await world.stored(run_id))["status"] == "FAILED"
        assert [letter["reason"] for letter in await world.dead()] == ["flow_not_found"]
        assert len(seen) < 10, "it is handed over a bounded number of times"

    attempt(body, max_deliver=3)


def test_a_started_run_goes_to_a_worker_that_has_what_is_next() -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        first = await crew(world, "first", WHOLE, calls)
        run_id = await world.submit("f")
        await first.work()
        await world.resume(run_id, "w", 1, USER)
        old = await crew(world, "old", ["a", "w"], calls)
        assert isinstance(await old.work(), HandOver)
        assert "held" not in await world.stored(run_id)
        assert await first.work() == Ack()
        assert ((await world.stored(run_id))["status"], calls) == ("COMPLETED", ["a", "b"])

    attempt(body)


def test_a_worker_that_declined_a_job_returns_it_soon_and_without_a_trace() -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        first = await crew(world, "first", WHOLE, calls)
        run_id = await world.submit("f")
        await first.work()
        await world.resume(run_id, "w", 1, USER)
        old = await crew(world, "old", ["a", "w"], calls)
        for _ in range(2):  # its first delivery is delayed, its second is replaced by a job that names the worker
            assert isinstance(await old.work(), HandOver)
        version, began = (await world.state(run_id)).version, world.clock.now()
        for _ in range(2 * SLOTS):
            assert isinstance(await old.work(), HandOver)
        assert (world.clock.now() - began).total_seconds() <= SLOTS * DECLINED_DELAY_SEC
        assert (await world.state(run_id)).version == version
        assert await first.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body, max_deliver=3)


def test_a_started_run_whose_flow_cannot_be_loaded_is_held() -> None:
    def broken(_: str) -> Any:
        raise SyntaxError("half a deploy")

    async def body(world: World) -> None:
        run_id = await world.submit("f")
        await world.hand({"f": flow_of(WHOLE, [])}).work()
        await world.resume(run_id, "w", 1, USER)
        hand = world.hand(broken, "w2")
        assert await hand.work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["held"]["needs"]) == ("RUNNING", ["b"])
        assert await world.dead() == []

    attempt(body)
