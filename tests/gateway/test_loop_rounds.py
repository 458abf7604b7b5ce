"""Loops over HTTP, on a real worker: a failed round is counted, and an error names its round."""

from typing import Any

import httpx
import pytest

from tests.gateway.stand import ended
from tests.gateway.test_yaml import upload

FLOW = """\
flow:
  graph: foreach(over=items, item=item, parallel=4){{ work >> after:first }} >> last:first
  defaults: {{ items: [0, 1, 2, 3, 4, 5], bad: 3, n: 1 }}
tasks:
  work: {{ callable: "tests.gateway.yaml_tasks:refuse", fail_policy: {policy} }}
  first: {{ callable: "tests.gateway.yaml_tasks:first" }}
"""


def run(client: httpx.Client, policy: str) -> dict[str, Any]:
    answer = upload(client, FLOW.format(policy=policy).encode())
    assert answer.status_code == 200, answer.text
    return ended(client, answer.json()["run_id"])


def test_a_round_that_fails_in_isolation_is_counted(client: httpx.Client) -> None:
    snapshot = run(client, "isolate")
    assert (snapshot["status"], snapshot["tasks"]["last"]) == ("COMPLETED", "SUCCEEDED")
    assert snapshot["task_tallies"] == {
        "work": {"ok": 5, "failed": 1, "not_started": 0},
        "after": {"ok": 5, "failed": 0, "not_started": 1},
    }
    tasks = client.get(f"/runs/{snapshot['run_id']}/tasks").json()
    assert tasks["task_tallies"] == snapshot["task_tallies"]
    state = client.get(f"/executions/{snapshot['run_id']}").json()
    result = state["nodes"][":foreach"]["output"]["value"]
    assert (result["rounds"], result["ok"], result["failed"]) == (6, 5, 1)
    assert result["errors"] == [{"node": ":foreach[3]/work", "code": "ValueError", "message": "item 3 is bad"}]


@pytest.mark.parametrize("policy", ["stop", "retry"])
def test_a_round_that_stops_the_loop_is_named(client: httpx.Client, policy: str) -> None:
    snapshot = run(client, policy)
    assert snapshot["status"] == "FAILED"
    assert snapshot["error"] == "node ':foreach[3]/work' failed: ValueError: item 3 is bad"
    assert snapshot["task_records"][":foreach[3]/work"]["attempt"] == {"stop": 1, "retry": 2}[policy]
    assert snapshot["task_tallies"]["work"]["failed"] == 1
