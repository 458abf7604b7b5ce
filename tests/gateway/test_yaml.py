"""Runs with a flow.yaml of their own: REQ-0018."""

import hashlib
from typing import Any

import httpx
import pytest

from pyoco_server.app.runs.job import decode_job
from pyoco_server.gateway.services import Services
from tests.gateway.stand import Stand, check_error, ended, listed, unique

FLOW = b"""\
version: 1
flow:
  graph: |
    first >> second
  defaults:
    n: 3
tasks:
  first:
    callable: tests.gateway.yaml_tasks:first
  second:
    callable: tests.gateway.yaml_tasks:second
"""


def upload(client: httpx.Client, content: bytes = FLOW, **form: Any) -> httpx.Response:
    headers = form.pop("headers", {})
    fields = {"flow_name": "from-yaml", **form}
    return client.post("/runs/yaml", files={"workflow": ("flow.yaml", content)}, data=fields, headers=headers)


@pytest.mark.spec("004 REQ-0018")
def test_a_flow_in_a_file_is_run(client: httpx.Client) -> None:
    answer = upload(client)
    assert answer.status_code == 200, answer.text
    digest = hashlib.sha256(FLOW).hexdigest()
    assert answer.json()["status"] == "PENDING"
    assert (answer.json()["workflow_yaml_sha256"], answer.json()["workflow_yaml_bytes"]) == (digest, len(FLOW))
    snapshot = ended(client, answer.json()["run_id"])
    assert (snapshot["status"], snapshot["flow_name"], snapshot["params"]) == ("COMPLETED", "from-yaml", {"n": 3})
    assert (snapshot["workflow_yaml_sha256"], snapshot["workflow_yaml_bytes"]) == (digest, len(FLOW))
    assert snapshot["task_records"]["second"]["output"] == 4
    assert "workflow_yaml" not in snapshot


def test_a_name_the_flow_does_not_have_is_refused_with_the_nearest_one(client: httpx.Client) -> None:
    graph = "    first >> foreach(over={{ results.frist }}, item=row){ second }"
    answer = upload(client, FLOW.replace(b"    first >> second", graph.encode()))
    check_error(answer, 422, "ERR-PYOCO-0002")
    assert "the flow has no result 'frist'; did you mean 'first'?" in answer.json()["detail"]
    assert "line " in answer.json()["detail"]


@pytest.mark.spec("004 REQ-0018", "004 §付録D GET /runs")
def test_the_flow_travels_in_the_job(stand: Stand, client: httpx.Client) -> None:
    tag = unique("no-worker")
    run_id = upload(client, tag=tag).json()["run_id"]

    async def queued(given: Services) -> bytes:
        await given.queue.prepare(tag)
        delivery = await given.queue.pull(tag, timeout_sec=5)
        assert delivery is not None
        return delivery.body

    job = decode_job(stand.call(queued))
    assert (job.run_id, job.workflow_yaml) == (run_id, FLOW.decode())
    assert len(listed(client, 1, tag=tag, workflow_yaml_sha256=hashlib.sha256(FLOW).hexdigest())) == 1


def test_a_key_stands_for_one_run(client: httpx.Client) -> None:
    headers, tag = {"Idempotency-Key": unique("yaml")}, unique("no-worker")
    first = upload(client, tag=tag, headers=headers).json()
    assert upload(client, tag=tag, headers=headers).json() == first
    check_error(upload(client, FLOW + b"\n# more\n", tag=tag, headers=headers), 409, "ERR-PYOCO-0105")


BAD_FILES = {
    "not yaml": b"flow: [",
    "not text": b"\xff\xfe\x00",
    "empty": b"",
    "a list": b"- 1",
    "an unknown key": FLOW + b"extra: 1\n",
    "flows": b"version: 1\nflows:\n  a: {graph: x}\n",
    "discovery": FLOW + b"discovery: {packages: [os]}\n",
    "an anchor bomb": b"a: &a [x, x]\nb: &b [*a, *a]\nflow: *b\n",
    "a python object": b"!!python/object/apply:os.system ['true']",
    "a null byte": b"version: 1\x00",
    "deep": b"flow: " + b"[" * 5_000,
    "a task that follows itself": FLOW.replace(b"first >> second", b"first >> first"),
    "an input from a task there is not": FLOW + b"    inputs: { x: $node.frist.output }\n",
    "not finite": FLOW.replace(b"n: 3", b"n: .nan"),
}


@pytest.mark.spec("004 REQ-0018", "004 ERR-PYOCO-0002")
@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_flow_that_is_not_valid_leaves_nothing_behind(client: httpx.Client, content: bytes) -> None:
    tag = unique("bad")
    check_error(upload(client, content, tag=tag), 422, "ERR-PYOCO-0002")
    assert client.get("/runs", params={"tag": tag}).json() == []


@pytest.mark.spec("004 REQ-0018", "004 ERR-PYOCO-0002")
def test_a_form_that_is_not_valid(client: httpx.Client) -> None:
    file = {"workflow": ("flow.yaml", FLOW)}
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for answer in (
        client.post("/runs/yaml", files=file),
        client.post("/runs/yaml", data={"flow_name": "x"}),
        client.post("/runs/yaml", files=file, data={"flow_name": "x", "tag": "a.b"}),
        client.post("/runs/yaml", files=file, data={"flow_name": "x", "tag": ""}),
        client.post("/runs/yaml", files=file, data={"flow_name": ""}),
        client.post("/runs/yaml", files=file, data={"flow_name": "  "}),
        client.post("/runs/yaml", data={"flow_name": "x", "workflow": "text"}),
        client.post("/runs/yaml", json={"flow_name": "x"}),
        client.post("/runs/yaml", content=b"garbage", headers=form),
        client.post("/runs/yaml", content=b"garbage", headers={"Content-Type": "multipart/form-data"}),
        client.post("/runs/yaml"),
    ):
        check_error(answer, 422, "ERR-PYOCO-0002")


@pytest.mark.spec("004 REQ-0018", "004 ERR-PYOCO-0016", "004 MSG-PYOCO-0016")
@pytest.mark.parametrize("size", [262_145, 400_000, 3_000_000])
def test_a_flow_that_is_too_large(client: httpx.Client, size: int) -> None:
    error = check_error(upload(client, FLOW + b"#" * (size - len(FLOW))), 413, "ERR-PYOCO-0016")
    assert error["message"] == "the workflow file is too large"


def test_a_flow_may_be_as_large_as_is_said(client: httpx.Client) -> None:
    assert upload(client, FLOW + b"#" * (262_144 - len(FLOW)), tag=unique("no-worker")).status_code == 200
