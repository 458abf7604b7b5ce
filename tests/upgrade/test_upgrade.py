"""Open runs of the previous version: this version continues them, alone or side by side with the previous one."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import Event, decode_event, fold, graph_from_log
from tests.invariants import ENDS, check_log
from tests.upgrade.versions import CURRENT, Site, checked_out

pytestmark = pytest.mark.timeout(400)  # half a dozen processes, started beside those of other tests

GRAPH = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "work", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "work"}, {"from": "work", "to": "end"}],
}
YAML = "version: 1\nflow:\n  graph: read\ntasks:\n  read: { callable: 'json:dumps', inputs: { obj: [1, 2] } }\n"
BESIDE_THE_LOG = {"heartbeat_at", "driven_by", "log_position"}
SINCE_0_8 = {"state", "duration_ms"}
"""Fields of task records that snapshots of ended runs do not have if an earlier version wrote them."""
OTHERWISE_BEFORE_0_8 = {"cancel_requested_by"}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the previous version."""
    return checked_out(tmp_path_factory.mktemp("old"))


@pytest.fixture
def site(old: Path, tmp_path: Path) -> Iterator[Site]:  # noqa: ARG001 skipped before anything is started
    made = Site(tmp_path)
    yield made
    made.close()


def test_this_version_continues_the_open_runs_of_the_previous_one(old: Path, site: Site) -> None:
    runs = _open_runs_of_every_kind(old, site)
    site.restart_nats()
    for program in (site.gateway(CURRENT, "new-gateway"), site.worker(CURRENT, "new-worker", "default,later")):
        program.ready()
    _answer_all(site, runs)
    ends = _check_all(site, runs)
    assert ends == dict.fromkeys(runs, "COMPLETED") | {"cancelling": "CANCELLED"}
    _check_what_ran(site, runs)


def _open_runs_of_every_kind(old: Path, site: Site) -> dict[str, str]:
    """Leave a run in every possible state, and stop all programs: one with SIGTERM, the others with SIGKILL."""
    gateway = site.gateway(old, "old-gateway")
    polite, rude = site.worker(old, "old-polite"), site.worker(old, "old-rude")
    for program in (gateway, polite, rude):
        program.ready()
    flows = {
        "finished": "finished",
        "parked": "asking",
        "resumed": "asking",
        "parked in a loop": "asking_twice",
        "stored": "stored",
        "due": "due",
        "at work": "at_work",
        "at work too": "at_work",
        "retried": "retried",
        "cancelling": "stubborn",
    }
    runs = {kind: site.submit(flow) for kind, flow in flows.items()}
    runs["queued"] = site.submit("finished", tag="later")
    runs["yaml"] = site.ask(
        "POST",
        "/runs/yaml",
        data={"flow_name": "from-yaml", "tag": "later"},
        files={"workflow": ("flow.yaml", YAML.encode())},
    )["run_id"]
    site.ask("PUT", "/graphs/review", json=GRAPH)
    runs["from outside"] = site.ask("POST", "/executions", json={"graphId": "review"})["executionId"]
    site.ask("POST", f"/executions/{runs['from outside']}/start", json={})
    site.ask("POST", f"/executions/{runs['from outside']}/nodes/work/start", json={"workerId": "ruby-1"})

    site.until(runs["finished"], lambda found: found["status"] == "COMPLETED")
    for kind in ("parked", "resumed", "parked in a loop", "stored", "due"):
        site.until(runs[kind], lambda found: found["waiting"])
    for kind, task in (("at work", "slow"), ("at work too", "slow"), ("cancelling", "deaf"), ("retried", "flaky")):
        site.until(runs[kind], lambda found, task=task: site.calls(found).get(task))  # type: ignore[misc]
    site.ask("POST", f"/runs/{runs['cancelling']}/cancel", json={"reason": "enough"})
    polite.stop(signal.SIGTERM)
    rude.stop(signal.SIGKILL)
    site.ask("POST", f"/runs/{runs['resumed']}/nodes/approval/resume", json={"input": "early"})  # no worker is running
    gateway.stop(signal.SIGKILL)
    return runs


def _answer_all(site: Site, runs: dict[str, str]) -> None:
    """Send every input that a run waits for."""
    site.ask("POST", f"/runs/{runs['parked']}/nodes/approval/resume", json={"input": {"ok": True}})
    site.ask("POST", f"/runs/{runs['stored']}/nodes/approval/resume", json={"input": 1})
    for number in (1, 2):
        run_id = runs["parked in a loop"]
        found = site.until(run_id, lambda found, number=number: _asks(found, number))  # type: ignore[misc]
        site.ask("POST", f"/runs/{run_id}/nodes/{found['waiting'][0]['node_id']}/resume", json={"input": number})
    outside = f"/executions/{runs['from outside']}/nodes/work/succeed"
    site.ask("POST", outside, json={"attempt": 1, "output": {"pages": 10}})


def _asks(found: dict[str, Any], number: int) -> bool:
    """Does the run wait for the answer of this round?"""
    records = [name for name, record in found["task_records"].items() if record["task"] == "ask"]
    return len(records) == number and bool(found["waiting"])


def _check_what_ran(site: Site, runs: dict[str, str]) -> None:
    """Check that no task ran again that had succeeded, and that all others did."""
    for kind in ("finished", "parked", "resumed", "due", "at work", "at work too", "retried", "cancelling", "queued"):
        assert site.calls(site.snapshot(runs[kind]))["first"] == 1, kind
    assert site.calls(site.snapshot(runs["at work"])) == {"first": 1, "slow": 2, "last": 1}
    assert site.calls(site.snapshot(runs["retried"])) == {"first": 1, "flaky": 2, "last": 1}
    assert site.calls(site.snapshot(runs["cancelling"])) == {"first": 1, "deaf": 1}
    assert site.calls(site.snapshot(runs["stored"])) == {"large": 1, "last": 1}
    assert site.snapshot(runs["stored"])["task_records"]["last"]["output"] == 100_001
    assert site.snapshot(runs["resumed"])["task_records"]["approval"]["output"] == "early"
    assert site.snapshot(runs["due"])["task_records"]["approval"]["output"] == "late"
    assert site.snapshot(runs["parked"])["task_records"]["approval"]["output"] == {"ok": True}


def test_both_versions_work_side_by_side(old: Path, site: Site) -> None:
    """A rolling upgrade: the new gateway with the old worker for a while, then the old gateway with the new worker."""
    old_gateway, old_worker = site.gateway(old, "old-gateway").ready(), site.worker(old, "old-worker").ready()
    old_url = site.url
    flows = {"parked": "asking", "parked longer": "asking", "at work": "at_work", "cancelled": "stubborn"}
    runs = {kind: site.submit(flow) for kind, flow in flows.items()}
    for kind in ("parked", "parked longer"):
        site.until(runs[kind], lambda found: found["waiting"])
    site.until(runs["at work"], lambda found: site.calls(found).get("slow"))
    site.until(runs["cancelled"], lambda found: site.calls(found).get("deaf"))

    site.gateway(CURRENT, "new-gateway").ready()
    new_url = site.url
    site.ask("POST", f"/runs/{runs['cancelled']}/cancel", json={})
    site.ask("POST", f"/runs/{runs['parked']}/nodes/approval/resume", json={"input": "yes"})
    runs["quick"] = site.submit("finished")
    for kind in ("parked", "quick", "cancelled"):
        site.until(runs[kind], lambda found: found["status"] in {"COMPLETED", "CANCELLED"})

    site.worker(CURRENT, "new-worker").ready()
    old_worker.stop(signal.SIGKILL)
    site.url = old_url
    site.ask("POST", f"/runs/{runs['parked longer']}/nodes/approval/resume", json={"input": "yes"})
    runs["quick too"] = site.submit("finished")
    for kind in ("parked longer", "quick too", "at work"):
        site.until(runs[kind], lambda found: found["status"] == "COMPLETED")

    old_gateway.stop(signal.SIGTERM)
    site.url = new_url
    ends = _check_all(site, runs)
    assert ends == dict.fromkeys(runs, "COMPLETED") | {"cancelled": "CANCELLED"}
    assert site.calls(site.snapshot(runs["at work"])) == {"first": 1, "slow": 2, "last": 1}


# --- What must hold of every run --------------------------------------------------------------------------------------


def _check_all(site: Site, runs: dict[str, str]) -> dict[str, str]:
    """Check that each run ended once, as its log says, and is listed once; return the final statuses."""
    ends: dict[str, str] = {}
    for kind, run_id in runs.items():
        ends[kind] = site.until(run_id, lambda found: found["status"] in {"COMPLETED", "FAILED", "CANCELLED"})["status"]
        events = _events(site, run_id)
        assert len([event for event in events if event.type in ENDS]) == 1, kind
        check_log(graph_from_log(events), events, fold(events))
        site.until(run_id, lambda found, events=events: _is_projection(found, events))  # type: ignore[misc]
    listed = [run["run_id"] for run in site.ask("GET", "/runs", params={"limit": 200})]
    assert sorted(listed) == sorted(runs.values())
    return ends


def _events(site: Site, run_id: str) -> list[Event]:
    page = site.ask("GET", f"/runs/{run_id}/events", params={"limit": 5_000})
    assert page["next_after"] is None
    return [
        decode_event({name: value for name, value in event.items() if name != "version"}) for event in page["events"]
    ]


def _is_projection(found: dict[str, Any], events: list[Event]) -> bool:
    projection = RunProjection(events[0].execution_id)
    projection.listen(events, fold(events))
    expected = projection.snapshot(position=0)
    skipped = BESIDE_THE_LOG | OTHERWISE_BEFORE_0_8 | {"task_records"}
    return _records(found) == _records(expected) and all(
        found.get(name) == value for name, value in expected.items() if name not in skipped
    )


def _records(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {
        node_id: {name: value for name, value in record.items() if name not in SINCE_0_8}
        for node_id, record in snapshot["task_records"].items()
    }
