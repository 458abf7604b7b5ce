"""How a job is settled after each failure: the table of the specification, and the exact dead letters."""

import json
import logging
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from pyoco_server.testing.virtual_clock import START
from pyoco_server.worker.settlement import Ack, Nak, Term
from tests.app.runtime.flows import Calls, fan_flow
from tests.worker.faulty import Fault
from tests.worker.world import World, attempt

RUN = "7f8a2a4e-6b1c-4b5e-9a63-1f0f4f3f7a11"
JOB = {"run_id": RUN, "flow_name": "fan", "tag": "default", "submitted_at": 1_893_456_000.0}


def failing_flow(calls: Calls) -> Flow:
    def fail(_: Any) -> None:
        raise ValueError("no good")

    return Flow("failing") >> calls.task("bad", fail)


@pytest.mark.spec("004 REQ-0008", "004 REQ-0009")
def test_a_run_that_completes_is_acked_after_its_snapshot() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        run_id = await world.submit("fan", {"n": 1})
        assert (await world.stored(run_id))["status"] == "PENDING"
        assert await hand.work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"], stored["driven_by"]) == ("COMPLETED", "w1", None)
        assert stored["tasks"] == dict.fromkeys(["left", "right", "seed", "total"], "SUCCEEDED")
        assert stored["task_records"]["total"]["output"] == 5
        assert world.queue.settled == ["ack"]
        calls = world.trouble.calls
        last_write = len(calls) - 1 - calls[::-1].index("snapshots.write")
        assert last_write < calls.index("delivery.ack")
        assert await world.dead() == []

    attempt(body)


def test_a_new_run_costs_no_read_of_its_log() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        await world.submit("fan", {"n": 1})
        await hand.work()
        assert "log.read" not in world.trouble.calls

    attempt(body)


# --- Not a job -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0012", "004 ERR-PYOCO-0012")
def test_an_invalid_job_is_terminated_with_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        await world.publish(b"{not json")
        settlement = await world.hand({}).work()
        assert isinstance(settlement, Term)
        [letter] = await world.dead()
        error = letter.pop("error")
        assert error.startswith("not a job: ")
        assert letter == {
            "timestamp": START.timestamp(),
            "reason": "invalid_job",
            "err_id": "ERR-PYOCO-0012",
            "msg_id": "MSG-PYOCO-0012",
            "message": "不正なジョブを受信しました",
            "tag": "default",
            "worker_id": "w1",
            "num_delivered": 1,
            "subject": "pyoco.work.default",
        }
        assert world.queue.settled == ["term"]
        assert "snapshots.write" not in world.trouble.calls
        assert "log.append" not in world.trouble.calls

    attempt(body)
    assert [record.__dict__["err_id"] for record in caplog.records if record.levelno >= logging.ERROR] == [
        "ERR-PYOCO-0012"
    ]


def test_a_broken_job_that_names_its_run_fails_the_run() -> None:
    async def body(world: World) -> None:
        await world.publish({"run_id": RUN, "flow_name": "fan"})
        assert isinstance(await world.hand({}).work(), Term)
        stored = await world.stored(RUN)
        assert (stored["status"], stored["flow_name"], stored["run_id"]) == ("FAILED", "fan", RUN)
        assert "INVALID_JOB" in stored["error"]
        [letter] = await world.dead()
        assert (letter["reason"], letter["run_id"], letter["flow_name"]) == ("invalid_job", RUN, "fan")

    attempt(body)


def test_a_broken_job_does_not_change_how_its_run_has_ended() -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        run_id = await world.submit("fan", {"n": 1})
        await hand.work()
        await world.publish({"run_id": run_id})
        assert isinstance(await hand.work(), Term)
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


@pytest.mark.parametrize(
    "created",
    [
        {},
        {"eventId": "1"},
        {"type": "EXECUTION_CREATED", "executionId": "another-run"},
        {"type": "EXECUTION_CANCELED"},
    ],
)
def test_a_job_whose_creation_makes_no_sense_is_no_job(created: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        good = {
            "eventId": "00000000-0000-4000-8000-000000000001",
            "executionId": RUN,
            "occurredAt": "2030-01-01T00:00:00Z",
            "actor": {"kind": "user"},
            "type": "EXECUTION_CREATED",
        }
        envelope = {**good, **created} if len(created) and "type" in created else created
        await world.publish({**JOB, "log_position": 1, "created": envelope})
        assert isinstance(await world.hand({"fan": fan_flow(Calls())}).work(), Term)
        assert (await world.stored(RUN))["status"] == "FAILED"
        assert [letter["reason"] for letter in await world.dead()] == ["invalid_job"]

    attempt(body)


def test_a_broken_job_waits_while_the_log_is_away() -> None:
    async def body(world: World) -> None:
        await world.publish({"run_id": RUN})
        world.trouble.next("log.read", Fault.NOT_DONE)
        hand = world.hand({})
        assert await hand.work() == Nak(2.0)
        assert await world.dead() == []
        assert isinstance(await hand.work(), Term)
        assert (await world.stored(RUN))["status"] == "FAILED"

    attempt(body)


# --- Flows that cannot be had ----------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0008", "004 REQ-0012", "004 ERR-PYOCO-0006")
def test_an_unknown_flow_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("unheard_of", tags=("a", "b"))
        settlement = await world.hand({}).work()
        assert isinstance(settlement, Ack)
        stored = await world.stored(run_id)
        assert (stored["status"], stored["worker_id"]) == ("FAILED", "w1")
        assert "unheard_of" in stored["error"]
        [letter] = await world.dead()
        assert letter.pop("error") == "no flow is called 'unheard_of' here: unknown to the resolver"
        assert letter == {
            "timestamp": START.timestamp(),
            "reason": "flow_not_found",
            "err_id": "ERR-PYOCO-0006",
            "msg_id": "MSG-PYOCO-0006",
            "message": "flowが見つかりません",
            "run_id": run_id,
            "flow_name": "unheard_of",
            "tag": "default",
            "tags": ["a", "b"],
            "worker_id": "w1",
            "num_delivered": 1,
            "subject": "pyoco.work.default",
        }
        assert world.queue.settled == ["ack"]

    attempt(body)
    assert "ERR-PYOCO-0006" in [record.__dict__.get("err_id") for record in caplog.records]


@pytest.mark.spec("004 REQ-0008", "004 ERR-PYOCO-0007")
@pytest.mark.parametrize(
    "error",
    [ValueError("broken module"), ValueError("half a pair: \ud800"), SystemExit(3)],
    ids=["plain", "unencodable", "exit"],
)
def test_a_resolver_that_raises_fails_the_run(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="pyoco_server")  # half a pair in a report cannot be sent to a parent

    async def body(world: World) -> None:
        def resolve(_: str) -> Flow:
            raise error

        run_id = await world.submit("fan")
        assert isinstance(await world.hand(resolve).work(), Ack)
        stored = await world.stored(run_id)
        assert stored["status"] == "FAILED"
        assert type(error).__name__ in stored["error"]
        assert [letter["reason"] for letter in await world.dead()] == ["execution_error"]

    attempt(body)


def test_a_resolver_that_gives_something_else_has_not_found_the_flow() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("fan")
        assert isinstance(await world.hand(lambda _: 42).work(), Ack)
        assert "a int for 'fan', not a Flow" in (await world.stored(run_id))["error"]
        assert [letter["reason"] for letter in await world.dead()] == ["flow_not_found"]

    attempt(body)


def test_a_flow_yaml_whose_code_is_not_here_is_not_found() -> None:
    text = "version: 1\nflow:\n  graph: |\n    a\ntasks:\n  a:\n    callable: there.is.no.module:f\n"

    async def body(world: World) -> None:
        run_id = await world.submit("uploaded", workflow_yaml=text)
        assert isinstance(await world.hand({}).work(), Ack)
        stored = await world.stored(run_id)
        assert stored["status"] == "FAILED"
        assert stored["workflow_yaml_bytes"] == len(text)
        assert [letter["reason"] for letter in await world.dead()] == ["flow_not_found"]

    attempt(body)


# --- Runs that fail --------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0008", "004 REQ-0012", "004 ERR-PYOCO-0007")
@pytest.mark.parametrize("publish", [True, False])
def test_a_failed_run_is_acked_with_a_dead_letter_unless_switched_off(publish: bool) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"failing": failing_flow(Calls())}, publish_execution_error=publish)
        run_id = await world.submit("failing")
        assert isinstance(await hand.work(), Ack)
        stored = await world.stored(run_id)
        assert stored["status"] == "FAILED"
        assert stored["tasks"] == {"bad": "FAILED"}
        assert "ValueError: no good" in stored["error"]
        letters = await world.dead()
        assert [letter["reason"] for letter in letters] == ["execution_error"] * publish
        assert [letter["error"] for letter in letters] == [stored["error"]] * publish

    attempt(body)


@pytest.mark.spec("004 REQ-0013", "004 ERR-PYOCO-0007")
def test_the_line_of_a_run_that_failed_has_the_exception(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> str:
        run_id = await world.submit("failing")
        await world.hand({"failing": failing_flow(Calls())}).work()
        return run_id

    attempt(body)
    [record] = [record for record in caplog.records if record.__dict__.get("action") == "run_failed"]
    logged = json.loads(JsonFormatter(service="s", utc=True, include_traceback=True).format(record))
    assert (logged["err_id"], logged["msg_id"], logged["level"]) == ("ERR-PYOCO-0007", "MSG-PYOCO-0007", "ERROR")
    assert (logged["exception_class"], logged["exception_message"]) == ("ValueError", "no good")
    assert logged["traceback"].startswith("Traceback")
    assert 'raise ValueError("no good")' in logged["traceback"]
    brief = json.loads(JsonFormatter(service="s", utc=True, include_traceback=False).format(record))
    assert (brief["exception_class"], "traceback" in brief) == ("ValueError", False)
    text = TextFormatter(service="s", utc=True, include_traceback=True).format(record)
    assert "\n    Traceback" in text


@pytest.mark.spec("004 REQ-0012", "004 ERR-PYOCO-0011")
def test_a_dead_letter_that_cannot_be_written_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"failing": failing_flow(Calls())})
        for fault in (Fault.NOT_DONE, Fault.TOO_LARGE):
            world.trouble.next("letters.publish", fault)
            await world.submit("failing")
            assert isinstance(await hand.work(), Ack)
        assert world.queue.settled == ["ack", "ack"]

    attempt(body)
    assert [record.__dict__.get("err_id") for record in caplog.records].count("ERR-PYOCO-0011") == 2


# --- NATS is away ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0008", "004 REQ-0012", "004 ERR-PYOCO-0003")
@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED])
@pytest.mark.parametrize("call", ["log.subscribe", "log.append", "snapshots.write"])
def test_a_job_is_released_for_later_when_nats_fails(call: str, fault: Fault) -> None:
    async def body(world: World) -> None:
        calls = Calls()
        hand = world.hand({"fan": fan_flow(calls)})
        run_id = await world.submit("fan", {"n": 1})
        delivery = await hand.pull()
        world.trouble.always("log.read", Fault.NOT_DONE)
        world.trouble.always(call, fault)
        assert await hand.handle(delivery) == Nak(2.0)
        assert hand.handler.running == {}
        assert await world.dead() == []
        world.trouble.always("log.read", Fault.NONE)
        world.trouble.always(call, Fault.NONE)
        before = world.clock.now()
        assert await hand.work() == Ack()
        assert (world.clock.now() - before).total_seconds() == 2.0
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert calls.count("total") == 1

    attempt(body)


@pytest.mark.spec("004 REQ-0009", "004 ERR-PYOCO-0008")
def test_a_terminal_snapshot_that_cannot_be_written_has_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        await world.submit("fan", {"n": 1})
        world.trouble.always("snapshots.write", Fault.NOT_DONE)
        assert await hand.work() == Nak(2.0)

    attempt(body)
    assert "ERR-PYOCO-0008" in [record.__dict__.get("err_id") for record in caplog.records]


def test_a_job_that_cannot_be_settled_comes_back_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"fan": fan_flow(Calls())})
        await world.submit("fan", {"n": 1})
        world.trouble.next("delivery.ack", Fault.NOT_DONE)
        before = world.clock.now()
        assert await hand.work() == Ack()
        assert await hand.work() == Ack()
        assert (world.clock.now() - before).total_seconds() == 30.0
        assert world.queue.settled == ["ack"]

    attempt(body)
    assert "ERR-PYOCO-0003" in [record.__dict__.get("err_id") for record in caplog.records]


def test_an_unexpected_error_costs_the_job_a_delivery_and_not_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(world: World) -> None:
        async def surprise() -> None:
            raise LookupError("a bug")

        hand = world.hand({"fan": fan_flow(Calls())})
        run_id = await world.submit("fan", {"n": 1})
        world.trouble.meanwhile["log.subscribe"] = surprise
        assert await hand.work() == Nak(2.0)
        assert await hand.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)
    [record] = [record for record in caplog.records if record.__dict__.get("action") == "job_crashed"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
