"""Jobs whose deliveries are used up end as their last delivery would have ended them."""

import asyncio
from typing import Any

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.adapters.memory.work_queue import MemoryExhaustedJobs
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.recovery.exhausted_jobs import LOOK_SEC
from pyoco_server.app.snapshots.projection import WORKER
from pyoco_server.core import fold
from tests.app.recovery.swept import Swept, sweeping
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.test_redelivery import die
from tests.worker.world import USER, Held, World

FOREIGN: dict[str, Any] = {"run_id": "foreign-1", "flow_name": "any", "tag": "default", "submitted_at": 1.0}


async def spend(world: World) -> None:
    """Every worker that gets the job dies with it, also with its last delivery."""
    while await world.queue.inner.pull("default", timeout_sec=100) is not None:
        await world.pass_time(31)
    assert len(world.queue.inner.exhausted) == 1


def left(swept: Swept) -> int:
    return len(swept.world.queue.inner.exhausted)


async def listen(swept: Swept) -> None:
    await MemoryExhaustedJobs(swept.world.queue.inner).subscribe(swept.exhausted.note_advisory)


def test_a_run_whose_job_is_used_up_ends_failed_with_a_dead_letter() -> None:
    async def body(swept: Swept) -> None:
        held = Held("stuck")
        await listen(swept)
        run_id = await swept.world.submit("stuck", tags=("default", "extra"))
        going = asyncio.create_task(swept.world.hand({"stuck": Flow("stuck") >> held.task()}).work())
        await held.at_work()
        await die(swept.world, going)
        await spend(swept.world)
        await swept.sweep()
        error = "delivered 2 times without an end: the worker died or was cut off during stuck"
        stored = await swept.world.stored(run_id)
        assert (stored["status"], stored["tasks"]) == ("FAILED", {"stuck": "CANCELLED"})
        assert stored["error"] == f"execution_error: DELIVERIES_USED_UP: {error}"
        [letter] = await swept.world.dead()
        assert letter.pop("timestamp") == swept.world.clock.now().timestamp()
        assert letter == {
            "reason": "execution_error",
            "error": error,
            "err_id": "ERR-PYOCO-0007",
            "msg_id": "MSG-PYOCO-0007",
            "message": "実行に失敗しました",
            "run_id": run_id,
            "flow_name": "stuck",
            "tag": "default",
            "tags": ["default", "extra"],
            "num_delivered": 2,
            "subject": "pyoco.work.default",
        }
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


def test_a_run_its_workers_hardly_came_to_is_tried_alone_and_goes_on() -> None:
    async def body(swept: Swept) -> None:
        held = Held("fine")
        await listen(swept)
        run_id = await swept.world.submit("fine")
        flows = {"fine": Flow("fine") >> held.task()}
        going = asyncio.create_task(swept.world.hand(flows).work())
        await held.at_work()
        await die(swept.world, going)
        await spend(swept.world)  # two more died before they came to it: not of this run
        await swept.sweep()
        assert await swept.status(run_id) != "FAILED"
        assert left(swept) == 0
        going = asyncio.create_task(swept.world.hand(flows, "w2").work())
        await held.at_work()
        held.release()
        await going
        assert await swept.status(run_id) == "COMPLETED"
        assert await swept.world.dead() == []

    sweeping(body, max_deliver=3)


def test_an_exhausted_job_without_an_advisory_is_found_by_the_scan() -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        await swept.sweep()
        assert await swept.status(run_id) == "FAILED"
        assert left(swept) == 0
        second = await swept.world.submit("any")
        await spend(swept.world)
        await swept.exhausted.end_exhausted()  # the time of the next look has not come, if little time has passed
        await swept.world.pass_time(LOOK_SEC)
        await swept.sweep()
        assert await swept.status(second) == "FAILED"
        assert len(await swept.world.dead()) == 2

    sweeping(body, max_deliver=2)


@pytest.mark.parametrize("gateways", [2, 4])
def test_many_gateways_get_the_advisory_and_one_dead_letter_is_written(gateways: int) -> None:
    async def body(swept: Swept) -> None:
        all_of_them = [swept.another_exhausted_job_sweep() for _ in range(gateways)]
        jobs = MemoryExhaustedJobs(swept.world.queue.inner)
        for gateway in all_of_them:
            await jobs.subscribe(gateway.note_advisory)
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        await asyncio.gather(*(gateway.end_exhausted() for gateway in all_of_them))
        await asyncio.gather(*(gateway.end_exhausted() for gateway in all_of_them))
        assert (await swept.world.types(run_id)).count("EXECUTION_FAILED") == 1
        assert len(await swept.world.dead()) == 1
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


def test_a_job_whose_run_a_worker_has_ended_is_only_removed() -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("unknown")
        swept.world.trouble.next("delivery.ack", Fault.NOT_DONE)
        await swept.world.hand({}).work()  # it fails the run, and is cut off before it can say so
        await spend(swept.world)
        await swept.sweep()
        assert left(swept) == 0
        assert (await swept.world.types(run_id)).count("EXECUTION_FAILED") == 1
        assert [letter["reason"] for letter in await swept.world.dead()] == ["flow_not_found"]

    sweeping(body, max_deliver=1)


def test_a_run_that_was_cancelled_ends_cancelled_and_has_no_letter() -> None:
    async def body(swept: Swept) -> None:
        held = Held("stuck")
        run_id = await swept.world.submit("stuck")
        going = asyncio.create_task(swept.world.hand({"stuck": Flow("stuck") >> held.task()}).work())
        await held.at_work()
        await die(swept.world, going)
        await spend(swept.world)
        await swept.world.cancel(run_id, USER)
        assert await swept.status(run_id) == "CANCELLING"
        await swept.world.pass_time(4)
        await swept.exhausted.end_exhausted()
        assert await swept.status(run_id) == "CANCELLED"
        assert await swept.world.dead() == []
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


def test_a_run_that_only_waits_for_people_goes_on_waiting() -> None:
    async def body(swept: Swept) -> None:
        hand = swept.world.hand({"asking": Flow("asking") >> wait("approval")})
        run_id = await swept.world.submit("asking")
        swept.world.trouble.next("delivery.ack", Fault.NOT_DONE)
        await hand.work()
        await spend(swept.world)
        await swept.sweep()
        assert left(swept) == 0
        await swept.world.resume(run_id, "approval", 1, USER)
        await hand.work()
        assert await swept.status(run_id) == "COMPLETED"

    sweeping(body, max_deliver=2)


def test_a_run_in_somebodys_hands_is_left_to_them() -> None:
    """Delivered once only, to a worker that was cut off for longer than the ack wait, and is back."""

    async def body(swept: Swept) -> None:
        held = Held("held")
        await listen(swept)
        run_id = await swept.world.submit("held")
        delivery = await swept.world.queue.pull("default", timeout_sec=1)
        assert delivery is not None
        await swept.world.pass_time(31)
        assert await swept.world.queue.inner.pull("default", timeout_sec=0) is None
        assert left(swept) == 1
        going = asyncio.create_task(swept.world.hand({"held": Flow("held") >> held.task()}).handle(delivery))
        await held.at_work()
        await swept.sweep()
        assert await swept.status(run_id) == "RUNNING"
        assert left(swept) == 1
        held.release()
        await going
        assert await swept.status(run_id) == "COMPLETED"
        await swept.sweep()
        assert left(swept) == 0
        assert await swept.world.dead() == []

    sweeping(body, max_deliver=1)


def test_a_run_that_moves_on_while_it_is_judged_is_left_alone() -> None:
    async def body(swept: Swept) -> None:
        calls = Calls()
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        hand = swept.world.hand({"any": Flow("any") >> calls.task("only", 1)})
        await swept.world.run_log.rescue(run_id)

        async def be_quicker() -> None:
            await hand.work()

        swept.world.trouble.meanwhile["log.append"] = be_quicker
        await swept.exhausted.end_exhausted()
        assert await swept.status(run_id) == "COMPLETED"
        assert await swept.world.dead() == []

    sweeping(body, max_deliver=2)


def test_a_job_of_a_foreign_producer_that_was_never_started_fails_its_run() -> None:
    async def body(swept: Swept) -> None:
        await swept.world.publish(FOREIGN)
        await spend(swept.world)
        await swept.sweep()
        assert await swept.status("foreign-1") == "FAILED"
        [letter] = await swept.world.dead()
        assert (letter["reason"], letter["flow_name"]) == ("execution_error", "any")
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


@pytest.mark.parametrize("names_a_run", [True, False])
def test_an_invalid_job_has_a_dead_letter_that_says_so(names_a_run: bool) -> None:
    async def body(swept: Swept) -> None:
        await swept.world.publish({"run_id": "foreign-1", "flow_name": "any"} if names_a_run else b"\xff{")
        await spend(swept.world)
        gateways = [swept.another_exhausted_job_sweep() for _ in range(3)]
        await asyncio.gather(*(gateway.end_exhausted() for gateway in gateways))
        [letter] = await swept.world.dead()
        assert letter["reason"] == "invalid_job"
        assert letter.get("run_id") == ("foreign-1" if names_a_run else None)
        if names_a_run:
            assert await swept.status("foreign-1") == "FAILED"
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


@pytest.mark.parametrize("job", [{"run_id": "foreign-1", "flow_name": "any"}, {"run_id": "foreign-1"}, [1]])
def test_a_worker_and_a_gateway_reject_an_invalid_job_alike(job: Any) -> None:
    async def rejected(swept: Swept, *, by_worker: bool) -> tuple[dict[str, Any], Any]:
        await swept.world.publish(msgspec.json.encode(job))
        await (swept.world.hand({}).work() if by_worker else spend(swept.world))
        await swept.sweep()
        assert left(swept) == 0
        [letter] = await swept.world.dead()
        state = fold(events) if (events := await swept.world.events("foreign-1")) else None
        return letter, state and (state.failure, await swept.status("foreign-1"))

    outcomes: list[tuple[dict[str, Any], Any]] = []

    async def by_worker(swept: Swept) -> None:
        outcomes.append(await rejected(swept, by_worker=True))

    async def by_gateway(swept: Swept) -> None:
        outcomes.append(await rejected(swept, by_worker=False))

    sweeping(by_worker, max_deliver=2)
    sweeping(by_gateway, max_deliver=2)
    (letter, run), (letter_of_gateway, run_of_gateway) = outcomes
    assert letter.pop("worker_id") == "w1"
    assert (letter.pop("num_delivered"), letter_of_gateway.pop("num_delivered")) == (1, 2)
    assert letter.pop("timestamp") <= letter_of_gateway.pop("timestamp")
    assert letter_of_gateway == letter
    if run is not None:
        assert run[0]["error"].pop("detail") == {WORKER: "w1"}
    assert run_of_gateway == run


def test_a_job_of_a_run_whose_log_is_gone_is_removed() -> None:
    async def body(swept: Swept) -> None:
        await swept.world.publish({**FOREIGN, "log_position": 7})
        await spend(swept.world)
        await swept.sweep()
        assert left(swept) == 0
        assert await swept.world.events("foreign-1") == []

    sweeping(body, max_deliver=2)


@pytest.mark.parametrize(
    ("call", "fault"),
    [("log.read", Fault.NOT_DONE), ("log.append", Fault.NOT_DONE), ("snapshots.read", Fault.NOT_DONE)],
)
def test_an_end_that_an_outage_interrupts_is_completed_afterwards(call: str, fault: Fault) -> None:
    async def body(swept: Swept) -> None:
        await listen(swept)
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        swept.world.trouble.always(call, fault)
        with pytest.raises(UnavailableError):
            await swept.exhausted.end_exhausted()
        assert left(swept) == 1
        swept.world.trouble.always(call, Fault.NONE)
        await swept.sweep()
        assert await swept.status(run_id) == "FAILED"
        assert (await swept.world.types(run_id)).count("EXECUTION_FAILED") == 1
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


def test_an_end_without_an_answer_is_recognised_and_reported_once() -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        swept.world.trouble.next("log.append", Fault.UNANSWERED)
        await swept.sweep()
        assert (await swept.world.types(run_id)).count("EXECUTION_FAILED") == 1
        assert len(await swept.world.dead()) == 1
        assert left(swept) == 0

    sweeping(body, max_deliver=2)


def test_a_letter_that_cannot_be_written_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    async def body(swept: Swept) -> None:
        run_id = await swept.world.submit("any")
        await spend(swept.world)
        swept.world.trouble.always("letters.publish", Fault.NOT_DONE)
        await swept.sweep()
        assert await swept.status(run_id) == "FAILED"
        assert left(swept) == 0

    sweeping(body, max_deliver=2)
    assert "dead_letter_lost" in [getattr(record, "action", "") for record in caplog.records]


def test_a_job_that_cannot_be_handled_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def body(swept: Swept) -> None:
        async def surprise() -> None:
            raise LookupError("a bug")

        await swept.world.submit("any")
        await spend(swept.world)
        [number] = swept.world.queue.inner.exhausted
        second = await swept.world.submit("any")
        while await swept.world.queue.inner.pull("default", timeout_sec=100) is not None:
            await swept.world.pass_time(31)
        swept.world.trouble.meanwhile["log.read"] = surprise
        await swept.exhausted.end_exhausted()
        assert [*swept.world.queue.inner.exhausted] == [number]
        assert await swept.status(second) == "FAILED"

    sweeping(body, max_deliver=2)
    assert "spent_job_crashed" in [getattr(record, "action", "") for record in caplog.records]
