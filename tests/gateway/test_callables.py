"""What a client can make workers call through POST /runs/yaml."""

from pathlib import Path

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, check_error, ended, settings_for, unique
from tests.gateway.test_yaml import FLOW, upload


def naming(path: str) -> bytes:
    return FLOW.replace(b"tests.gateway.yaml_tasks:second", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "subprocess:getoutput",
        "os:system",
        "builtins:exec",
        "_ctypes:dlopen",
        "pyoco_server.bootstrap:open_platform",
        "tests.gateway.yaml_tasks:__class__",
        "tests.gateway._private:first",
    ],
)
def test_what_no_worker_would_call_is_refused_at_once(client: httpx.Client, path: str) -> None:
    tag = unique("refused")
    answer = upload(client, naming(path), tag=tag)
    error = check_error(answer, 422, "ERR-PYOCO-0110")
    assert error["message"] == "the function that 'callable' names may not be called"
    detail = answer.json()["detail"]
    assert detail.startswith("line 11, column 15: task 'second': ")
    assert f"let the operator allow it with PYOCO_CALLABLES={path}" in detail
    assert client.get("/runs", params={"tag": tag}).json() == []


@pytest.mark.parametrize("path", ["yaml:safe_load", "tests.gateway.yaml_tasks:Any", "httpx:get"])
def test_what_only_the_worker_can_judge_fails_the_run(client: httpx.Client, path: str) -> None:
    answer = upload(client, naming(path))
    assert answer.status_code == 200, answer.text
    snapshot = ended(client, answer.json()["run_id"])
    assert snapshot["status"] == "FAILED"
    assert snapshot["task_records"] == {}
    assert f"'{path}' may not be called" in snapshot["error"]
    assert f"PYOCO_CALLABLES={path}" in snapshot["error"]
    events = client.get(f"/runs/{answer.json()['run_id']}/events").json()["events"]
    assert "CALLABLE_NOT_ALLOWED" in str(events[-1])


def test_a_flow_cannot_ask_for_variables_of_the_platform_or_secrets(client: httpx.Client) -> None:
    for name in ("PYOCO_AUTH_PEPPER", "GITHUB_TOKEN"):
        answer = upload(client, FLOW + f"runtime: {{ expose_env: [{name}] }}\n".encode())
        check_error(answer, 422, "ERR-PYOCO-0112")
        assert f"runtime.expose_env: '{name}' is never visible" in answer.json()["detail"]


def test_a_flow_that_lists_what_the_worker_does_not_show_fails(client: httpx.Client) -> None:
    run_id = upload(client, FLOW + b"runtime: { expose_env: [HOME] }\n").json()["run_id"]
    snapshot = ended(client, run_id)
    assert (snapshot["status"], snapshot["task_records"]) == ("FAILED", {})
    assert "does not show the variable 'HOME'" in snapshot["error"]
    assert "PYOCO_EXPOSE_ENV=HOME" in snapshot["error"]
    assert "ENVIRONMENT_NOT_EXPOSED" in str(client.get(f"/runs/{run_id}/events").json()["events"][-1])


@pytest.mark.parametrize(
    "graph",
    [
        "repeat(count=1000000000){ first }",
        "repeat(count=100000){ first }",
        "repeat(count=400){ repeat(count=400){ first } }",
        "foreach(over={{ n }}){ repeat(count=100001){ first } }",
        "until(cond={{ n }}, max_iter=100001){ first }",
        "( repeat(count=60000){ first } & repeat(count=60000){ second } )",
    ],
)
def test_a_flow_whose_text_shows_that_it_is_too_large_is_refused(client: httpx.Client, graph: str) -> None:
    tag = unique("large")
    answer = upload(client, FLOW.replace(b"first >> second", graph.encode()), tag=tag)
    check_error(answer, 422, "ERR-PYOCO-0113")
    assert "let the operator raise PYOCO_RUN_MAX_" in answer.json()["detail"]
    assert client.get("/runs", params={"tag": tag}).json() == []


def test_a_count_that_is_computed_fails_the_run(client: httpx.Client) -> None:
    content = FLOW.replace(b"first >> second", b"repeat(count={{ n }}){ first }").replace(b"n: 3", b"n: 1000000000")
    snapshot = ended(client, upload(client, content).json()["run_id"])
    assert snapshot["status"] == "FAILED"
    assert "has 1000000000 rounds, and a loop may have 100000" in snapshot["error"]


def test_the_route_can_be_closed(nats: NatsServer, tmp_path: Path) -> None:
    settings = settings_for(nats.url, tmp_path, PYOCO_WORKFLOW_YAML="off")
    with Stand(settings, workers=0) as stand, stand.client() as client:
        for answer in (upload(client), upload(client, b"garbage"), client.post("/runs/yaml")):
            check_error(answer, 403, "ERR-PYOCO-0111")
        assert client.post("/runs", json={"flow_name": "hello", "tag": unique("no-worker")}).status_code == 200
