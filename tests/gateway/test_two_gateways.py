"""Two gateways and two workers on one NATS: both gateways give the same answers."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.sse import watch
from tests.gateway.stand import Stand, ended, listed, settings_for, submit, unique, until, waiting


def both(nats: NatsServer, tmp_path: Path, **variables: str) -> tuple[Stand, Stand]:
    one, two = (settings_for(nats.url, tmp_path / name, **variables) for name in ("one", "two"))
    return Stand(one), Stand(two)


def walk(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    page = client.get("/runs", params={"limit": 20, "updated_after": 0, **query}).json()
    found = [*page["items"]]
    while page["next_cursor"] is not None:
        page = client.get("/runs", params={"limit": 20, "cursor": page["next_cursor"], **query}).json()
        found += page["items"]
    return found


@pytest.mark.spec("004 REQ-0006", "004 REQ-0019")
def test_two_gateways_agree(own_nats: NatsServer, tmp_path: Path) -> None:
    here, there = both(own_nats, tmp_path)
    with here, there, here.client() as one, there.client() as two:
        batch = {"runs": [{"flow_name": "hello", "tags": ["x"]}] * 30}
        ids = {
            run["run_id"] for client in (one, two) for run in client.post("/runs/batch", json=batch).json()["results"]
        }
        assert len(ids) == 60
        for client in (one, two):
            assert {run["run_id"] for run in listed(client, 60, status="COMPLETED")} == ids
        assert walk(one) == walk(two)
        assert len(walk(two)) == 60
        run_id = submit(one, "ask")
        with watch(two, run_id) as events:
            waiting(two, run_id)
            two.post(f"/runs/{run_id}/nodes/ask/resume", json={"input": 1})
            last = next(event for event in events if event.name == "snapshot" and event.status == "COMPLETED")
            assert last.data["run_id"] == run_id
        until(one, run_id, lambda snapshot: snapshot["status"] == "COMPLETED")


def test_a_key_is_one_key_for_both(own_nats: NatsServer, tmp_path: Path) -> None:
    here, there = both(own_nats, tmp_path)
    with here, there:

        async def body() -> list[httpx.Response]:
            async with httpx.AsyncClient(timeout=20) as client:
                headers, json = {"Idempotency-Key": "shared"}, {"flow_name": "hello"}
                asked = [
                    client.post(f"{stand.url}/runs", json=json, headers=headers)
                    for stand in (here, there)
                    for _ in range(10)
                ]
                return await asyncio.gather(*asked)

        answers = asyncio.run(body())
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["run_id"] for answer in answers}) == 1


def test_sweeps_of_both_do_nothing_twice(own_nats: NatsServer, tmp_path: Path) -> None:
    """Both gateways sweep waits past their deadline and cancels that have not ended, at the same time."""
    here, there = both(own_nats, tmp_path, PYOCO_CANCEL_GRACE_PERIOD_SEC="0.5")
    with here, there, here.client() as one, there.client() as two:
        due = [submit(one, "due") for _ in range(10)]
        stuck = [_left_alone(two) for _ in range(5)]
        for run_id in due:
            snapshot = ended(two, run_id)
            assert (snapshot["status"], snapshot["task_records"]["take"]["output"]) == ("COMPLETED", "late")
            types = [event["type"] for event in one.get(f"/runs/{run_id}/events").json()["events"]]
            assert types.count("NODE_RESUMED") == types.count("EXECUTION_COMPLETED") == 1
        for run_id in stuck:
            assert ended(one, run_id)["status"] == "CANCELLED"
            types = [event["type"] for event in two.get(f"/runs/{run_id}/events").json()["events"]]
            assert types.count("EXECUTION_CANCELED") == types.count("EXECUTION_CANCEL_REQUESTED") == 1


def _left_alone(client: httpx.Client) -> str:
    """An execution that is driven from outside, whose driver stopped before it was cancelled."""
    graph_id = unique("graph")
    nodes = [{"nodeId": name, "nodeType": kind} for name, kind in (("s", "Start"), ("w", "Task"), ("e", "Success"))]
    edges = [{"from": "s", "to": "w"}, {"from": "w", "to": "e"}]
    client.put(f"/graphs/{graph_id}", json={"nodes": nodes, "edges": edges})
    execution_id: str = client.post("/executions", json={"graphId": graph_id}).json()["executionId"]
    client.post(f"/executions/{execution_id}/start")
    client.post(f"/executions/{execution_id}/nodes/w/start")
    answer = client.post(f"/runs/{execution_id}/cancel")
    assert answer.json()["status"] == "CANCELLING"
    assert time.time() - answer.json()["cancel_requested_at"] < 30
    return execution_id
