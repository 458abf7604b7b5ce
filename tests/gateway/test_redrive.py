"""Redrives over HTTP: a failed run is repeated from where it failed, and its log stays as it is."""

import time
from typing import Any

import httpx
import pytest

from tests.gateway.stand import CALLED, check_error, ended, submit, unique, until, waiting

UNKNOWN = "00000000-0000-0000-0000-000000000000"


def failed_order(client: httpx.Client, **fields: Any) -> str:
    """Return a run in which everything before ``ship`` succeeded, and ``ship`` failed."""
    run_id = submit(client, "order", params={"customer": "acme"}, **fields)
    waiting(client, run_id)
    assert client.post(f"/runs/{run_id}/nodes/approve/resume", json={"input": {"by": "ann"}}).status_code == 200
    assert ended(client, run_id)["status"] == "FAILED"
    return run_id


def log_of(client: httpx.Client, run_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = client.get(f"/runs/{run_id}/events", params={"limit": 1000}).json()["events"]
    return events


def named(plan: dict[str, Any]) -> dict[str, list[str]]:
    return {part: [entry["node"] for entry in entries] for part, entries in plan.items()}


def until_listed(client: httpx.Client, run_ids: list[str]) -> None:
    """Wait until the list shows the ends of these runs, which workers wrote."""
    deadline = time.monotonic() + 20
    query: dict[str, str | int] = {"flow": "boom", "status": "FAILED", "limit": 200}
    while not set(run_ids) <= {run["run_id"] for run in client.get("/runs", params=query).json()}:
        assert time.monotonic() < deadline, "the list does not show the runs"
        time.sleep(0.01)


def called_in(run_id: str) -> list[str]:
    return [task for run, task in CALLED if run == run_id]


PLAN = {"keep": ["charge", "receipt", "approve"], "run": ["ship", "notify"], "drop": []}


def test_a_failed_run_is_redriven_from_what_failed(client: httpx.Client) -> None:
    old = failed_order(client)
    before = log_of(client, old)
    answer = client.post(f"/runs/{old}/redrive", json={"params": {"address": "Rome"}, "reason": "address added"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    new = body["run_id"]
    about = {"of": old, "root": old, "try": 2, "from": "failed", "reason": "address added"}
    assert (body["redrive"], named(body["plan"])) == (about, PLAN)
    assert all(entry["why"] for part in body["plan"].values() for entry in part)
    snapshot = ended(client, new)
    assert (snapshot["status"], snapshot["redrive"]) == ("COMPLETED", about)
    assert snapshot["params"] == {"customer": "acme", "address": "Rome"}
    assert called_in(new) == ["ship", "notify"]
    assert log_of(client, old) == before
    assert client.get(f"/runs/{old}").json()["redriven_as"] == [new]
    shown = {run["run_id"]: run for run in client.get("/runs", params={"flow": "order", "limit": 200}).json()}
    assert (shown[old]["redriven_as"], shown[new]["redrive"]["of"]) == ([new], old)
    output = client.get(f"/runs/{new}/nodes/receipt/output")  # stored beside the log, and copied
    assert (output.status_code, output.json()) == (200, "r" * 100_000)


def test_the_new_log_says_where_each_kept_node_comes_from(client: httpx.Client) -> None:
    old = failed_order(client)
    new = client.post(f"/runs/{old}/redrive", json={"params": {"address": "Rome"}}).json()["run_id"]
    ended(client, new)
    log = log_of(client, new)
    assert [event["type"] for event in log[:3]] == ["EXECUTION_CREATED", "EXECUTION_STARTED", "NODE_CREATED"]
    assert log[0]["payload"]["redrive"]["of"] == old
    kept = [event for event in log if event["payload"].get("nodeId") == "charge"][1:]
    assert [event["type"] for event in kept] == ["NODE_READY", "NODE_STARTED", "NODE_SUCCEEDED"]
    for event in kept:
        assert event["payload"]["copiedFrom"] == {"runId": old, "nodeId": "charge", "attempt": 1}
    approved = [event for event in log if event["payload"].get("nodeId") == "approve"]
    assert "NODE_WAITING" not in [event["type"] for event in approved]


def test_a_dry_run_plans_and_stores_nothing(client: httpx.Client) -> None:
    old = failed_order(client)
    answer = client.post(f"/runs/{old}/redrive", json={"dry_run": True})
    assert (answer.status_code, set(answer.json())) == (200, {"plan"})
    assert named(answer.json()["plan"]) == PLAN
    assert "redriven_as" not in client.get(f"/runs/{old}").json()


def test_a_wait_can_be_asked_again(client: httpx.Client) -> None:
    old = failed_order(client)
    answer = client.post(f"/runs/{old}/redrive", json={"params": {"address": "Rome"}, "ask_again": ["approve"]})
    assert named(answer.json()["plan"]) == {
        "keep": ["charge", "receipt"],
        "run": ["approve", "ship", "notify"],
        "drop": [],
    }
    new = answer.json()["run_id"]
    waiting(client, new)
    client.post(f"/runs/{new}/nodes/approve/resume", json={"input": True})
    assert ended(client, new)["status"] == "COMPLETED"
    assert called_in(new) == ["ship", "notify"]


@pytest.mark.parametrize(
    ("cut", "called"),
    [("start", ["charge", "receipt"]), (["receipt"], ["receipt"])],
)
def test_it_can_begin_earlier(client: httpx.Client, cut: Any, called: list[str]) -> None:
    old = failed_order(client)
    answer = client.post(f"/runs/{old}/redrive", json={"from": cut})
    assert answer.json()["redrive"]["from"] == cut
    new = answer.json()["run_id"]
    waiting(client, new)
    assert called_in(new) == called


def test_a_redrive_can_be_redriven(client: httpx.Client) -> None:
    first = failed_order(client)
    second = client.post(f"/runs/{first}/redrive").json()["run_id"]
    assert ended(client, second)["status"] == "FAILED"
    third = client.post(f"/runs/{second}/redrive", json={"params": {"address": "Rome"}}).json()
    assert (third["redrive"]["of"], third["redrive"]["root"], third["redrive"]["try"]) == (second, first, 3)
    assert ended(client, third["run_id"])["status"] == "COMPLETED"
    assert called_in(third["run_id"]) == ["ship", "notify"]


def test_completed_and_cancelled_runs_can_be_redriven(client: httpx.Client) -> None:
    completed = submit(client)
    ended(client, completed)
    again = client.post(f"/runs/{completed}/redrive", json={"from": ["end"]}).json()
    assert named(again["plan"]) == {"keep": ["greet"], "run": ["end"], "drop": []}
    assert ended(client, again["run_id"])["status"] == "COMPLETED"
    nothing = client.post(f"/runs/{completed}/redrive").json()
    assert (nothing["status"], named(nothing["plan"])["run"]) == ("COMPLETED", [])
    cancelled = submit(client, "order", params={"address": "Rome"})
    waiting(client, cancelled)
    client.post(f"/runs/{cancelled}/cancel")
    ended(client, cancelled)
    resumed = client.post(f"/runs/{cancelled}/redrive").json()
    assert named(resumed["plan"]) == {
        "keep": ["charge", "receipt"],
        "run": ["approve", "ship", "notify"],
        "drop": [],
    }
    waiting(client, resumed["run_id"])


def test_a_run_that_never_began_is_redriven_from_the_start(client: httpx.Client) -> None:
    run_id = submit(client, tag=unique("no-worker"))
    client.post(f"/runs/{run_id}/cancel")
    ended(client, run_id)
    again = client.post(f"/runs/{run_id}/redrive", json={"tag": "default"})
    assert ended(client, again.json()["run_id"])["status"] == "COMPLETED"


def test_the_same_key_gives_the_same_run(client: httpx.Client) -> None:
    old = failed_order(client)
    key = {"Idempotency-Key": unique("redrive")}
    first, second = (client.post(f"/runs/{old}/redrive", json={"reason": "x"}, headers=key) for _ in range(2))
    assert first.json()["run_id"] == second.json()["run_id"]
    assert first.json()["redrive"] == second.json()["redrive"]
    ended(client, first.json()["run_id"])
    assert client.get(f"/runs/{old}").json()["redriven_as"] == [first.json()["run_id"]]
    other = client.post(f"/runs/{old}/redrive", json={"from": "start"}, headers=key)
    check_error(other, 409, "ERR-PYOCO-0105")


def test_what_cannot_be_redriven_is_refused(client: httpx.Client) -> None:
    check_error(client.post(f"/runs/{UNKNOWN}/redrive"), 404, "ERR-PYOCO-0005")
    running = submit(client, "order")
    waiting(client, running)
    check_error(client.post(f"/runs/{running}/redrive"), 409, "ERR-PYOCO-0103")
    check_error(client.post(f"/runs/{running}/redrive", json={"dry_run": True}), 409, "ERR-PYOCO-0103")
    client.post(f"/runs/{running}/cancel")
    ended(client, running)
    bodies: list[dict[str, Any]] = [
        {"from": ["chrage"]},
        {"from": []},
        {"from": "charge"},
        {"from": 3},
        {"ask_again": ["charge"]},
        {"ask_again": ["nothing"]},
        {"params": [1]},
        {"tag": "a b"},
        {"unknown": 1},
    ]
    for body in bodies:
        answer = client.post(f"/runs/{running}/redrive", json=body)
        check_error(answer, 422, "ERR-PYOCO-0002")
    typo = client.post(f"/runs/{running}/redrive", json={"from": ["chrage"]}).json()
    assert "from: the run has no node or task 'chrage'; did you mean 'charge'?" in typo["detail"]
    assert "redriven_as" not in client.get(f"/runs/{running}").json()


def test_many_runs_are_redriven_once_each(client: httpx.Client) -> None:
    name = unique("customer")
    failed = [submit(client, "boom", params={"name": f"{name}-{number}"}) for number in range(5)]
    for run_id in failed:
        ended(client, run_id)
    until_listed(client, failed)
    others = {"flow": "boom", "error_code": "ValueError"}
    dry = client.post("/runs/redrive", json={"filter": others, "dry_run": True, "limit": 1000}).json()
    assert set(failed) <= {result["of"] for result in dry["results"]}
    assert all(result["run_id"] is None and named(result["plan"])["run"] == ["fails"] for result in dry["results"])
    none = client.post("/runs/redrive", json={"filter": {**others, "error_code": "KeyError"}}).json()
    assert none == {"results": [], "next_cursor": None}
    first = client.post("/runs/redrive", json={"filter": others, "limit": 3, "per_sec": 1000}).json()
    assert len(first["results"]) == 3
    assert first["next_cursor"]
    rest = client.post(
        "/runs/redrive",
        json={"filter": others, "limit": 1000, "per_sec": 1000, "cursor": first["next_cursor"]},
    ).json()
    assert rest["next_cursor"] is None
    results = first["results"] + rest["results"]
    assert set(failed) <= {result["of"] for result in results}
    for result in results:
        ended(client, result["run_id"])
    again = client.post("/runs/redrive", json={"filter": others, "limit": 1000, "per_sec": 1000}).json()
    assert not {result["of"] for result in again["results"]} & set(failed)
    for run_id in failed:
        assert len(client.get(f"/runs/{run_id}").json()["redriven_as"]) == 1


def test_a_filter_for_many_is_checked(client: httpx.Client) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"filter": {"status": "RUNNING"}},
        {"filter": {"flw": "x"}},
        {"filter": {}, "per_sec": 0},
        {"filter": {}, "limit": 0},
        {"filter": {}, "cursor": "nonsense"},
    ]
    for body in bodies:
        assert client.post("/runs/redrive", json=body).status_code == 422


def test_one_node_failure_names_its_code(client: httpx.Client) -> None:
    run_id = submit(client, "boom")
    assert until(client, run_id, lambda snapshot: snapshot["status"] == "FAILED")["error_code"] == "ValueError"
