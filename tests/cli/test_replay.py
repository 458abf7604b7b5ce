"""``events`` and ``replay`` on a log of a real run."""

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyoco import Flow, task  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import Event, ExecutionState, decode_event, event_to_dict, fold, initial_state, state_to_dict
from tests.cli.gateway_commands import Caller
from tests.client.scripted_gateway import Answer, Request, ScriptedGateway, event, says, silence, streams


@task  # type: ignore[untyped-decorator]
def greet(name: str) -> str:
    return f"hello {name}"


class Run:
    """A run that has ended, as a gateway shows it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []
        with Engine() as engine:
            self.run_id = engine.start(Flow("hello") >> greet, {"name": "Ada"}, listener=self._listen)
            engine.wait(self.run_id)
        self.state = fold(self.events, initial_state(self.run_id))
        projection = RunProjection(self.run_id)
        projection.listen(self.events, self.state)
        self.snapshot: dict[str, Any] = {**projection.snapshot(position=9), "worker_alive": False}

    def _listen(self, events: Sequence[Event], _: ExecutionState) -> None:
        self.events += events

    def page(self, request: Request) -> Answer:
        query = dict(request.query)
        after, limit = int(query["after"]), min(int(query["limit"]), 5)
        page = self.events[after : after + limit]
        version = after + len(page)
        shown = [{**event_to_dict(one), "version": after + at + 1} for at, one in enumerate(page)]
        following = version if version < len(self.events) else None
        return says(
            {"events": shown, "version": version, "next_after": following}
            | ({"notes": self.notes} if self.notes else {})
        )

    def serve(self, gateway: ScriptedGateway) -> None:
        gateway.on("GET", f"/runs/{self.run_id}/events", self.page)
        gateway.on("GET", f"/runs/{self.run_id}/state", says(state_to_dict(self.state)))
        gateway.on("GET", f"/runs/{self.run_id}", says(self.snapshot))
        gateway.on("GET", f"/runs/{self.run_id}/watch", streams(event(self.snapshot), then=silence))


@pytest.fixture(scope="module")
def recorded() -> Run:
    return Run()


@pytest.fixture
def run(recorded: Run, gateway: ScriptedGateway) -> Run:
    recorded.serve(gateway)
    return recorded


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(gateway, capsys)


NOTES = ["the edge from node 'greet' leads to 'nowhere', which is not in the graph"]


@pytest.fixture
def inconsistent(recorded: Run, gateway: ScriptedGateway) -> Run:
    """The same run, with an edge in its log to a node that is not there."""
    made = copy.copy(recorded)
    made.events = [*map(_with_loose_edge, recorded.events)]
    made.notes = NOTES
    made.serve(gateway)
    return made


def _with_loose_edge(one: Event) -> Event:
    fields = event_to_dict(one)
    if fields["type"] == "NODE_CREATED" and fields["payload"]["nodeId"] == "greet":
        fields["payload"]["meta"]["edges"].append({"to": "nowhere"})
    return decode_event(fields)


@pytest.mark.parametrize("more", [[], ["--follow"], ["--output", "lines"], ["--after", "3"]])
def test_events_prints_where_the_log_is_inconsistent(inconsistent: Run, call: Caller, more: list[str]) -> None:
    done = call("events", inconsistent.run_id, *more)
    assert done.code == 0
    assert done.err.splitlines() == [f"note: the log is inconsistent: {NOTES[0]}"]
    assert len(done.out.splitlines()) == len(inconsistent.events) - (3 if "--after" in more else 0)


@pytest.mark.parametrize("more", [[], ["--at", "7"]])
def test_replay_prints_where_the_log_is_inconsistent(inconsistent: Run, call: Caller, more: list[str]) -> None:
    assert call("replay", inconsistent.run_id, *more, "--output", "json").json["notes"] == NOTES
    table = call("replay", inconsistent.run_id, *more, "--output", "table").out
    assert "the log is inconsistent:" in table
    assert NOTES[0] in table


def test_a_consistent_log_has_no_notes(run: Run, call: Caller) -> None:
    assert call("events", run.run_id).err == ""
    assert "notes" not in call("replay", run.run_id).json
    assert "inconsistent" not in call("replay", run.run_id, "--output", "table").out


@pytest.mark.parametrize("more", [[], ["--follow"]])
def test_events_as_json(run: Run, call: Caller, more: list[str]) -> None:
    done = call("events", run.run_id, *more)
    assert done.code == 0
    printed = [json.loads(line) for line in done.out.splitlines()]
    assert [one["type"] for one in printed] == [one.type for one in run.events]
    assert [one["version"] for one in printed] == list(range(1, len(run.events) + 1))


def test_events_as_lines(run: Run, call: Caller) -> None:
    out = call("events", run.run_id, "--output", "lines").out
    assert len(out.splitlines()) == len(run.events)
    assert 'NODE_SUCCEEDED greet "hello Ada"' in out
    assert out.splitlines()[0].split()[0] == "1"


def test_the_log_agrees_with_the_gateway(run: Run, call: Caller) -> None:
    done = call("replay", run.run_id)
    assert done.code == 0, done.out
    assert done.json["agrees"] is True
    assert done.json["differences"] == []
    assert done.json["state"] == state_to_dict(run.state)
    assert done.json["version"] == len(run.events)


def test_the_state_as_it_was(run: Run, call: Caller) -> None:
    done = call("replay", run.run_id, "--at", "2")
    assert done.code == 0
    assert done.json["state"] == state_to_dict(fold(run.events[:2], initial_state(run.run_id)))
    assert "agrees" not in done.json
    assert {path for path in call.gateway.paths() if not path.endswith("/events")} == set()


def test_before_the_first_event(run: Run, call: Caller) -> None:
    assert call("replay", run.run_id, "--at", "0").json["version"] == 0


def test_a_version_the_log_never_reached(run: Run, call: Caller) -> None:
    done = call("replay", run.run_id, "--at", "9999")
    assert done.code == 1
    assert "--at 9999: the log is shorter than that [MSG-PYOCO-0018/ERR-PYOCO-0018]" in done.err


def test_a_gateway_that_says_something_else(run: Run, call: Caller) -> None:
    state = state_to_dict(run.state)
    state["nodes"]["greet"]["status"] = "FAILED"
    call.gateway.on("GET", f"/runs/{run.run_id}/state", says(state))
    call.gateway.on("GET", f"/runs/{run.run_id}", says({**run.snapshot, "status": "RUNNING"}))
    done = call("replay", run.run_id)
    assert done.code == 1
    assert done.json["agrees"] is False
    assert done.json["differences"] == [
        'state.nodes.greet.status: the log says "SUCCEEDED", the gateway "FAILED"',
        'snapshot.status: the log says "COMPLETED", the gateway "RUNNING"',
    ]
    table = call("replay", run.run_id, "--output", "table")
    assert table.code == 1
    assert "the gateway's state does not agree with the log:" in table.out
    assert 'snapshot.status: the log says "COMPLETED"' in table.out


def test_a_snapshot_that_comes_late(run: Run, call: Caller) -> None:
    behind = {**run.snapshot, "status": "RUNNING", "version": 3}
    call.gateway.on("GET", f"/runs/{run.run_id}", says(behind), says(behind), says(run.snapshot))
    assert call("replay", run.run_id).json["agrees"] is True


def test_a_log_that_grows_meanwhile(run: Run, call: Caller) -> None:
    shorter = {"events": [], "version": 0, "next_after": None}
    call.gateway.on("GET", f"/runs/{run.run_id}/events", says(shorter), run.page)
    assert call("replay", run.run_id).json["agrees"] is True


def test_a_replay_as_a_table(run: Run, call: Caller) -> None:
    out = call("replay", run.run_id, "--output", "table").out
    assert f"COMPLETED  {run.run_id}  after {len(run.events)} events" in out
    assert '"hello Ada"' in out
    assert "the gateway's state agrees with the log" in out


def test_events_that_are_none(run: Run, call: Caller) -> None:
    answer = says({"events": [{"version": 1, "type": "X"}], "version": 1, "next_after": None})
    call.gateway.on("GET", f"/runs/{run.run_id}/events", answer)
    done = call("replay", run.run_id)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "error: " in done.err
