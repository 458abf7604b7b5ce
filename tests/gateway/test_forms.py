"""An answer that does not fit a wait's form is refused (422) by every way there is, and the wait continues."""

from typing import Any

import httpx
import pytest

from tests.gateway.stand import check_error, ended, unique, until, waiting
from tests.gateway.test_executions import created, give
from tests.gateway.test_yaml import upload

FLOW = """\
flow:
  graph: first >> ask >> last:first
  defaults: { n: 3 }
tasks:
  first: { callable: "tests.gateway.yaml_tasks:first" }
  ask:
    wait:
      prompt:
        question: "Pay {{ results.first }} of {{ params.n }}?"
        total: "{{ results.first }}"
        schema:
          type: object
          properties: { amount: { type: integer, maximum: "{{ results.first }}" }, by: { type: string } }
          required: [amount]
"""
FITS = {"amount": 3, "by": "ann"}


def asking(client: httpx.Client, flow: str = FLOW) -> str:
    answer = upload(client, flow.encode())
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def test_the_prompt_shows_results_as_they_were_when_the_wait_began(client: httpx.Client) -> None:
    run_id = asking(client)
    prompt = waiting(client, run_id)["waiting"][0]["prompt"]
    assert (prompt["question"], prompt["total"]) == ("Pay 3 of 3?", 3)
    assert prompt["schema"]["properties"]["amount"]["maximum"] == 3
    events = client.get(f"/executions/{run_id}/events").json()["events"]
    prompts = [event["payload"]["prompt"] for event in events if event["type"] == "NODE_WAITING"]
    assert prompts == [prompt]
    client.post(f"/runs/{run_id}/cancel")


@pytest.mark.parametrize("address", ["/runs/{}/nodes/ask/resume", "/executions/{}/nodes/ask/resume"])
@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"amount": 4}, ["input", "amount"]),
        ({"amount": 3, "by": 7}, ["input", "by"]),
        ({}, ["input", "amount"]),
        ("yes", ["input"]),
        (None, ["input"]),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_wait_continues(
    client: httpx.Client, address: str, answer: Any, field: list[str]
) -> None:
    run_id = asking(client)
    before = waiting(client, run_id)
    headers = {"Idempotency-Key": unique("resume")}
    refused = client.post(address.format(run_id), json={"input": answer}, headers=headers)
    error = check_error(refused, 422, "ERR-PYOCO-0002")
    assert [problem["loc"] for problem in error["details"]["problems"]] == [field]
    assert ".".join(field) in refused.json()["detail"]
    assert client.get(f"/runs/{run_id}").json()["version"] == before["version"], "nothing is left behind"
    taken = client.post(address.format(run_id), json={"input": FITS})
    assert taken.status_code in {200, 202}
    assert ended(client, run_id)["task_records"]["ask"]["output"] == FITS


def test_an_execution_that_others_drive_has_forms_too(client: httpx.Client) -> None:
    mine = created(client)
    give(client, mine, "start")
    give(client, mine, "nodes/work/start", workerId="ruby")
    give(client, mine, "nodes/work/wait", prompt={"schema": {"enum": ["yes", "no"]}})
    refused = client.post(f"/executions/{mine}/nodes/work/resume", json={"input": "maybe"})
    check_error(refused, 422, "ERR-PYOCO-0002")
    assert give(client, mine, "nodes/work/resume", input="yes")[-1] == "NODE_RESUMED"
    refused = client.post(f"/executions/{mine}/nodes/work/resume", json={"input": "maybe"})
    check_error(refused, 409, "ERR-PYOCO-0103")


def test_a_default_is_taken_at_the_deadline_whatever_was_refused_before(client: httpx.Client) -> None:
    run_id = asking(client, FLOW + "      deadline_sec: 0.5\n      default: { amount: 0 }\n")
    waiting(client, run_id)
    assert client.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 1}).status_code == 422
    assert ended(client, run_id)["task_records"]["ask"]["output"] == {"amount": 0}


def test_a_prompt_that_cannot_be_rendered_fails_its_node_and_names_the_template(client: httpx.Client) -> None:
    snapshot = ended(client, asking(client, FLOW.replace("results.first }} of", "results.first.total }} of")))
    assert snapshot["status"] == "FAILED"
    assert "prompt.question: {{ results.first.total }} cannot be shown" in snapshot["error"]


def test_waits_in_a_loop_show_the_item_of_their_round(client: httpx.Client) -> None:
    flow = (
        "flow:\n  graph: foreach(over=items, item=row, parallel=2){ ask }\n  defaults: { items: [{id: 7}, {id: 8}] }\n"
        "tasks:\n  ask: { wait: { prompt: { question: 'Take {{ row.id }}?', schema: { type: boolean } } } }\n"
    )
    run_id = asking(client, flow)
    asked = until(client, run_id, lambda snapshot: len(snapshot["waiting"]) == 2)["waiting"]
    assert sorted(wait["prompt"]["question"] for wait in asked) == ["Take 7?", "Take 8?"]
    for wait in asked:
        assert client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json={"input": 1}).status_code == 422
        assert client.post(f"/runs/{run_id}/nodes/{wait['node_id']}/resume", json={"input": True}).status_code == 200
    assert ended(client, run_id)["status"] == "COMPLETED"


def test_a_form_that_is_none_is_refused_when_the_flow_is_submitted(client: httpx.Client) -> None:
    error = upload(client, b"flow: { graph: ask }\ntasks: { ask: { wait: { prompt: { schema: { type: bool } } } } }\n")
    check_error(error, 422, "ERR-PYOCO-0002")
    assert "the wait 'ask': prompt.schema.type is not JSON Schema" in error.json()["detail"]
