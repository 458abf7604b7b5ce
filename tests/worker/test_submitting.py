"""A run is accepted when its log, its snapshot and its job are there; otherwise nothing of it ever runs."""

import asyncio
import hashlib
import itertools

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.jobs import decode_job
from pyoco_server.app.ports import LogConflictError, TooLargeError, UnavailableError
from pyoco_server.app.submitting import SLOW_SEC, Submission
from pyoco_server.worker.dispositions import Ack
from tests.engine.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import USER, World, attempt

FAILING = (Fault.NOT_DONE, Fault.UNANSWERED)


async def refused(world: World, run_id: str = "run-1") -> None:
    with pytest.raises(UnavailableError) as error:
        await world.submitter.submit(Submission(flow_name="one"), USER, run_id=run_id)
    assert error.value.err_id == "ERR-PYOCO-0003"


async def check_nothing_runs(world: World, run_id: str = "run-1") -> None:
    """Whatever slipped through is recognised and dropped."""
    calls = Calls()
    hand = world.hand({"one": Flow("one") >> calls.task("only", 1)})
    while (delivery := await world.queue.inner.pull("default", timeout_sec=0)) is not None:
        assert await hand.handle(delivery) == Ack()
    assert calls.names == []
    state = await world.state(run_id) if await world.events(run_id) else None
    assert state is None or state.status == "CANCELED"


def test_what_is_accepted_is_all_there() -> None:
    async def body(world: World) -> None:
        snapshot = await world.submitter.submit(
            Submission(flow_name="one", params={"n": 1}, tag="cpu", tenant_id="t", api_key_id="k"), USER
        )
        assert snapshot["status"] == "PENDING"
        assert await world.stored(snapshot["run_id"]) == snapshot
        assert (snapshot["tag"], snapshot["tags"]) == ("cpu", ["cpu"])
        assert (snapshot["tenant_id"], snapshot["api_key_id"]) == ("t", "k")
        delivery = await world.queue.pull("cpu", timeout_sec=1)
        assert delivery is not None
        job = decode_job(delivery.body)
        events, position = await world.log.inner.read(snapshot["run_id"])
        assert [job.creation()] == events
        assert (job.log_position, snapshot["log_position"]) == (position, position)
        assert (job.run_id, job.flow_name, job.params) == (snapshot["run_id"], "one", {"n": 1})

    attempt(body)


def test_an_uploaded_flow_leaves_its_mark_in_the_snapshot_and_its_text_in_the_log() -> None:
    async def body(world: World) -> None:
        text = "version: 1\nflow:\n  graph: é\n"
        run_id = await world.submit("uploaded", workflow_yaml=text)
        stored = await world.stored(run_id)
        encoded = text.encode()
        assert stored["workflow_yaml_sha256"] == hashlib.sha256(encoded).hexdigest()
        assert stored["workflow_yaml_bytes"] == len(encoded)
        assert text not in str(stored)
        assert (await world.state(run_id)).input is not None

    attempt(body)


def test_two_equal_submissions_are_two_runs() -> None:
    async def body(world: World) -> None:
        assert await world.submit("one") != await world.submit("one")
        assert await world.queue.backlog("default") == 2

    attempt(body)


@pytest.mark.spec("004 REQ-0003", "004 ERR-PYOCO-0003")
@pytest.mark.parametrize("fault", FAILING)
@pytest.mark.parametrize("call", ["log.append", "snapshots.write", "queue.publish", "snapshots.sync"])
def test_what_is_not_all_there_is_refused_and_taken_back(call: str, fault: Fault) -> None:
    async def body(world: World) -> None:
        world.trouble.next(call, fault)
        await refused(world)
        assert await world.stored("run-1") == {}
        assert (await world.state("run-1")).status == "CANCELED"
        assert (await world.state("run-1")).cancel_reason == "the submission was not accepted"
        await check_nothing_runs(world)

    attempt(body)


@pytest.mark.parametrize(("snapshot", "job"), [*itertools.product(FAILING, FAILING)])
def test_two_failures_are_one_refusal(snapshot: Fault, job: Fault) -> None:
    async def body(world: World) -> None:
        world.trouble.next("snapshots.write", snapshot)
        world.trouble.next("queue.publish", job)
        await refused(world)
        assert await world.stored("run-1") == {}
        await check_nothing_runs(world)

    attempt(body)


def test_a_creation_that_comes_late_finds_the_log_closed() -> None:
    """The append seemed to fail and is still on its way when the log is closed: it must not come through."""

    async def body(world: World) -> None:
        world.trouble.next("log.append", Fault.NOT_DONE)
        await refused(world)
        created = (await world.events("run-1"))[0]
        with pytest.raises(LogConflictError):
            await world.log.append("run-1", [created], after=0)
        assert await world.types("run-1") == [
            "EXECUTION_CREATED",
            "EXECUTION_CANCEL_REQUESTED",
            "EXECUTION_CANCELED",
        ]

    attempt(body)


def test_who_stands_still_amid_a_submission_does_not_answer_for_what_was_closed_meanwhile() -> None:
    async def body(world: World) -> None:
        async def long_after() -> None:
            await world.pass_time(SLOW_SEC + 30)
            await world.desk.take_back("run-1", USER)  # as the sweep does

        world.trouble.meanwhile["queue.publish"] = long_after
        with pytest.raises(UnavailableError, match="took so long that it was given up"):
            await world.submit("fan", {"n": 1}, run_id="run-1")
        await check_nothing_runs(world)
        assert await world.stored("run-1") == {}

    attempt(body)


def test_a_job_that_slipped_through_leaves_no_snapshot_behind() -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.publish", Fault.UNANSWERED)
        await refused(world)
        assert await world.queue.backlog("default") == 1
        await check_nothing_runs(world)
        assert await world.stored("run-1") == {}

    attempt(body)


@pytest.mark.spec("004 REQ-0003", "004 ERR-PYOCO-0004")
@pytest.mark.parametrize("call", ["log.read", "log.append", "snapshots.delete"])
def test_what_cannot_be_taken_back_is_told(call: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.publish", Fault.NOT_DONE)
        if call == "log.append":
            world.trouble.next("log.append", Fault.NONE, Fault.NOT_DONE)
            world.trouble.next("log.read", Fault.NONE, Fault.NOT_DONE)
        else:
            world.trouble.next(call, Fault.NOT_DONE)
        await refused(world)
        if call != "snapshots.delete":
            assert await world.stored("run-1") == {}

    attempt(body)
    [record] = [record for record in caplog.records if record.__dict__.get("err_id") == "ERR-PYOCO-0004"]
    assert record.__dict__["run_id"] == "run-1"


def test_a_snapshot_that_cannot_be_deleted_does_not_keep_the_log_open() -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.publish", Fault.UNANSWERED)
        world.trouble.next("snapshots.delete", Fault.NOT_DONE)
        await refused(world)
        await check_nothing_runs(world)

    attempt(body)


@pytest.mark.parametrize("call", ["log.append", "snapshots.write", "queue.publish"])
def test_what_is_too_large_is_refused_and_taken_back(call: str) -> None:
    async def body(world: World) -> None:
        world.trouble.next(call, Fault.TOO_LARGE, *([Fault.TOO_LARGE] if call == "log.append" else []))
        with pytest.raises(TooLargeError):
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        assert await world.stored("run-1") == {}
        await check_nothing_runs(world)

    attempt(body)


def test_a_submitter_who_leaves_while_it_is_under_way_leaves_nothing_behind() -> None:
    async def body(world: World) -> None:
        reached, gate = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            reached.set()
            await gate.wait()

        world.trouble.meanwhile["queue.publish"] = wait
        submitting = asyncio.create_task(world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1"))
        await reached.wait()
        submitting.cancel()
        await asyncio.wait([submitting])
        assert submitting.cancelled()
        assert await world.stored("run-1") == {}
        assert (await world.state("run-1")).status == "CANCELED"
        await check_nothing_runs(world)

    attempt(body)


def test_an_id_that_is_taken_is_refused_and_its_run_left_alone() -> None:
    async def body(world: World) -> None:
        await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        with pytest.raises(LogConflictError):
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        assert await world.types("run-1") == ["EXECUTION_CREATED"]
        assert (await world.stored("run-1"))["status"] == "PENDING"

    attempt(body)
