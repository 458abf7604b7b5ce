"""A run is accepted when its log, its snapshot and its job are stored; otherwise nothing of it ever runs."""

import asyncio
import hashlib
import itertools

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import LogConflictError, TooLargeError, UnavailableError
from pyoco_server.app.runs.job import decode_job
from pyoco_server.app.runs.submit import IdempotentSubmitter, Submission
from pyoco_server.app.snapshots.status import NOT_ACCEPTED
from pyoco_server.worker.settlement import Ack
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault, UndocumentedError
from tests.worker.world import USER, World, attempt

FAILING = (Fault.NOT_DONE, Fault.UNANSWERED)


async def refused(world: World, run_id: str = "run-1") -> None:
    with pytest.raises(UnavailableError) as error:
        await world.submitter.submit(Submission(flow_name="one"), USER, run_id=run_id)
    assert error.value.err_id == "ERR-PYOCO-0003"


async def check_nothing_runs(world: World, run_id: str = "run-1") -> None:
    """Check that jobs of a retracted run are recognised and dropped."""
    calls = Calls()
    hand = world.hand({"one": Flow("one") >> calls.task("only", 1)})
    while (delivery := await world.queue.inner.pull("default", timeout_sec=0)) is not None:
        assert await hand.handle(delivery) == Ack()
    assert calls.names == []
    state = await world.state(run_id) if await world.events(run_id) else None
    assert state is None or state.status == "CANCELED"


def test_an_accepted_run_has_its_log_its_snapshot_and_its_job() -> None:
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


def test_an_uploaded_flow_is_in_the_log_and_its_digest_in_the_snapshot() -> None:
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
def test_a_submission_that_fails_halfway_is_refused_and_retracted(call: str, fault: Fault) -> None:
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


def test_a_late_creation_finds_the_log_closed() -> None:
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


def test_a_job_of_a_retracted_run_leaves_no_snapshot() -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.publish", Fault.UNANSWERED)
        await refused(world)
        assert await world.queue.backlog("default") == 1
        await check_nothing_runs(world)
        assert await world.stored("run-1") == {}

    attempt(body)


@pytest.mark.spec("004 REQ-0003", "004 ERR-PYOCO-0004")
@pytest.mark.parametrize("call", ["log.read", "log.append", "snapshots.delete"])
def test_a_retraction_that_fails_is_logged(call: str, caplog: pytest.LogCaptureFixture) -> None:
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
def test_a_submission_that_is_too_large_is_refused_and_retracted(call: str) -> None:
    async def body(world: World) -> None:
        world.trouble.next(call, Fault.TOO_LARGE, *([Fault.TOO_LARGE] if call == "log.append" else []))
        with pytest.raises(TooLargeError):
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        assert await world.stored("run-1") == {}
        await check_nothing_runs(world)

    attempt(body)


ANY = [fault for fault in Fault if fault is not Fault.NONE]
WRITES = ["log.append", "snapshots.write", "queue.publish"]


@pytest.mark.spec("004 REQ-0003")
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("fault", ANY)
@pytest.mark.parametrize("call", [*WRITES, "snapshots.sync"])
def test_a_submission_that_is_not_answered_leaves_no_run(call: str, fault: Fault, is_shared: bool) -> None:
    """Whatever a write raises. Under a key, a write that got there may mean that the run is accepted."""

    async def body(world: World) -> None:
        world.trouble.next(call, fault)
        try:
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1", is_shared=is_shared)
        except (UnavailableError, TooLargeError, UndocumentedError):
            assert await world.stored("run-1") == {}
            await check_nothing_runs(world)
        else:
            assert is_shared
            assert (await world.stored("run-1"))["status"] == "PENDING"
            assert await world.queue.backlog("default") == 1
            assert await world.types("run-1") == ["EXECUTION_CREATED"]

    attempt(body)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.TOO_LARGE])
def test_nothing_is_retracted_when_it_is_known_that_nothing_was_stored(fault: Fault) -> None:
    async def body(world: World) -> None:
        world.trouble.always("log.append", fault)
        with pytest.raises((UnavailableError, TooLargeError)):
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        assert world.trouble.calls == ["log.append"]

    attempt(body)


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.BROKEN_AFTER])
def test_a_shared_run_that_a_worker_has_started_is_accepted(fault: Fault) -> None:
    """Its job was queued without an answer: the log has moved on, so another request may have been answered for it."""

    async def body(world: World) -> None:
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})

        async def work() -> None:
            delivery = await world.queue.inner.pull("default", timeout_sec=0)
            assert delivery is not None
            assert await hand.handle(delivery) == Ack()

        world.trouble.next("queue.publish", fault)
        world.trouble.before_answer["queue.publish"] = work
        snapshot = await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1", is_shared=True)
        assert snapshot["status"] == "PENDING"
        assert (await world.state("run-1")).status == "COMPLETED"

    attempt(body)


def test_a_run_that_has_ended_before_it_could_be_retracted_is_accepted() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"one": Flow("one") >> Calls().task("only", 1)})

        async def work() -> None:
            delivery = await world.queue.inner.pull("default", timeout_sec=0)
            assert delivery is not None
            assert await hand.handle(delivery) == Ack()

        world.trouble.next("queue.publish", Fault.UNANSWERED)
        world.trouble.before_answer["queue.publish"] = work
        snapshot = await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1")
        assert snapshot["status"] == "PENDING"
        assert (await world.stored("run-1"))["status"] == "COMPLETED"

    attempt(body)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_creation_that_arrives_while_it_is_retracted_is_closed(is_shared: bool) -> None:
    """Its first event is that of the commit which closes the log of a creation that never arrived."""

    async def body(world: World) -> None:
        async def arrive() -> None:
            await world.log.inner.append("run-1", world.log.offered[0], after=0)

        async def look_again() -> None:
            world.trouble.meanwhile["log.read"] = arrive

        world.trouble.next("log.append", Fault.NOT_DONE, Fault.NOT_DONE)
        world.trouble.meanwhile["log.read"] = look_again
        with pytest.raises(UnavailableError):
            await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1", is_shared=is_shared)
        assert (await world.state("run-1")).cancel_reason == NOT_ACCEPTED
        assert await world.stored("run-1") == {}

    attempt(body)


def test_the_snapshot_of_a_shared_run_is_written_last() -> None:
    async def body(world: World) -> None:
        async def look() -> None:
            assert await world.stored("run-1") == {}
            assert await world.queue.backlog("default") == 1

        world.trouble.meanwhile["snapshots.write"] = look
        await world.submitter.submit(Submission(flow_name="one"), USER, run_id="run-1", is_shared=True)
        assert (await world.stored("run-1"))["status"] == "PENDING"

    attempt(body)


def test_a_key_answers_with_its_run_when_only_the_log_is_left() -> None:
    async def body(world: World) -> None:
        once = IdempotentSubmitter(world.submitter, world.run_log)
        first = await once.submit(Submission(flow_name="one"), USER, key="k")
        delivery = await world.queue.pull("default", timeout_sec=0)
        assert delivery is not None
        await delivery.term()
        await world.pass_time(121)  # the queue has forgotten that it had the job
        await world.snapshots.inner.delete(first["run_id"])
        assert await once.submit(Submission(flow_name="one"), USER, key="k") == first
        assert (await world.stored(first["run_id"]))["status"] == "PENDING"
        assert await world.queue.backlog("default") == 1

    attempt(body)


def test_a_failed_retraction_is_repeated_until_it_succeeds() -> None:
    async def body(world: World) -> None:
        world.trouble.next("queue.publish", Fault.UNANSWERED)
        world.trouble.always("log.read", Fault.NOT_DONE)
        await refused(world)
        await world.pass_time(600)
        assert (await world.state("run-1")).status == "ACTIVE"
        world.trouble.always("log.read", Fault.NONE)
        await world.pass_time(30)
        assert (await world.state("run-1")).cancel_reason == NOT_ACCEPTED
        await check_nothing_runs(world)

    attempt(body)


def test_a_cancelled_submission_leaves_nothing_behind() -> None:
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
