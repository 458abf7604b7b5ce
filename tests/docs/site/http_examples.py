"""One request to every route of a real gateway, and what it answered: the examples of docs/reference/http.md.

``python -m tests.docs.site.http_examples`` sends the requests again and writes the answers to http_examples.json.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import Stand, ended, listed, settings_for, submit, until, waiting
from tests.wheels.building import make_wheel, wheel_name

KEPT: Final = Path(__file__).with_name("http_examples.json")
LONGEST_LIST: Final = 2
"""Of a list so many entries are kept: the others look the same."""
LONGEST_TEXT: Final = 700
FLOW: Final = """\
version: 1
flow:
  graph: |
    first >> second
  defaults: {n: 3}
tasks:
  first: {callable: "tests.gateway.yaml_tasks:first"}
  second: {callable: "tests.gateway.yaml_tasks:second"}
"""
GRAPH: Final = {
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "draft", "nodeType": "Task", "retries": 1},
        {"nodeId": "review", "nodeType": "Task"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "draft"}, {"from": "draft", "to": "review"}, {"from": "review", "to": "end"}],
}

Example = dict[str, Any]


class Recorder:
    """Asks, and keeps what was said."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.examples: dict[str, Example] = {}

    def ask(self, method: str, path: str, *, expected: int = 200, **said: Any) -> Any:
        """Ask once; ``path`` is the route's, whose names are filled from ``at``. The answer, if it is JSON."""
        at: dict[str, str] = said.pop("at", {})
        shown: Any = said.pop("shown", None)
        answer = self.client.request(method, path.format(**at), **said)
        assert answer.status_code == expected, f"{method} {path}: {answer.status_code} {answer.text}"
        kind = answer.headers["content-type"].partition(";")[0]
        body = answer.json() if kind == "application/json" else None
        self.examples[f"{method} {path}"] = {
            "url": str(answer.request.url.raw_path, "ascii"),
            "request": shown if shown is not None else said.get("json"),
            "status": answer.status_code,
            "type": kind,
            "answer": _shortened(body) if body is not None else _text(answer, kind),
        }
        return body


def _text(answer: httpx.Response, kind: str) -> str:
    if not kind.startswith("text/"):
        return f"({len(answer.content)} bytes)"
    lines: list[str] = []
    size = 0
    for line in answer.text.splitlines():
        size += len(line)
        if size > LONGEST_TEXT:
            return "\n".join([*lines, "…"])
        lines.append(line)
    return "\n".join(lines)


def _shortened(value: Any) -> Any:
    match value:
        case dict():
            return {name: _shortened(item) for name, item in value.items()}
        case list():
            return [_shortened(item) for item in value[:LONGEST_LIST]]
        case _:
            return value


def record(stand: Stand) -> dict[str, Example]:
    """Ask for everything once."""
    with stand.client() as client:
        recorder = Recorder(client)
        _runs(recorder)
        _executions(recorder)
        _operating(recorder)
        return recorder.examples


def _runs(recorder: Recorder) -> None:
    ask, client = recorder.ask, recorder.client
    ask("GET", "/health")
    ask("GET", "/health/ready")
    run_id = ask("POST", "/runs", json={"flow_name": "hello", "params": {"name": "Ada"}})["run_id"]
    ended(client, run_id)
    ask("POST", "/runs/batch", json={"runs": [{"flow_name": "hello"}, {"flow_name": ""}]})
    form = {"flow_name": "from-yaml"}
    shown = {**form, "workflow": "@flow.yaml"}
    ask("POST", "/runs/yaml", files={"workflow": ("flow.yaml", FLOW.encode())}, data=form, shown=shown)
    at = {"run_id": run_id}
    ask("GET", "/runs/{run_id}", at=at, params={"include": "records"})
    ask("GET", "/runs/{run_id}/tasks", at=at)
    ask("GET", "/runs/{run_id}/events", at=at, params={"after": 0, "limit": 2})
    ask("GET", "/runs/{run_id}/graph", at=at)
    ask("GET", "/runs/{run_id}/state", at=at, params={"at": 4})
    ask("GET", "/runs/{run_id}/nodes/{node_id}/output", at={**at, "node_id": "greet"})
    ask("GET", "/runs/{run_id}/watch", at=at, params={"timeout_sec": 1})
    ask("GET", "/runs/~/watch", params={"timeout_sec": 1, "flow": "hello"})
    long = submit(client, "long")
    until(client, long, lambda snapshot: snapshot["status"] == "RUNNING")
    ask("POST", "/runs/{run_id}/cancel", at={"run_id": long}, json={"reason": "no longer needed"})
    ended(client, long)  # else it depends on who is quicker what is answered next
    ask("POST", "/runs/cancel", json={"run_ids": [long, "no-such-run"]})
    asking = submit(client, "ask")
    waiting(client, asking)
    at = {"run_id": asking, "node_id": "ask"}
    ask("POST", "/runs/{run_id}/nodes/{node_id}/resume", at=at, json={"input": {"approved": True}})
    ended(client, asking)
    ask("POST", "/runs/{run_id}/archive", at=at)
    failed = submit(client, "boom")
    ended(client, failed)
    ask("POST", "/runs/{run_id}/redrive", at={"run_id": failed}, json={"params": {"name": "Ada"}, "dry_run": True})
    listed(client, 1, flow="boom", status="FAILED")  # the list may lag behind a little
    ask("POST", "/runs/redrive", json={"filter": {"flow": "boom"}, "per_sec": 40, "limit": 1, "dry_run": True})
    listed(client, 2, flow="hello")
    while listed(client, 1, flow="ask")[0]["archived_at"] is None:  # the list may lag behind a little
        pass
    ask("GET", "/runs", params={"status": "COMPLETED", "limit": 2})


def _executions(recorder: Recorder) -> None:
    ask = recorder.ask
    ask("PUT", "/graphs/{graph_id}", at={"graph_id": "review"}, json=GRAPH, expected=201)
    ask("GET", "/graphs/{graph_id}", at={"graph_id": "review"})
    body = {"graphId": "review", "input": {"document": 17}, "executionId": "review-17"}
    ask("POST", "/executions", json=body, expected=202)
    at = {"execution_id": "review-17"}
    execution, node = "/executions/{execution_id}", "/executions/{execution_id}/nodes/{node_id}"
    ask("POST", f"{execution}/start", at=at, expected=202)
    draft, review = {**at, "node_id": "draft"}, {**at, "node_id": "review"}
    ask("POST", f"{node}/ready", at=draft)
    ask("POST", f"{node}/start", at=draft, json={"workerId": "ruby-1"}, expected=202)
    ask("POST", f"{node}/progress", at=draft, json={"progress": 40, "message": "page 4 of 10"}, expected=202)
    error = {"code": "TIMEOUT", "message": "no answer"}
    ask("POST", f"{node}/fail", at=draft, json={"attempt": 1, "error": error}, expected=202)
    ask("POST", f"{node}/start", at=draft, json={"workerId": "ruby-1"}, expected=202)
    ask("POST", f"{node}/succeed", at=draft, json={"attempt": 2, "output": {"pages": 10}}, expected=202)
    ask("POST", f"{node}/start", at=review, json={"workerId": "ruby-1"}, expected=202)
    prompt = {"waitKey": "approval", "prompt": {"question": "Ship it?"}}
    ask("POST", f"{node}/wait", at=review, json=prompt, expected=202)
    ask("POST", f"{node}/request-resume", at=review, json={"resumeKey": "approval"}, expected=202)
    resume = {"resumeKey": "approval", "input": {"approved": True}}
    ask("POST", f"{node}/resume", at=review, json=resume, expected=202)
    ask("GET", execution, at=at)
    ask("GET", f"{execution}/events", at=at, params={"after": 10, "limit": 2})
    ask("GET", f"{execution}/graph", at=at)
    ask("POST", f"{execution}/cancel", at=at, json={"reason": "no longer needed"}, expected=202)
    recorder.client.post("/executions/review-17/cancel")
    _end(recorder)
    ask("POST", f"{execution}/archive", at={"execution_id": "review-18"}, expected=202)


def _end(recorder: Recorder) -> None:
    """An execution that is over: one that was never started ends with its cancel."""
    client = recorder.client
    assert client.post("/executions", json={"graphId": "review", "executionId": "review-18"}).status_code == 202
    assert client.post("/executions/review-18/cancel").status_code == 202


def _operating(recorder: Recorder) -> None:
    ask, client = recorder.ask, recorder.client
    workers = ask("GET", "/workers")
    ask("PATCH", "/workers/{worker_id}", at={"worker_id": workers[0]["worker_id"]}, json={"hidden": True})
    ended(client, submit(client, "nowhere"))
    letters = ask("GET", "/dlq", params={"limit": 1})
    ask("GET", "/dlq/{sequence}", at={"sequence": str(letters[0]["sequence"])})
    name = wheel_name()
    files = {"wheel": (name, make_wheel())}
    ask("POST", "/wheels", files=files, data={"tags": "cpu"}, shown={"wheel": f"@{name}", "tags": "cpu"})
    ask("GET", "/wheels")
    ask("GET", "/wheels/{wheel_name}", at={"wheel_name": name})
    ask("DELETE", "/wheels/{wheel_name}", at={"wheel_name": name})
    ask("GET", "/wheels/history", params={"limit": 2})
    ask("GET", "/metrics")


@contextmanager
def a_stand(directory: Path) -> Iterator[Stand]:
    """A gateway with a worker, and a NATS of its own."""
    with NatsServer(directory / "nats") as nats, Stand(settings_for(nats.url, directory / "data")) as stand:
        yield stand


def main() -> int:
    """Send all requests, and write the answers."""
    with tempfile.TemporaryDirectory() as directory, a_stand(Path(directory)) as stand:
        examples = record(stand)
    KEPT.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
