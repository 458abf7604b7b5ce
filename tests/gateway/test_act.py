"""Commands for runs: cancel (REQ-0023), resume, archive."""

from typing import Any

import httpx
import msgspec
import pytest

from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, ended, listed, submit, unique, until, waiting

UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.mark.spec("004 REQ-0023", "004 §付録D POST /runs/{run_id}/cancel", "004 §付録C cancel")
def test_a_pending_run_is_cancelled(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    answer = client.post(f"/runs/{run_id}/cancel")
    assert answer.status_code == 200
    assert answer.json()["status"] == "CANCELLING"
    assert answer.json()["cancel_requested_at"] > 0
    assert answer.json()["cancel_requested_by"] is None  # there was no key
    assert ended(client, run_id)["status"] == "CANCELLED"


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024", "004 §付録D POST /runs/{run_id}/cancel", "004 §付録C cancel")
def test_a_running_run_is_cancelled(client: httpx.Client) -> None:
    run_id = submit(client, "long")
    until(client, run_id, lambda snapshot: snapshot["tasks"].get("sleeps") == "RUNNING")
    answer = client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
    assert (answer.json()["status"], answer.json()["cancel_reason"]) == ("CANCELLING", "enough")
    snapshot = ended(client, run_id)
    assert snapshot["status"] == "CANCELLED"
    assert snapshot["tasks"] == {"sleeps": "CANCELLED"}
    again = client.post(f"/runs/{run_id}/cancel")
    assert (again.status_code, again.json()["status"]) == (200, "CANCELLED")


@pytest.mark.spec("004 REQ-0023", "004 §付録C cancel")
@pytest.mark.parametrize(("flow", "status"), [("hello", "COMPLETED"), ("boom", "FAILED")])
def test_a_run_that_has_ended_stays_as_it_is(client: httpx.Client, flow: str, status: str) -> None:
    run_id = submit(client, flow)
    before = ended(client, run_id)
    answer = client.post(f"/runs/{run_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, status)
    after = client.get(f"/runs/{run_id}").json()
    assert (after["status"], after["version"], after["cancel_requested_at"]) == (status, before["version"], None)


@pytest.mark.spec("004 REQ-0023", "004 ERR-PYOCO-0005")
@pytest.mark.parametrize("run_id", [UNKNOWN, "a.b", "x" * 300])
@pytest.mark.parametrize("act", ["cancel", "archive", "nodes/n/resume"])
def test_an_unknown_run_is_not_found(client: httpx.Client, run_id: str, act: str) -> None:
    check_error(client.post(f"/runs/{run_id}/{act}", json={}), 404, "ERR-PYOCO-0005")


JSON = {"Content-Type": "application/json"}
ANY_BODY: dict[str, dict[str, Any]] = {
    "nothing": {},
    "null": {"json": None},
    "a number for a reason": {"json": {"reason": 3}},
    "a list": {"json": ["enough"]},
    "a text": {"json": "enough"},
    "a form without fields": {"content": b"", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    "no type": {"content": b"enough"},
    "half an object": {"content": b'{"reason":', "headers": JSON},
    "not utf-8": {"content": b'{"reason": "\xff"}', "headers": JSON},
    "half a surrogate pair": {"content": b'{"reason": "\\ud800"}', "headers": JSON},
    "nested without end": {"content": b"[" * 100_000, "headers": JSON},
}


@pytest.mark.spec("004 REQ-0023", "004 §付録D POST /runs/{run_id}/cancel")
@pytest.mark.parametrize("body", ANY_BODY.values(), ids=ANY_BODY.keys())
def test_a_cancel_takes_any_body_or_none(client: httpx.Client, body: dict[str, Any]) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    answer = client.post(f"/runs/{run_id}/cancel", **body)
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLING")
    assert answer.json()["cancel_reason"] is None


def test_a_long_reason_is_cut(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    answer = client.post(f"/runs/{run_id}/cancel", json={"reason": "é" * 2_001, "more": 1})
    assert answer.json()["cancel_reason"] == "é" * 2_000


# --- Runs of other programs ------------------------------------------------------------------------------------------


def foreign(stand: Stand, body: bytes) -> str:
    """Write a snapshot of a run that has no log, as another program does."""
    run_id = unique("foreign")

    async def write(given: Services) -> None:
        await given.snapshots.write(run_id, body, position=0)

    stand.call(write)
    return run_id


@pytest.mark.spec("004 REQ-0023", "004 §付録D POST /runs/{run_id}/cancel")
@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_a_run_that_is_only_a_snapshot_is_cancelled(stand: Stand, client: httpx.Client, status: str) -> None:
    known = {"flow_name": "theirs", "status": status, "params": {"n": 1}, "tag": "cpu", "updated_at": 1.0}
    run_id = foreign(stand, msgspec.json.encode(known))
    answer = client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert (said["status"], said["flow_name"], said["params"], said["tag"]) == ("CANCELLING", "theirs", {"n": 1}, "cpu")
    assert (said["cancel_requested_at"] > 1, said["cancel_reason"]) == (True, "enough")
    assert ended(client, run_id)["status"] == "CANCELLED"
    events = client.get(f"/runs/{run_id}/events").json()["events"]
    assert [event["type"] for event in events] == [
        "EXECUTION_CREATED",
        "EXECUTION_CANCEL_REQUESTED",
        "EXECUTION_CANCELED",
    ]
    assert events[0]["actor"] == {"kind": "external", "id": "snapshot"}
    assert client.post(f"/runs/{run_id}/cancel").json()["status"] == "CANCELLED"


@pytest.mark.spec("004 REQ-0023", "004 §付録C cancel")
def test_a_cancel_that_another_gateway_accepted_is_kept(stand: Stand, client: httpx.Client) -> None:
    """The log begins with ours; theirs may be put into it first, and end the run before ours is recorded."""
    known = {"flow_name": "theirs", "status": "CANCELLING", "cancel_requested_by": "ann", "updated_at": 1.0}
    run_id = foreign(stand, msgspec.json.encode(known))
    answer = client.post(f"/runs/{run_id}/cancel", json={"reason": "enough"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] in {"CANCELLING", "CANCELLED"}
    ended(client, run_id)
    types = [event["type"] for event in client.get(f"/runs/{run_id}/events").json()["events"]]
    assert types == ["EXECUTION_CREATED", "EXECUTION_CANCEL_REQUESTED", "EXECUTION_CANCELED"]


@pytest.mark.spec("004 REQ-0023", "004 §付録C cancel")
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_snapshot_of_a_run_that_has_ended_stays_as_it_is(stand: Stand, client: httpx.Client, status: str) -> None:
    run_id = foreign(stand, msgspec.json.encode({"flow_name": "theirs", "status": status, "updated_at": 1.0}))
    answer = client.post(f"/runs/{run_id}/cancel")
    assert answer.status_code == 200
    assert answer.json() == {"flow_name": "theirs", "status": status, "updated_at": 1.0}
    check_error(client.get(f"/runs/{run_id}/events"), 404, "ERR-PYOCO-0005")


@pytest.mark.spec("004 REQ-0004", "004 REQ-0005")
@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b"5", b'{"a":', b"\xff", b"[" * 100_000])
def test_an_unreadable_snapshot_without_a_log_is_an_error(
    stand: Stand, client: httpx.Client, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    run_id = foreign(stand, body)
    for answer in (
        client.get(f"/runs/{run_id}"),
        client.get(f"/runs/{run_id}/tasks"),
        client.get(f"/runs/{run_id}/watch"),
        client.post(f"/runs/{run_id}/cancel"),
    ):
        check_error(answer, 500, "ERR-PYOCO-0106")
        assert run_id in answer.json()["detail"]
    assert "request_crashed" not in [record.__dict__.get("action") for record in caplog.records]


def test_a_snapshot_with_odd_fields_is_shown(stand: Stand, client: httpx.Client) -> None:
    run_id = foreign(stand, b'{"tenant_id": 5, "status": ["odd"], "worker_id": {}, "updated_at": "now"}')
    assert client.get(f"/runs/{run_id}").json()["status"] == ["odd"]
    assert client.get(f"/runs/{run_id}/tasks").json()["status"] == ["odd"]
    assert client.post(f"/runs/{run_id}/cancel").json()["status"] == "CANCELLING"


def test_a_run_whose_snapshot_is_damaged_is_read_from_its_log(stand: Stand, client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))

    async def damage(given: Services) -> None:
        stored = await given.snapshots.read(run_id)
        assert stored is not None
        await given.snapshots.write(run_id, b"oh", position=stored.position)

    stand.call(damage)
    for path in (f"/runs/{run_id}", f"/runs/{run_id}/tasks", f"/runs/{run_id}?wait_sec=0.01"):
        answer = client.get(path)  # also before the gateway has repaired the snapshot
        assert (answer.status_code, answer.json()["status"]) == (200, "PENDING")
    assert client.post(f"/runs/{run_id}/cancel").json()["status"] == "CANCELLING"
    assert client.get(f"/runs/{run_id}").json()["status"] == "CANCELLED"


# --- Many at once ----------------------------------------------------------------------------------------------------


def test_cancel_by_filter(client: httpx.Client) -> None:
    tag, flow = unique("no-worker"), unique("flow")
    mine = {submit(client, flow, tag=tag) for _ in range(5)}
    other = submit(client, "hello", tag=tag)
    listed(client, 6, tag=tag)
    results = client.post("/runs/cancel", json={"flow": flow, "reason": "all of them"}).json()["results"]
    assert {result["run_id"] for result in results} == mine
    assert {result["status"] for result in results} == {"CANCELLING"}
    for run_id in mine:
        assert ended(client, run_id)["cancel_reason"] == "all of them"
    assert client.get(f"/runs/{other}").json()["status"] == "PENDING"


def test_cancel_by_ids_has_a_result_for_each(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    body = {"run_ids": [run_id, UNKNOWN, "a.b"]}
    first, second, third = client.post("/runs/cancel", json=body).json()["results"]
    assert first == {"run_id": run_id, "status": "CANCELLING"}
    for missing in (second, third):
        assert (missing["status"], missing["error"]["err_id"]) == (None, "ERR-PYOCO-0005")


@pytest.mark.parametrize("body", [{}, {"status": "COMPLETED"}, {"run_ids": "x"}, {"run_ids": ["x"] * 1_001}])
def test_cancelling_everything_by_mistake_is_refused(client: httpx.Client, body: Any) -> None:
    check_error(client.post("/runs/cancel", json=body), 422, "ERR-PYOCO-0002")


# --- Resume and archive ----------------------------------------------------------------------------------------------


def test_a_wait_is_resumed_with_a_value(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    [wait] = waiting(client, run_id)["waiting"]
    assert (wait["task"], wait["wait_key"], wait["prompt"]) == ("ask", "approval", {"question": "?"})
    answer = client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json={"input": {"yes": True}})
    assert answer.status_code == 200
    snapshot = ended(client, run_id)
    assert snapshot["status"] == "COMPLETED"
    assert snapshot["task_records"]["take"]["output"] == {"yes": True}


@pytest.mark.spec("000 §3.14", "001 §4.10")
@pytest.mark.parametrize("name", ["resumeKey", "resume_key"])
def test_a_wait_is_resumed_by_its_key(client: httpx.Client, name: str) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    answer = client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 3, name: "approval"})
    assert answer.status_code == 200, answer.text
    assert ended(client, run_id)["task_records"]["take"]["output"] == 3


def test_a_resume_through_executions_wakes_the_run(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    assert client.post(f"/executions/{run_id}/nodes/ask/resume", json={"input": 7}).status_code == 202
    assert ended(client, run_id)["task_records"]["take"]["output"] == 7


def test_a_resume_under_a_key_is_taken_once(client: httpx.Client) -> None:
    run_id, headers = submit(client, "ask"), {"Idempotency-Key": unique("resume")}
    waiting(client, run_id)
    for _ in range(2):
        answer = client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 1}, headers=headers)
        assert answer.status_code == 200
    other = client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 2}, headers=headers)
    check_error(other, 409, "ERR-PYOCO-0105")
    assert ended(client, run_id)["task_records"]["take"]["output"] == 1


@pytest.mark.parametrize("body", [{"by": "bob"}, {"input": 1, "resumekey": "x"}])
def test_an_unknown_field_of_a_resume_is_refused_and_the_wait_continues(
    client: httpx.Client, body: dict[str, Any]
) -> None:
    run_id = submit(client, "ask")
    [wait] = waiting(client, run_id)["waiting"]
    answer = client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json=body)
    check_error(answer, 422, "ERR-PYOCO-0002")
    assert [*body][-1] in answer.text
    assert waiting(client, run_id)["waiting"] == [wait]


def test_only_a_waiting_node_with_the_right_key_is_resumed(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    resume = f"/runs/{run_id}/nodes/ask/resume"
    for path, name in [
        (resume, "resumeKey"),
        (resume, "resume_key"),
        (f"/executions/{run_id}/nodes/ask/resume", "resumeKey"),
    ]:
        error = check_error(client.post(path, json={name: "other", "input": 1}), 409, "ERR-PYOCO-0103")
        assert (error["details"]["code"], error["details"]["reason"]) == ("COMMAND_REJECTED", "RESUME_KEY_MISMATCH")
    check_error(client.post(resume, json={"resumeKey": "approval", "resume_key": "other"}), 422, "ERR-PYOCO-0002")
    check_error(client.post(f"/runs/{run_id}/nodes/none/resume", json={}), 404, "ERR-PYOCO-0104")
    check_error(client.post(resume, json={"resumeKey": 5}), 422, "ERR-PYOCO-0002")
    assert client.get(f"/runs/{run_id}").json()["waiting"]
    client.post(f"/runs/{run_id}/cancel")
    check_error(client.post(resume, json={}), 409, "ERR-PYOCO-0103")


def test_an_ended_run_is_archived(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    check_error(client.post(f"/runs/{run_id}/archive"), 409, "ERR-PYOCO-0103")
    client.post(f"/runs/{run_id}/cancel")
    answer = client.post(f"/runs/{run_id}/archive")
    assert (answer.status_code, answer.json()["archived_at"] is not None) == (200, True)
    assert client.post(f"/runs/{run_id}/archive").status_code == 200


# --- Correlation ids -------------------------------------------------------------------------------------------------


def test_a_correlation_id_is_kept_and_sent_back(client: httpx.Client) -> None:
    submitted = client.post("/runs", json={"flow_name": "ask"}, headers={"X-Correlation-Id": "part-0"})
    run_id = submitted.json()["run_id"]
    waiting(client, run_id)
    asked = client.post(
        f"/runs/{run_id}/nodes/ask/resume", json={"resume_key": "approval"}, headers={"X-Correlation-Id": "part-1"}
    )
    assert asked.headers["X-Correlation-Id"] == "part-1"
    client.post(f"/runs/{run_id}/cancel", headers={"X-Correlation-Id": "part-2"})
    ended(client, run_id)
    client.post(f"/runs/{run_id}/archive", headers={"X-Correlation-Id": "part-3"})
    events = client.get(f"/runs/{run_id}/events").json()["events"]
    assert events[0]["correlationId"] == "part-0"
    parts = {event["type"]: event.get("correlationId") for event in events}
    assert parts["NODE_RESUMED"] == "part-1"
    assert parts.get("EXECUTION_CANCEL_REQUESTED", "part-2") == "part-2"
    assert parts["EXECUTION_ARCHIVED"] == "part-3"


def test_a_correlation_id_is_sent_back_with_errors_too(client: httpx.Client) -> None:
    answer = client.get(f"/runs/{UNKNOWN}", headers={"X-Correlation-Id": "part-9"})
    assert (answer.status_code, answer.headers["X-Correlation-Id"]) == (404, "part-9")
    refused = client.post(f"/runs/{UNKNOWN}/cancel", headers={"X-Correlation-Id": "x" * 201})
    check_error(refused, 422, "ERR-PYOCO-0002")
    assert "X-Correlation-Id" not in refused.headers
