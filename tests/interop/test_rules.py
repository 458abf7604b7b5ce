"""What snapshots of other programs mean for runs whose log is ours: ends, and work in other hands."""

import asyncio
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.snapshots.foreign import SHOWN_SEC
from pyoco_server.core import Actor, ActorKind
from pyoco_server.worker.settlement import Ack, Nak
from tests.app.recovery.swept import OPTIONS, Swept, commands_on_graph, sweeping
from tests.app.runtime.flows import Calls
from tests.interop.outside import FOREIGN, changes, hand_for, put, worker_writes
from tests.worker.world import USER, Held, World, attempt

ENDS = ("COMPLETED", "FAILED", "CANCELLED")
SENDER = Sender(actor=Actor(ActorKind.USER))


async def _shows(world: World, run_id: str) -> dict[str, Any]:
    stored = await world.stored(run_id)
    return {name: stored.get(name) for name in ("status", "tasks", "worker_id", "error", "end_time")}


# --- Ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0009", "004 §付録F")
@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("keeps_fields", [False, True])
def test_a_terminal_snapshot_ends_the_log_and_the_run_is_never_executed_again(status: str, keeps_fields: bool) -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        run_id = await world.submit("f")
        delivery = await hand_for(world, calls).pull()
        said = {"tasks": {"theirs": "SUCCEEDED"}, "worker_id": "ruby-1", "end_time": 7.5, "error": None}
        if status == "FAILED":
            said |= {"tasks": {"theirs": "FAILED"}, "error": "no luck"}
        if keeps_fields:
            await changes(world, run_id, status=status, **said)
        else:
            await worker_writes(world, run_id, status, **said)
        await delivery.ack()
        await swept.sweep()
        events = await world.events(run_id)
        ends = {"COMPLETED": "EXECUTION_COMPLETED", "FAILED": "EXECUTION_FAILED", "CANCELLED": "EXECUTION_CANCELED"}
        assert events[-1].type.value == ends[status]
        assert (events[-1].actor.kind, events[-1].actor.id) == ("external", "ruby-1")
        assert await _shows(world, run_id) == {"status": status, **said}
        assert (await world.stored(run_id))["log_position"] > 1
        for _ in range(4):
            await world.pass_time(OPTIONS.silent_sec)
            await swept.sweep()
        assert await world.queue.backlog("default") == 0
        assert (await _shows(world, run_id))["status"] == status
        assert len(await world.events(run_id)) == len(events)

    sweeping(body)


@pytest.mark.parametrize("status", ENDS)
def test_a_job_that_comes_back_after_the_end_is_not_executed(status: str) -> None:
    """A worker of the specification recorded the end and died before its ACK; no gateway of ours is there."""

    async def body(world: World) -> None:
        calls = Calls()
        run_id = await world.submit("f")
        hand = hand_for(world, calls)
        await hand.pull()
        await worker_writes(world, run_id, status)
        assert isinstance(await hand.work(), Ack)
        assert calls.names == []
        assert (await world.stored(run_id))["status"] == status
        assert (await world.state(run_id)).is_terminal

    attempt(body)


@pytest.mark.parametrize("status", ENDS)
def test_a_foreign_job_of_a_run_that_has_ended_is_not_executed(status: str) -> None:
    async def body(world: World) -> None:
        calls = Calls()
        await worker_writes(world, "foreign-1", status)
        await world.publish(FOREIGN)
        assert await hand_for(world, calls).work() == Ack()
        assert calls.names == []
        assert (await world.stored("foreign-1"))["status"] == status

    attempt(body)


def test_a_run_that_ended_in_other_hands_stops_here() -> None:
    async def body(world: World) -> None:
        held = Held()
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        await worker_writes(world, run_id, "COMPLETED")
        assert await working == Ack()
        assert held.stopped == 1
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (await world.types(run_id)).count("EXECUTION_COMPLETED") == 1

    attempt(body, virtual=False)


def test_a_cancel_in_the_log_wins_over_an_end_that_was_written_later() -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        run_id = await world.submit("f")
        await hand_for(world, calls).pull()
        await worker_writes(world, run_id, "RUNNING")
        commands: RunCommands = await commands_on_graph(swept)
        assert (await commands.cancel(run_id, SENDER))["status"] == "CANCELLING"
        assert (await world.stored(run_id))["status"] == "CANCELLING"
        await worker_writes(world, run_id, "COMPLETED")
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        assert (await world.types(run_id))[-1] == "EXECUTION_CANCELED"

    sweeping(body)


def test_what_is_written_after_the_end_of_the_log_is_replaced() -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        run_id = await world.submit("f")
        await hand_for(world, calls).work()
        await world.pass_time(SHOWN_SEC)
        for status in ("RUNNING", "CANCELLING", "FAILED"):
            await worker_writes(world, run_id, status)
            await swept.sweep()
            assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (await world.types(run_id))[-1] == "EXECUTION_COMPLETED"

    sweeping(body)


def test_an_end_that_no_gateway_saw_is_found_by_the_next_one() -> None:
    async def body(swept: Swept) -> None:
        world = swept.world
        run_id = await world.submit("f")
        await worker_writes(world, run_id, "COMPLETED")
        await swept.keeper.catch_up()
        swept.foreign = type(swept.foreign)(world.run_log)  # the gateway died: its notes are gone, its index is not
        swept.rebuild = swept.another_rebuild()
        swept.reconciler = swept.another()
        await swept.rebuild.compare()  # as a gateway does at its start
        await swept.sweep()
        assert (await world.types(run_id))[-1] == "EXECUTION_COMPLETED"

    sweeping(body)


def test_a_run_that_has_no_log_is_left_alone() -> None:
    async def body(swept: Swept) -> None:
        await worker_writes(swept.world, "foreign-1", "COMPLETED")
        before = await swept.world.stored("foreign-1")
        await swept.sweep()
        assert await swept.world.stored("foreign-1") == before
        assert await swept.world.types("foreign-1") == []

    sweeping(body)


# --- Work in other hands ---------------------------------------------------------------------------------------------


def test_a_run_in_other_hands_is_shown_and_left_alone_while_it_shows_life() -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        run_id = await world.submit("f")
        hand = hand_for(world, calls)
        delivery = await hand.pull()
        for _ in range(5):
            await world.pass_time(29.0)
            await delivery.in_progress()
            await worker_writes(world, run_id, "RUNNING")
            await swept.sweep()
            assert (await world.stored(run_id))["tasks"] == {"theirs": "RUNNING"}
        assert await world.queue.backlog("default") == 0
        await world.pass_time(30.0)
        await worker_writes(world, run_id, "RUNNING")
        assert isinstance(await hand.work(), Nak)  # it shows life, although its job came back
        assert calls.names == []
        await world.pass_time(5.0)
        assert await hand.work() == Ack()  # it no longer does
        assert calls.names == ["ours"]
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    sweeping(body)


@pytest.mark.parametrize("garbage", [b"", b"[1]", b'{"heartbeat_at":"now","status":7}', b'{"status":"PENDING"}'])
def test_a_snapshot_that_says_nothing_is_replaced_by_that_of_the_log(garbage: bytes) -> None:
    async def body(swept: Swept) -> None:
        world, calls = swept.world, Calls()
        run_id = await world.submit("f")
        await put(world, run_id, garbage)
        await swept.sweep()
        assert (await world.stored(run_id))["log_position"] == 1
        await put(world, run_id, garbage)
        assert await hand_for(world, calls).work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    sweeping(body)


def test_a_cancel_of_a_run_in_other_hands_waits_for_its_worker_within_the_grace() -> None:
    async def body(swept: Swept) -> None:
        world = swept.world
        run_id = await world.submit("f")
        await hand_for(world, Calls()).pull()
        await worker_writes(world, run_id, "RUNNING")
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        await worker_writes(world, run_id, "RUNNING")  # it had not seen the cancel when it wrote
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLING"
        await world.pass_time(OPTIONS.cancel_grace_sec + OPTIONS.cancel_margin_sec + 1.0)
        await swept.sweep()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    sweeping(body)
