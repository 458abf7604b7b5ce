"""The subcommands that send requests: for each a valid command line and its request."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from pyoco_server.cli.client.main import main
from tests.client.scripted_gateway import Answer, ScriptedGateway, event, says, silence, snapshot, streams

DONE = snapshot("COMPLETED", 3)
ROWS: Any = [{"run_id": "r1", "status": "FAILED", "flow_name": "f", "updated_at": 1.0, "error": "E"}]
LETTER = {"sequence": 17, "tag": "default", "entry": {"reason": "invalid_job", "timestamp": 1.0, "error": "no json"}}
WHEEL = {"name": "a-1-py3-none-any.whl", "size_bytes": 2, "tags": ["cpu"], "modified": 1.0, "sha256_hex": "00ff"}
NO_EVENTS = {"events": [], "version": 0, "next_after": None}


@dataclass(frozen=True)
class Command:
    """A command line, its request, and its output in a pipe."""

    args: list[str]
    method: str
    path: str
    answer: Any
    query: list[tuple[str, str]] = field(default_factory=list)
    body: Any = None
    printed: Any = None
    files: dict[str, bytes] = field(default_factory=dict)

    def script(self) -> Answer:
        return self.answer if isinstance(self.answer, Answer) else says(self.answer)


ACCEPTED = {"run_id": "r1", "status": "PENDING"}
PLAN: Any = {"plan": {"keep": [], "run": [{"node": "a", "why": "it failed"}], "drop": []}}
COMMANDS = {
    "submit": Command(
        [
            "submit",
            "--flow-name",
            "f",
            "--params",
            '{"a": 1, "b": 2}',
            "--param",
            "b=x",
            "--tag",
            "cpu",
            "--tags",
            "p, q",
        ],
        "POST",
        "/runs",
        ACCEPTED,
        body={"flow_name": "f", "params": {"a": 1, "b": "x"}, "tag": "cpu", "tags": ["p", "q"]},
    ),
    "redrive": Command(
        ["redrive", "r1", "--from", "a", "--from", "b", "--param", "n=1", "--ask-again", "ok", "--reason", "why"],
        "POST",
        "/runs/r1/redrive",
        ACCEPTED,
        body={"from": ["a", "b"], "params": {"n": 1}, "ask_again": ["ok"], "reason": "why"},
    ),
    "redrive --dry-run": Command(
        ["redrive", "r1", "--dry-run"], "POST", "/runs/r1/redrive", PLAN, body={"from": "failed", "dry_run": True}
    ),
    "submit-yaml": Command(
        ["submit-yaml", "--workflow-file", "flow.yaml", "--flow-name", "f", "--tag", "cpu"],
        "POST",
        "/runs/yaml",
        {**ACCEPTED, "workflow_yaml_bytes": 3},
        files={"flow.yaml": b"a: 1"},
    ),
    "get": Command(["get", "r1", "--records"], "GET", "/runs/r1", DONE, [("include", "records")]),
    "tasks": Command(["tasks", "r1"], "GET", "/runs/r1/tasks", DONE),
    "list": Command(
        ["list", "--status", "FAILED", "--flow", "f", "--tag", "t", "--full", "--limit", "7", "--submitted-after", "5"],
        "GET",
        "/runs",
        ROWS,
        [
            ("status", "FAILED"),
            ("flow", "f"),
            ("tag", "t"),
            ("limit", "7"),
            ("submitted_after", "5.0"),
            ("include", "full"),
        ],
    ),
    "list-vnext": Command(
        [
            "list-vnext",
            "--updated-after",
            "5",
            "--cursor",
            "c",
            "--workflow-yaml-sha256",
            "00",
            "--held",
            "--output",
            "json",
        ],
        "GET",
        "/runs",
        {"items": ROWS, "next_cursor": "n"},
        [("updated_after", "5.0"), ("cursor", "c"), ("workflow_yaml_sha256", "00"), ("held", "true")],
    ),
    "watch": Command(
        ["watch", "r1", "--until-terminal", "--timeout-sec", "700"],
        "GET",
        "/runs/r1/watch",
        streams(event(DONE), then=silence),
        [("timeout_sec", "600.000")],
        printed=DONE,
    ),
    "cancel": Command(
        ["cancel", "--run-id", "r1", "--reason", "no"], "POST", "/runs/r1/cancel", DONE, body={"reason": "no"}
    ),
    "resume what waits for a key": Command(
        ["resume", "r1", "ask", "--input", "1", "--resume-key", "approval"],
        "POST",
        "/runs/r1/nodes/ask/resume",
        DONE,
        body={"input": 1, "resumeKey": "approval"},
    ),
    "resume": Command(
        ["resume", "r1", "a/ask", "--input", '{"ok": true}'],
        "POST",
        "/runs/r1/nodes/a/ask/resume",
        DONE,
        body={"input": {"ok": True}},
    ),
    "events": Command(
        ["events", "r1", "--after", "4"],
        "GET",
        "/runs/r1/events",
        {"events": [{"version": 5}], "version": 5, "next_after": None},
        [("after", "4"), ("limit", "1000")],
        printed={"version": 5},
    ),
    "output": Command(
        ["output", "r1", "loop[1]/a"],
        "GET",
        "/runs/r1/nodes/loop[1]/a/output",
        says([1, None], x_pyoco_output_kind="json"),
        printed={"run_id": "r1", "node_id": "loop[1]/a", "output_kind": "json", "value": [1, None]},
    ),
    "replay": Command(
        ["replay", "r1", "--at", "0"],
        "GET",
        "/runs/r1/events",
        NO_EVENTS,
        [("after", "0"), ("limit", "1000")],
        printed=...,
    ),
    "workers": Command(
        ["workers", "--scope", "all", "--state", "IDLE", "--include-hidden", "--limit", "3"],
        "GET",
        "/workers",
        [{"worker_id": "w", "state": "IDLE", "hidden": True, "tags": ["cpu"], "last_seen_at": 1.0}],
        [("scope", "all"), ("state", "IDLE"), ("include_hidden", "true"), ("limit", "3")],
    ),
    "workers that are gone": Command(
        ["workers", "--state", "DISCONNECTED"],
        "GET",
        "/workers",
        [{"worker_id": "w", "state": "DISCONNECTED", "hidden": False, "tags": [], "last_seen_at": 1.0}],
        [("scope", "all"), ("state", "DISCONNECTED")],
    ),
    "worker-hide": Command(
        ["worker-hide", "w"], "PATCH", "/workers/w", {"worker_id": "w", "hidden": True}, body={"hidden": True}
    ),
    "worker-show": Command(
        ["worker-show", "w"], "PATCH", "/workers/w", {"worker_id": "w", "hidden": False}, body={"hidden": False}
    ),
    "metrics": Command(["metrics"], "GET", "/metrics", Answer(body=b"pyoco_workers_alive_total 1\n"), printed=...),
    "dlq list": Command(["dlq", "list", "--limit", "5"], "GET", "/dlq", [LETTER], [("limit", "5")]),
    "dlq": Command(["dlq"], "GET", "/dlq", [LETTER]),
    "dlq show": Command(["dlq", "show", "17"], "GET", "/dlq/17", LETTER),
    "wheels": Command(["wheels"], "GET", "/wheels", [WHEEL]),
    "wheel-history": Command(
        ["wheel-history", "--limit", "100", "--wheel-name", "a.whl", "--action", "upload"],
        "GET",
        "/wheels/history",
        [{"occurred_at": 1.0, "action": "upload", "wheel_name": "a.whl", "actor": {}, "source": None}],
        [("limit", "100"), ("wheel_name", "a.whl"), ("action", "upload")],
    ),
    "wheel-upload": Command(
        ["wheel-upload", "--wheel-file", "a-1-py3-none-any.whl", "--tags", "cpu,linux", "--no-replace"],
        "POST",
        "/wheels",
        WHEEL,
        files={"a-1-py3-none-any.whl": b"\x00"},
    ),
    "wheel-delete": Command(
        ["wheel-delete", "--name", "a.whl"], "DELETE", "/wheels/a.whl", {"name": "a.whl", "deleted": True}
    ),
}
EVERY = pytest.mark.parametrize("name", COMMANDS)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Caller:
    """Runs the command in this process, with its output captured."""

    def __init__(self, gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> None:
        self.gateway = gateway
        self._capsys = capsys

    def __call__(self, *args: str) -> Done:
        return self.without_server("--server", self.gateway.url, *args)

    def without_server(self, *args: str) -> Done:
        try:
            code = main(list(args))
        except SystemExit as left:  # how argparse ends --help
            code = int(left.code or 0)
        return Done(code, *self._capsys.readouterr())
