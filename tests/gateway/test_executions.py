"""``/executions`` and ``/graphs``: the twelve commands over HTTP, and the registry of graphs."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, check_error, settings_for, unique

GRAPH: dict[str, Any] = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}
UNKNOWN = "00000000-0000-0000-0000-000000000000"


def a_graph(client: httpx.Client) -> str:
    graph_id = unique("graph")
    assert client.put(f"/graphs/{graph_id}", json=GRAPH).status_code == 201
    return graph_id


def created(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/executions", json={"graphId": a_graph(client), **fields})
    assert answer.status_code == 202, answer.text
    execution_id: str = answer.json()["executionId"]
    return execution_id


def give(client: httpx.Client, execution_id: str, verb: str, **fields: Any) -> list[str]:
    answer = client.post(f"/executions/{execution_id}/{verb}", json=fields)
    assert answer.status_code == 202, answer.text
    return [event["type"] for event in answer.json()["events"]]


def test_a_worker_of_any_language_can_drive_an_execution(client: httpx.Client) -> None:
    mine = created(client, input={"n": 1})
    assert give(client, mine, "start")[0] == "EXECUTION_STARTED"
    assert client.post(f"/executions/{mine}/nodes/work/ready").status_code == 200  # the graph had it ready already
    assert give(client, mine, "nodes/work/start", workerId="ruby") == ["NODE_STARTED"]
    assert give(client, mine, "nodes/work/progress", progress=50) == ["NODE_PROGRESS_REPORTED"]
    assert give(client, mine, "nodes/work/wait", waitKey="k") == ["NODE_WAITING"]
    assert give(client, mine, "nodes/work/request-resume", resumeKey="k") == ["NODE_RESUME_REQUESTED"]
    assert give(client, mine, "nodes/work/resume", resumeKey="k")[-1] == "NODE_RESUMED"
    assert give(client, mine, "nodes/work/succeed", output={"x": 1})[0] == "NODE_SUCCEEDED"
    state = client.get(f"/executions/{mine}").json()
    assert (state["status"], state["input"]["n"]) == ("COMPLETED", 1)
    assert give(client, mine, "archive") == ["EXECUTION_ARCHIVED"]
    assert client.get(f"/runs/{mine}").json()["status"] == "COMPLETED"
    events = client.get(f"/executions/{mine}/events").json()
    assert events["version"] == client.get(f"/executions/{mine}").json()["version"]
    assert client.get(f"/executions/{mine}", params={"at": 1}).json()["version"] == 1


def test_fail_and_cancel(client: httpx.Client) -> None:
    failing = created(client)
    give(client, failing, "start")
    give(client, failing, "nodes/work/start")
    error = {"code": "E", "message": "no"}
    assert "EXECUTION_FAILED" in give(client, failing, "nodes/work/fail", error=error, retryable=False)
    other = created(client)
    give(client, other, "start")
    events = give(client, other, "cancel", reason="stop")
    assert events[0] == "EXECUTION_CANCEL_REQUESTED"
    assert client.get(f"/runs/{other}").json()["status"] == "CANCELLED"


def test_a_repeat_leads_to_nothing_more(client: httpx.Client) -> None:
    mine = created(client)
    give(client, mine, "start")
    again = client.post(f"/executions/{mine}/start")
    assert (again.status_code, again.json()["events"]) == (200, [])
    assert again.json()["version"] == client.get(f"/executions/{mine}").json()["version"]


def test_a_guard_that_refuses_says_why(client: httpx.Client) -> None:
    mine = created(client)
    for path, reason in (("archive", "EXECUTION_NOT_TERMINAL"), ("nodes/work/succeed", "NODE_STATUS")):
        error = check_error(client.post(f"/executions/{mine}/{path}"), 409, "ERR-PYOCO-0103")
        assert (error["details"]["code"], error["details"]["reason"]) == ("COMMAND_REJECTED", reason)
    give(client, mine, "cancel")
    check_error(client.post(f"/executions/{mine}/nodes/work/start"), 409, "ERR-PYOCO-0103")


@pytest.mark.parametrize("path", ["", "/events", "/graph"])
def test_reads_of_an_unknown_execution_are_not_found(client: httpx.Client, path: str) -> None:
    for execution_id in (UNKNOWN, "a.b"):
        check_error(client.get(f"/executions/{execution_id}{path}"), 404, "ERR-PYOCO-0005")


def test_an_unknown_execution_node_or_command_is_not_found(client: httpx.Client) -> None:
    check_error(client.post(f"/executions/{UNKNOWN}/start"), 404, "ERR-PYOCO-0005")
    check_error(client.post("/executions/a.b/start"), 404, "ERR-PYOCO-0005")
    mine = created(client)
    check_error(client.post(f"/executions/{mine}/nodes/none/start"), 404, "ERR-PYOCO-0104")
    check_error(client.post(f"/executions/{mine}/explode"), 404, "ERR-PYOCO-0104")
    check_error(client.post(f"/executions/{mine}/nodes/work/explode"), 404, "ERR-PYOCO-0104")


BAD: list[tuple[str, Any]] = [
    ("nodes/work/start", {"attempt": 0}),
    ("nodes/work/start", {"attempt": "1"}),
    ("nodes/work/progress", {"progress": 101}),
    ("nodes/work/succeed", {"output": 5}),
    ("nodes/work/fail", {"retryable": "yes"}),
    ("nodes/work/fail", {"error": {"code": 5}}),
    ("cancel", {"requestedBy": {"id": "x"}}),
    ("start", []),
    ("start", "x"),
]


@pytest.mark.parametrize(("path", "body"), BAD)
def test_a_command_that_is_not_valid(client: httpx.Client, path: str, body: Any) -> None:
    mine = created(client)
    before = client.get(f"/executions/{mine}").json()
    check_error(client.post(f"/executions/{mine}/{path}", json=body), 422, "ERR-PYOCO-0002")
    assert client.get(f"/executions/{mine}").json() == before


@pytest.mark.parametrize(
    "body",
    [{}, {"graphId": 5}, {"graphId": "no-such"}, {"graphId": "a.*"}, {"graphId": ""}, {"graphId": "g", "input": []}],
)
def test_a_creation_that_is_not_valid(client: httpx.Client, body: Any) -> None:
    check_error(client.post("/executions", json=body), 422, "ERR-PYOCO-0002")


def test_an_execution_is_created_once(client: httpx.Client) -> None:
    graph_id, mine = a_graph(client), unique("mine")
    body = {"graphId": graph_id, "executionId": mine}
    assert client.post("/executions", json=body).status_code == 202
    check_error(client.post("/executions", json=body), 409, "ERR-PYOCO-0103")
    check_error(client.post("/executions", json={**body, "executionId": "a.b"}), 422, "ERR-PYOCO-0002")
    check_error(client.post("/executions", json={"graphId": graph_id, "platform": 1}), 422, "ERR-PYOCO-0002")


@pytest.mark.spec("000 §3.1")
@pytest.mark.parametrize("given", [{}, {"input": {"a": 1}}, {"input": {}}, {"input": {"run": 5}}], ids=str)
def test_the_input_is_kept_as_it_was_given(client: httpx.Client, given: dict[str, Any]) -> None:
    graph_id = a_graph(client)
    answer = client.post("/executions", json={"graphId": graph_id, **given}).json()
    mine = answer["executionId"]
    payload = answer["events"][0]["payload"]
    assert {name: payload[name] for name in payload.keys() & {"input"}} == given
    state = client.get(f"/executions/{mine}").json()
    assert state.get("input") == given.get("input")
    shown = client.get(f"/runs/{mine}").json()
    assert (shown["flow_name"], shown["tag"], shown["tags"]) == (graph_id, "external", ["external"])


def test_a_graph_has_one_name(client: httpx.Client) -> None:
    graph_id = a_graph(client)
    graph = client.get(f"/graphs/{graph_id}").json()
    assert client.put(f"/graphs/{graph_id}", json=graph).status_code == 200
    check_error(client.put(f"/graphs/{unique('other')}", json=graph), 422, "ERR-PYOCO-0002")


def test_keys_are_honoured(client: httpx.Client) -> None:
    graph_id, headers = a_graph(client), {"Idempotency-Key": unique("key")}
    first = client.post("/executions", json={"graphId": graph_id}, headers=headers)
    again = client.post("/executions", json={"graphId": graph_id}, headers=headers)
    mine = first.json()["executionId"]
    assert (first.status_code, again.status_code, again.json()["events"]) == (202, 200, [])
    assert again.json()["executionId"] == mine
    other = client.post("/executions", json={"graphId": a_graph(client)}, headers=headers)
    check_error(other, 409, "ERR-PYOCO-0105")
    give(client, mine, "start")
    give(client, mine, "nodes/work/start")
    headers = {"Idempotency-Key": unique("key")}
    progress = f"/executions/{mine}/nodes/work/progress"
    assert client.post(progress, json={"progress": 10}, headers=headers).status_code == 202
    assert client.post(progress, json={"progress": 10}, headers=headers).status_code == 200
    check_error(client.post(progress, json={"progress": 20}, headers=headers), 409, "ERR-PYOCO-0105")
    assert client.post(progress, json={"progress": 10}).status_code == 202


def test_a_correlation_id_is_kept_in_every_event(client: httpx.Client) -> None:
    headers = {"X-Correlation-Id": unique("part")}
    answer = client.post("/executions", json={"graphId": a_graph(client)}, headers=headers)
    mine = answer.json()["executionId"]
    client.post(f"/executions/{mine}/start", headers=headers)
    client.post(f"/executions/{mine}/nodes/work/start", headers=headers)
    client.post(f"/executions/{mine}/nodes/work/succeed", headers=headers)
    events = client.get(f"/executions/{mine}/events").json()["events"]
    assert {event["correlationId"] for event in events} == {headers["X-Correlation-Id"]}


@pytest.mark.spec("001 §2")
@pytest.mark.parametrize("kind", ["system", "user", "scheduler", "external"])
def test_a_command_says_on_whose_behalf_it_is_given(client: httpx.Client, kind: str) -> None:
    actor = {"kind": kind, "id": "nightly"}
    answer = client.post("/executions", json={"graphId": a_graph(client), "actor": actor, "correlationId": "part-7"})
    created = answer.json()
    assert (created["events"][0]["actor"], created["events"][0]["correlationId"]) == (actor, "part-7")
    asked = client.post(f"/executions/{created['executionId']}/cancel", json={"actor": {"kind": kind}})
    assert asked.json()["events"][0]["actor"] == {"kind": kind}


def test_the_default_actor_of_a_command_is_a_user(client: httpx.Client) -> None:
    for said in ({}, {"actor": None}):
        answer = client.post("/executions", json={"graphId": a_graph(client), **said})
        assert answer.json()["events"][0]["actor"] == {"kind": "user"}


@pytest.mark.parametrize("actor", ["user", [], {}, {"kind": "martian"}, {"kind": "user", "name": "x"}, {"id": "x"}])
def test_an_actor_of_no_known_kind_is_refused(client: httpx.Client, actor: object) -> None:
    check_error(client.post("/executions", json={"graphId": a_graph(client), "actor": actor}), 422, "ERR-PYOCO-0002")


# --- Graphs ----------------------------------------------------------------------------------------------------------


def test_a_graph_is_registered_for_good(client: httpx.Client) -> None:
    graph_id = a_graph(client)
    assert client.put(f"/graphs/{graph_id}", json=GRAPH).status_code == 200
    found = client.get(f"/graphs/{graph_id}").json()
    assert (found["graphId"], len(found["nodes"])) == (graph_id, 3)
    other = {**GRAPH, "nodes": [*GRAPH["nodes"]], "title": "another"}
    check_error(client.put(f"/graphs/{graph_id}", json=other), 409, "ERR-PYOCO-0105")


@pytest.mark.parametrize("body", [{}, {"nodes": 5, "edges": []}, {"nodes": [], "edges": []}, [], "x"])
def test_a_graph_that_cannot_run_is_refused(client: httpx.Client, body: Any) -> None:
    graph_id = unique("bad")
    check_error(client.put(f"/graphs/{graph_id}", json=body), 422, "ERR-PYOCO-0002")
    check_error(client.get(f"/graphs/{graph_id}"), 404, "ERR-PYOCO-0104")


def test_a_graphs_id_must_be_one(client: httpx.Client) -> None:
    check_error(client.put("/graphs/a%20b", json=GRAPH), 422, "ERR-PYOCO-0002")
    check_error(client.get("/graphs/a%20b"), 404, "ERR-PYOCO-0104")
    check_error(client.get(f"/graphs/{'x' * 300}"), 404, "ERR-PYOCO-0104")


@pytest.mark.parametrize("name", [" ", "\u3000", "a\nb", "", "x" * 501], ids=repr)
def test_a_node_needs_a_name_that_can_be_seen(client: httpx.Client, name: str) -> None:
    nodes = [*GRAPH["nodes"][:1], {"nodeId": name, "nodeType": "Task"}, *GRAPH["nodes"][2:]]
    graph = {"nodes": nodes, "edges": [{"from": "start", "to": name}, {"from": name, "to": "end"}]}
    error = check_error(client.put(f"/graphs/{unique('graph')}", json=graph), 422, "ERR-PYOCO-0002")
    assert error["action"]


def test_a_run_without_a_graph_is_started_by_its_worker_only(client: httpx.Client) -> None:
    """Else it would be COMPLETED with none of its tasks called."""
    submitted = client.post("/runs", json={"flow_name": "add", "tag": unique("no-worker")})
    run_id = submitted.json()["run_id"]
    refused = client.post(f"/executions/{run_id}/start", headers={"Idempotency-Key": unique("key")})
    details = check_error(refused, 409, "ERR-PYOCO-0103")["details"]
    assert (details["reason"], details["executionId"]) == ("GRAPH_NOT_FOUND", run_id)
    assert client.get(f"/runs/{run_id}").json()["status"] == "PENDING"
    assert len(client.get(f"/executions/{run_id}/events").json()["events"]) == 1
    assert client.post(f"/runs/{run_id}/cancel").status_code == 200
    check_error(client.post(f"/executions/{run_id}/start"), 409, "ERR-PYOCO-0103")


def test_an_execution_has_no_more_events_than_it_may_but_can_be_ended(nats: NatsServer, tmp_path: Path) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_RUN_MAX_EVENTS="12")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        mine = created(client)
        give(client, mine, "start")
        give(client, mine, "nodes/work/start")
        answers = [client.post(f"/executions/{mine}/nodes/work/progress", json={"progress": n}) for n in range(20)]
        assert {answer.status_code for answer in answers} == {202, 422}
        check_error(answers[-1], 422, "ERR-PYOCO-0113")
        assert client.get(f"/executions/{mine}").json()["version"] == 12
        check_error(client.post(f"/executions/{mine}/nodes/work/wait", json={"waitKey": "k"}), 422, "ERR-PYOCO-0113")
        assert "EXECUTION_COMPLETED" in give(client, mine, "nodes/work/succeed")
