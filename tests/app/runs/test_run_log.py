"""Commands from outside, on a run in every state."""

import asyncio
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.core import Actor, ActorKind, CommandRejected
from pyoco_server.worker.settlement import Ack
from tests.app.runtime.flows import Calls, approval_flow, fan_flow
from tests.invariants import check_no_repeats
from tests.worker.faulty import Fault
from tests.worker.world import USER, Held, World, attempt

ANN = Actor(ActorKind.USER, "k0123456789abcdef")
BOB = Actor(ActorKind.USER, "bob")
UNKNOWN = "11111111-0000-4000-8000-000000000000"


def deadline_flow(**default: Any) -> Flow:
    return Flow("deadline") >> wait("nod", deadline_sec=60, **default) >> Calls().task("after", lambda ctx: ctx.results)


async def at_approval(world: World) -> str:
    run_id = await world.submit("approval")
    assert await world.hand({"approval": approval_flow(Calls())}).work() == Ack()
    return run_id


async def at_deadline(world: World, flow: Flow) -> str:
    run_id = await world.submit("deadline")
    assert await world.hand({"deadline": flow}).work() == Ack()
    return run_id


# --- Cancel ----------------------------------------------------------------------------------------------------------


def test_a_queued_run_has_ended_when_the_cancel_is_answered() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan")
        answer = await world.cancel(run_id, ANN, "no longer needed")
        assert answer["status"] == "CANCELLING"
        assert answer["cancel_requested_at"] == world.clock.now().timestamp()
        assert (answer["cancel_requested_by"], answer["cancel_reason"]) == (f"api_key:{ANN.id}", "no longer needed")
        stored = await world.stored(run_id)
        assert (stored["status"], stored["end_time"]) == ("CANCELLED", world.clock.now().timestamp())
        assert stored["cancel_requested_by"] == f"api_key:{ANN.id}"

    attempt(body)


def test_a_parked_run_has_ended_when_the_cancel_is_answered() -> None:
    async def body(world: World) -> None:
        run_id = await at_approval(world)
        answer = await world.cancel(run_id, USER)
        assert (answer["status"], answer["tasks"]["approval"]) == ("CANCELLING", "RUNNING")
        stored = await world.stored(run_id)
        assert (stored["status"], stored["waiting"]) == ("CANCELLED", [])
        assert stored["tasks"] == {"draft": "SUCCEEDED", "approval": "CANCELLED", "publish": "CANCELLED"}

    attempt(body)


def test_a_run_parked_inside_blocks_has_ended_when_the_cancel_is_answered() -> None:
    async def body(world: World) -> None:
        flow = Flow("rounds")
        flow >> wait("nod")["$ctx.params.items as item"]
        run_id = await world.submit("rounds", {"items": [1, 2]})
        await world.hand({"rounds": flow}).work()
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_run_at_work_is_cancelled_by_its_worker() -> None:
    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task()})
        run_id = await world.submit("held")
        working = asyncio.create_task(hand.work())
        await held.at_work()
        await hand.handler.running[run_id].beat()
        world.trouble.is_silent = True
        assert (await world.cancel(run_id, ANN))["status"] == "CANCELLING"
        stored = await world.stored(run_id)
        assert (stored["status"], stored["driven_by"]) == ("CANCELLING", "w1")
        again = await world.cancel(run_id, BOB, "and again")
        assert (again["status"], again["cancel_requested_by"], again["cancel_reason"]) == (
            "CANCELLING",
            f"api_key:{ANN.id}",
            None,
        )
        await hand.handler.running[run_id].beat()
        assert await working == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_run_that_has_ended_is_answered_as_it_ended() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        run_id = await world.submit("fan", {"n": 1})
        await hand.work()
        before = await world.types(run_id)
        assert (await world.cancel(run_id, USER))["status"] == "COMPLETED"
        assert await world.types(run_id) == before
        other = await world.submit("fan")
        await world.cancel(other, ANN)
        again = await world.cancel(other, BOB)
        assert (again["status"], again["cancel_requested_by"]) == ("CANCELLED", f"api_key:{ANN.id}")

    attempt(body)


def test_a_cancel_during_the_start_answers_with_the_state_it_was_appended_to() -> None:
    """Between reading and writing the worker begins: the answer shows the run as it was when it was cancelled."""

    async def body(world: World) -> None:
        held = Held()
        hand = world.hand({"held": Flow("held") >> held.task() >> Calls().task("after", 1)})
        run_id = await world.submit("held")
        working: list[asyncio.Task[object]] = []

        async def begin() -> None:
            working.append(asyncio.create_task(hand.work()))
            await held.at_work()

        world.trouble.meanwhile["log.append"] = begin
        answer = await world.cancel(run_id, USER)
        assert (answer["status"], answer["tasks"]) == ("CANCELLING", {"held": "RUNNING", "after": "PENDING"})
        assert answer["start_time"] is not None
        assert answer["worker_id"] == "w1"
        assert await working[0] == Ack()
        assert (await world.stored(run_id))["status"] == "CANCELLED"
        check_no_repeats(await world.events(run_id))

    attempt(body)


def test_a_cancel_whose_answer_is_lost_is_found_in_the_log() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan")
        world.trouble.next("log.append", Fault.UNANSWERED)
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert (await world.types(run_id)).count("EXECUTION_CANCEL_REQUESTED") == 1

    attempt(body)


@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED, Fault.TOO_LARGE])
def test_a_cancel_succeeds_although_snapshot_and_wake_up_fail(fault: Fault) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan")
        world.trouble.next("snapshots.write", fault)
        assert (await world.cancel(run_id, USER))["status"] == "CANCELLING"
        assert (await world.state(run_id)).status == "CANCELED"

    attempt(body)


# --- Resume ----------------------------------------------------------------------------------------------------------


def test_a_resume_brings_its_value_and_wakes_the_run() -> None:
    async def body(world: World) -> None:
        run_id = await at_approval(world)
        answer = await world.resume(run_id, "approval", {"ok": 1}, USER, key="approval")
        assert (answer["status"], answer["waiting"]) == ("RUNNING", [])
        assert await world.queue.backlog("default") == 1
        assert await world.stored(run_id) == answer

    attempt(body)


@pytest.mark.parametrize(
    ("node", "key", "code"),
    [
        ("approval", "other", "RESUME_KEY_MISMATCH"),
        ("draft", None, None),
        ("publish", None, None),
        ("unset", None, None),
    ],
)
def test_a_resume_of_a_node_that_does_not_wait_changes_nothing(node: str, key: str | None, code: str | None) -> None:
    async def body(world: World) -> None:
        run_id = await at_approval(world)
        before = await world.types(run_id)
        with pytest.raises(CommandRejected) as refused:
            await world.resume(run_id, node, 1, USER, key=key)
        assert code is None or refused.value.code == code
        assert await world.types(run_id) == before
        assert await world.queue.backlog("default") == 0

    attempt(body)


def test_a_resume_whose_wake_up_is_lost_is_still_a_resume(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        run_id = await at_approval(world)
        world.trouble.next("queue.publish", Fault.NOT_DONE)
        assert (await world.resume(run_id, "approval", 1, USER))["waiting"] == []
        assert "NODE_RESUMED" in await world.types(run_id)

    attempt(body)
    assert "wake_failed" in [record.__dict__.get("action") for record in caplog.records]


def test_only_one_of_two_resumes_is_accepted() -> None:
    async def body(world: World) -> None:
        run_id = await at_approval(world)
        await world.resume(run_id, "approval", "first", USER)
        with pytest.raises(CommandRejected):
            await world.resume(run_id, "approval", "second", BOB)
        await world.hand({"approval": approval_flow(Calls())}).work()
        assert (await world.stored(run_id))["task_records"]["publish"]["output"] == "first"

    attempt(body)


# --- Deadlines -------------------------------------------------------------------------------------------------------


def test_a_wait_with_a_default_takes_it() -> None:
    async def body(world: World) -> None:
        flow = deadline_flow(default={"ok": False})
        run_id = await at_deadline(world, flow)
        assert (await world.run_log.expire(run_id, "nod", USER)).snapshot()["waiting"] == []
        await world.hand({"deadline": flow}).work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["task_records"]["nod"]["output"]) == ("COMPLETED", {"ok": False})

    attempt(body)


def test_a_wait_whose_default_is_nothing_takes_that() -> None:
    async def body(world: World) -> None:
        flow = deadline_flow(default=None)
        run_id = await at_deadline(world, flow)
        await world.run_log.expire(run_id, "nod", USER)
        await world.hand({"deadline": flow}).work()
        assert (await world.stored(run_id))["task_records"]["nod"]["output"] is None

    attempt(body)


def test_a_wait_without_a_default_fails_the_run() -> None:
    async def body(world: World) -> None:
        run_id = await at_deadline(world, deadline_flow())
        answer = (await world.run_log.expire(run_id, "nod", USER)).snapshot()
        assert answer["status"] == "FAILED"
        assert "WAIT_DEADLINE" in answer["error"]
        assert await world.queue.backlog("default") == 0

    attempt(body)


@pytest.mark.parametrize("default", [{}, {"default": 1}])
def test_a_deadline_never_touches_what_was_resumed_before(default: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        flow = deadline_flow(**default)
        run_id = await at_deadline(world, flow)
        await world.resume(run_id, "nod", "in time", USER)
        with pytest.raises(CommandRejected):
            await world.run_log.expire(run_id, "nod", USER)
        await world.hand({"deadline": flow}).work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["task_records"]["nod"]["output"]) == ("COMPLETED", "in time")

    attempt(body)


def test_a_deadline_that_meets_a_resume_loses() -> None:
    async def body(world: World) -> None:
        run_id = await at_deadline(world, deadline_flow())

        async def resume() -> None:
            await world.resume(run_id, "nod", "in time", USER)

        world.trouble.meanwhile["log.append"] = resume
        with pytest.raises(CommandRejected):
            await world.run_log.expire(run_id, "nod", USER)
        assert not (await world.state(run_id)).is_terminal

    attempt(body)


# --- The rest --------------------------------------------------------------------------------------------------------


def test_only_a_run_that_has_ended_is_archived() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan")
        with pytest.raises(CommandRejected):
            await world.archive(run_id, USER)
        await world.cancel(run_id, USER)
        answer = await world.archive(run_id, USER)
        assert (answer["status"], answer["archived_at"]) == ("CANCELLED", world.clock.now().timestamp())
        assert await world.stored(run_id) == answer

    attempt(body)


@pytest.mark.parametrize("asked", ["open", "cancel", "resume", "expire", "archive"])
def test_an_unknown_run_is_not_found(asked: str) -> None:
    async def body(world: World) -> None:
        run_log = world.run_log
        calls: dict[str, Any] = {
            "open": lambda: run_log.open(UNKNOWN),
            "cancel": lambda: world.cancel(UNKNOWN, USER),
            "resume": lambda: world.resume(UNKNOWN, "a", 1, USER),
            "expire": lambda: run_log.expire(UNKNOWN, "a", USER),
            "archive": lambda: world.archive(UNKNOWN, USER),
        }
        with pytest.raises(RunNotFoundError) as missing:
            await calls[asked]()
        assert (missing.value.err_id, missing.value.msg_id) == ("ERR-PYOCO-0005", "MSG-PYOCO-0005")
        assert await world.events(UNKNOWN) == []
        assert await world.stored(UNKNOWN) == {}

    attempt(body)
