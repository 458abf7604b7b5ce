"""Reads of runs: REQ-0004, REQ-0005, REQ-0006."""

import json
from typing import Any

import httpx
import pytest

from pyoco_server.core import decode_event, fold, state_to_dict
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, ended, listed, submit, unique, waiting

UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.mark.spec("004 REQ-0004", "004 §付録D GET /runs/{run_id}", "004 §付録C run", "004 §付録C task")
def test_the_newest_snapshot_is_shown(client: httpx.Client) -> None:
    run_id = submit(client, params={"name": "Ada"})
    snapshot = ended(client, run_id)
    assert snapshot["status"] == "COMPLETED"
    assert snapshot["tasks"] == {"greet": "SUCCEEDED", "end": "SUCCEEDED"}
    plain = client.get(f"/runs/{run_id}").json()
    for field in ("run_id", "flow_name", "status", "params", "tasks", "heartbeat_at", "updated_at"):
        assert field in plain
    assert plain["worker_alive"] is True
    assert plain["worker_tags"] == ["default"]
    assert isinstance(plain["worker_heartbeat_at"], float)


@pytest.mark.spec("004 REQ-0004", "004 §付録D GET /runs/{run_id}")
@pytest.mark.parametrize("include", [["records"], ["full"], ["all"], ["records", "full"]])
def test_task_records_are_shown_to_those_who_ask(client: httpx.Client, include: list[str]) -> None:
    run_id = submit(client, params={"name": "Ada"})
    ended(client, run_id)
    assert "task_records" not in client.get(f"/runs/{run_id}").json()
    records = client.get(f"/runs/{run_id}", params={"include": include}).json()["task_records"]
    assert [record["output"] for record in records.values()] == ["hello Ada", 9]


@pytest.mark.spec("004 REQ-0005", "004 §付録D GET /runs/{run_id}/tasks")
def test_the_tasks_of_a_run_and_their_records(client: httpx.Client) -> None:
    run_id = submit(client)
    ended(client, run_id)
    tasks = client.get(f"/runs/{run_id}/tasks").json()
    assert (tasks["run_id"], tasks["flow_name"], tasks["status"]) == (run_id, "hello", "COMPLETED")
    assert tasks["tasks"] == {"greet": "SUCCEEDED", "end": "SUCCEEDED"}
    assert len(tasks["task_records"]) == 2
    assert tasks["task_records_truncated"] is False


@pytest.mark.spec("004 REQ-0004", "004 REQ-0005", "004 REQ-0019", "004 ERR-PYOCO-0005", "004 MSG-PYOCO-0005")
@pytest.mark.parametrize("part", ["", "/tasks", "/watch", "/events", "/graph", "/state", "/nodes/greet/output"])
@pytest.mark.parametrize("run_id", [UNKNOWN, "no.such", "x" * 200, "%00", "%ff", "*", "あ"])
def test_an_unknown_run_is_not_found(client: httpx.Client, part: str, run_id: str) -> None:
    error = check_error(client.get(f"/runs/{run_id}{part}"), 404, "ERR-PYOCO-0005")
    assert error["message"] == "run not found"
    assert client.get(f"/runs/{run_id}{part}").json()["detail"].startswith("run not found: '")


def test_an_unknown_include_is_refused(client: httpx.Client) -> None:
    run_id = submit(client)
    check_error(client.get(f"/runs/{run_id}", params={"include": "everything"}), 422, "ERR-PYOCO-0002")


def test_a_snapshot_of_another_program_is_shown(stand: Stand, client: httpx.Client) -> None:
    async def write(given: Services) -> None:
        body = b'{"run_id":"foreign-1","flow_name":"f","status":"RUNNING","updated_at":1}'
        await given.snapshots.write("foreign-1", body, position=0)

    stand.call(write)
    assert client.get("/runs/foreign-1").json()["status"] == "RUNNING"
    assert client.get("/runs/foreign-1/tasks").json()["task_records"] == {}


# --- Lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
def test_the_list_is_light_and_newest_first(client: httpx.Client) -> None:
    tag = unique("no-worker")
    ids = [submit(client, tag=tag, params={"n": n}) for n in range(5)]
    found = listed(client, 5, tag=tag)
    assert [run["run_id"] for run in found] == ids[::-1]
    for run in found:
        assert {"run_id", "status", "updated_at"} <= run.keys()
        assert "params" not in run
        assert "task_records" not in run
    assert len(client.get("/runs", params={"tag": tag, "limit": 2}).json()) == 2


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
def test_the_last_change_comes_first_without_an_order(client: httpx.Client) -> None:
    tag = unique("no-worker")
    ids = [submit(client, tag=tag) for _ in range(4)]
    client.post(f"/runs/{ids[1]}/cancel")
    listed(client, 1, tag=tag, status="CANCELLED")
    changed = [ids[1], ids[3], ids[2], ids[0]]
    assert [run["run_id"] for run in listed(client, 4, tag=tag)] == changed
    assert [run["run_id"] for run in listed(client, 4, tag=tag, include="full")] == changed
    assert [run["run_id"] for run in listed(client, 4, tag=tag, order="newest")] == ids[::-1]
    assert [run["run_id"] for run in listed(client, 4, tag=tag, order="oldest")] == ids
    query: dict[str, Any] = {"tag": tag, "limit": 2, "updated_after": 0}
    first = client.get("/runs", params=query).json()
    second = client.get("/runs", params={**query, "cursor": first["next_cursor"]}).json()
    assert [run["run_id"] for run in first["items"]] == [ids[3], ids[2]]
    assert [run["run_id"] for run in second["items"]] == [ids[1], ids[0]]


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
@pytest.mark.parametrize("include", ["full", "all"])
def test_whole_snapshots_are_listed_with_include_full(client: httpx.Client, include: str) -> None:
    tag = unique("no-worker")
    submit(client, tag=tag, params={"n": 1})
    [run] = listed(client, 1, tag=tag, include=include)
    assert run["params"] == {"n": 1}
    assert run["task_records"] == {}


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
def test_filters(client: httpx.Client) -> None:
    flow = unique("only")
    kept = submit(client, flow, tag=unique("no-worker"))
    [found] = listed(client, 1, flow=flow, status="PENDING", tag=listed(client, 1, flow=flow)[0]["tag"])
    assert found["run_id"] == kept
    for other in ({"status": "FAILED"}, {"tag": "else"}, {"workflow_yaml_sha256": "0" * 64}):
        assert client.get("/runs", params={"flow": flow, **other}).json() == []


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
def test_a_walk_sees_every_run_once_while_runs_are_added(client: httpx.Client) -> None:
    tag = unique("no-worker")
    ids = [submit(client, tag=tag) for _ in range(7)]
    listed(client, 7, tag=tag)
    seen: list[str] = []
    query: dict[str, Any] = {"tag": tag, "limit": 3, "updated_after": 0}
    while True:
        page = client.get("/runs", params=query).json()
        seen += [run["run_id"] for run in page["items"]]
        if page["next_cursor"] is None:
            break
        submit(client, tag=tag)
        query = {"tag": tag, "limit": 3, "cursor": page["next_cursor"]}
    assert seen == ids[::-1]


@pytest.mark.spec("004 REQ-0006", "004 §付録D GET /runs")
def test_only_what_changed_since(client: httpx.Client) -> None:
    tag = unique("no-worker")
    submit(client, tag=tag)
    [first] = listed(client, 1, tag=tag)
    later = submit(client, tag=tag)
    listed(client, 2, tag=tag)
    page = client.get("/runs", params={"tag": tag, "updated_after": first["updated_at"]}).json()
    assert [run["run_id"] for run in page["items"]] == [later]
    assert page["next_cursor"] is None


def test_only_what_was_submitted_since(client: httpx.Client) -> None:
    tag = unique("no-worker")
    ids = [submit(client, tag=tag) for _ in range(5)]
    oldest, *_ = listed(client, 5, tag=tag, order="oldest")
    query: dict[str, Any] = {"tag": tag, "submitted_after": oldest["submitted_at"]}
    assert [run["run_id"] for run in client.get("/runs", params=query).json()] == ids[:0:-1]
    assert [run["run_id"] for run in client.get("/runs", params={**query, "order": "oldest"}).json()] == ids[1:]
    client.post(f"/runs/{ids[0]}/cancel")
    client.post(f"/runs/{ids[1]}/cancel")
    listed(client, 2, tag=tag, status="CANCELLED")
    assert [run["run_id"] for run in client.get("/runs", params={**query, "status": "CANCELLED"}).json()] == [ids[1]]


def test_a_walk_ends_with_what_was_submitted_since(client: httpx.Client) -> None:
    tag = unique("no-worker")
    ids = [submit(client, tag=tag) for _ in range(6)]
    oldest, *_ = listed(client, 6, tag=tag, order="oldest")
    query: dict[str, Any] = {"tag": tag, "submitted_after": oldest["submitted_at"], "limit": 2}
    first = client.get("/runs", params={**query, "updated_after": 0}).json()
    second = client.get("/runs", params={**query, "cursor": first["next_cursor"]}).json()
    third = client.get("/runs", params={**query, "cursor": second["next_cursor"]}).json()
    pages = [[run["run_id"] for run in page["items"]] for page in (first, second, third)]
    assert pages == [[ids[5], ids[4]], [ids[3], ids[2]], [ids[1]]]
    assert third["next_cursor"] is None


BAD_QUERIES = [
    {"status": "DONE"},
    {"held": "false"},
    {"held": "perhaps"},
    {"limit": 0},
    {"limit": 201},
    {"limit": "x"},
    {"updated_after": "yesterday"},
    {"updated_after": "nan"},
    {"updated_after": "inf"},
    {"submitted_after": "yesterday"},
    {"submitted_after": "nan"},
    {"submitted_after": "-inf"},
    {"submitted_after": ""},
    {"cursor": ""},
    {"cursor": "!!!"},
    {"cursor": "あ"},
    {"cursor": "AAAA"},
    {"cursor": "x" * 10_000},
    {"cursor": "k8t_-AAAAAAAAKFhwA"},  # a time that is no number
    {"include": "most"},
]


@pytest.mark.spec("004 REQ-0006", "004 ERR-PYOCO-0017", "004 MSG-PYOCO-0017")
@pytest.mark.parametrize("query", BAD_QUERIES, ids=str)
def test_a_query_that_is_not_valid(client: httpx.Client, query: dict[str, Any]) -> None:
    error = check_error(client.get("/runs", params=query), 422, "ERR-PYOCO-0017")
    assert error["message"] == "the query for the list is not valid"


# --- The log ---------------------------------------------------------------------------------------------------------


def test_the_log_in_pages(client: httpx.Client) -> None:
    run_id = submit(client)
    ended(client, run_id)
    whole = client.get(f"/runs/{run_id}/events").json()
    types = [event["type"] for event in whole["events"]]
    assert (types[0], types[-1]) == ("EXECUTION_CREATED", "EXECUTION_COMPLETED")
    assert whole["next_after"] is None
    walked: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = client.get(f"/runs/{run_id}/events", params={"after": after, "limit": 4}).json()
        walked += page["events"]
        after = page["next_after"]
    assert walked == whole["events"]
    assert [event["version"] for event in walked] == [*range(1, len(walked) + 1)]
    beyond = client.get(f"/runs/{run_id}/events", params={"after": 2**53}).json()
    assert (beyond["events"], beyond["version"], beyond["next_after"]) == ([], len(walked), None)


@pytest.mark.spec("000 §1.1")
def test_every_event_that_is_shown_can_be_read(client: httpx.Client) -> None:
    run_id = submit(client)
    version = ended(client, run_id)["version"]
    for path in (f"/runs/{run_id}/events", f"/executions/{run_id}/events"):
        events = [decode_event(json.dumps(event)) for event in client.get(path).json()["events"]]
        assert state_to_dict(fold(events)) == client.get(f"/runs/{run_id}/state").json()
        assert len(events) == version


def test_the_state_at_every_version(client: httpx.Client) -> None:
    run_id = submit(client)
    version = ended(client, run_id)["version"]
    assert client.get(f"/runs/{run_id}/events").json()["version"] == version
    states = [client.get(f"/runs/{run_id}/state", params={"at": at}).json() for at in range(version + 1)]
    assert [state["version"] for state in states] == [*range(version + 1)]
    assert states[-1] == client.get(f"/runs/{run_id}/state").json()
    assert states[-1] == client.get(f"/executions/{run_id}").json()
    for at in (version + 1, -1, "x", 2**80):
        check_error(client.get(f"/runs/{run_id}/state", params={"at": at}), 422, "ERR-PYOCO-0002")


def test_the_graph(client: httpx.Client) -> None:
    run_id = submit(client, "ask")
    waiting(client, run_id)
    graph = client.get(f"/runs/{run_id}/graph").json()
    assert {"ask", "take"} <= {node["nodeId"] for node in graph["nodes"]}
    assert client.get(f"/executions/{run_id}/graph").json() == graph
    client.post(f"/runs/{run_id}/cancel")
