"""Outages of NATS: requests fail at once, no accepted run is lost, and the gateway recovers by itself."""

import asyncio
import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.adapters.real_nats import NatsServer
from tests.gateway.sse import watching
from tests.gateway.stand import (
    Stand,
    check_error,
    ended,
    eventually,
    listed,
    sent,
    settings_for,
    submit,
    unique,
    waiting,
)
from tests.waiting import wait_until

OPEN = {"/health", "/health/ready"}
FILE = {"workflow": ("flow.yaml", b"version: 1\nflow:\n  graph: a\ntasks:\n  a:\n    callable: m:f\n")}
WHEEL = {"wheel": ("x-1-py3-none-any.whl", b"PK")}
GRAPH = {
    "nodes": [{"nodeId": "start", "nodeType": "Start"}, {"nodeId": "end", "nodeType": "Success"}],
    "edges": [{"from": "start", "to": "end"}],
}
BODIES: dict[str, Any] = {
    "POST /runs": {"json": {"flow_name": "hello"}},
    "POST /runs/batch": {"json": {"runs": [{"flow_name": "hello"}] * 3}},
    "POST /runs/yaml": {"files": FILE, "data": {"flow_name": "f"}},
    "POST /runs/cancel": {"json": {"flow": "hello"}},
    "POST /runs/redrive": {"json": {"filter": {"flow": "hello"}}},
    "POST /executions": {"json": {"graphId": "g"}},
    "PUT /graphs/{graph_id}": {"json": GRAPH},
    "PATCH /workers/{worker_id}": {"json": {"hidden": True}},
    "POST /wheels": {"files": WHEEL},
}
NO_CONNECTION = "there is no connection to NATS; the gateway is reconnecting"
"""The detail of a refusal that has sent nothing to NATS, and so has waited for nothing."""
TIMED_OUT = re.compile(r"NATS did not answer( within [\d.]+ s$|: no answer for [\d.]+ s$|: nats: timeout$)")
"""The detail of a refusal after the time limit of the request."""
IDS = {"run_id": "r", "execution_id": "r", "node_id": "n", "graph_id": "g", "worker_id": "w", "sequence": "1"}


def routes(stand: Stand) -> Iterator[tuple[str, str]]:
    """Every route that is documented and needs NATS."""
    for path, operations in stand.app.openapi()["paths"].items():
        for method in operations:
            if path not in OPEN:
                yield method.upper(), path


def ask(client: httpx.Client, method: str, path: str) -> httpx.Response:
    filled = path
    for name, value in {**IDS, "wheel_name": "x-1-py3-none-any.whl"}.items():
        filled = filled.replace(f"{{{name}}}", value)
    otherwise: dict[str, Any] = {"json": {}} if method in {"POST", "PUT", "PATCH"} else {}
    return client.request(method, filled, **BODIES.get(f"{method} {path}", otherwise))


def disconnected(stand: Stand) -> None:
    asyncio.run(wait_until(lambda: not stand.services.store.is_connected))


def reconnected(stand: Stand) -> None:
    asyncio.run(wait_until(lambda: stand.services.store.is_connected))


@pytest.mark.spec(
    "004 REQ-0001",
    "004 REQ-0002",
    "004 REQ-0004",
    "004 REQ-0005",
    "004 REQ-0006",
    "004 REQ-0014",
    "004 REQ-0015",
    "004 REQ-0018",
    "004 REQ-0019",
    "004 REQ-0022",
    "004 REQ-0023",
    "004 REQ-0025",
    "004 ERR-PYOCO-0003",
    "004 MSG-PYOCO-0003",
)
def test_every_route_says_that_nats_is_away_and_works_again(own_nats: NatsServer, tmp_path: Path) -> None:
    with Stand(settings_for(own_nats.url, tmp_path), workers=0) as stand, stand.client() as client:
        run_id = submit(client)
        listed(client, 1)
        own_nats.kill()
        disconnected(stand)
        asked = [*routes(stand)]
        assert len(asked) > 30
        for method, path in asked:
            answer = ask(client, method, path)
            error = check_error(answer, 503, "ERR-PYOCO-0003")
            assert error["message"] == "NATS is not available"
            assert answer.json()["detail"] == NO_CONNECTION, f"{method} {path}"
            assert answer.headers["Retry-After"] == "1"
        assert client.get("/health").json() == {"status": "ok"}
        ready = client.get("/health/ready")
        assert (ready.status_code, ready.json()["nats"]) == (503, "disconnected")
        assert client.get("/openapi.json").status_code == 200
        own_nats.start()
        reconnected(stand)
        assert client.get(f"/runs/{run_id}").json()["status"] == "PENDING"
        assert [run["run_id"] for run in listed(client, 1)] == [run_id]
        assert submit(client) != run_id


INVALID: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/runs", {"json": {}}, "ERR-PYOCO-0002"),
    ("POST", "/runs", {"content": b"{"}, "ERR-PYOCO-0002"),
    ("POST", "/runs?wait_sec=-1", {"json": {"flow_name": "hello"}}, "ERR-PYOCO-0002"),
    (
        "POST",
        "/runs",
        {"json": {"flow_name": "hello", "tag": "a b"}, "headers": {"Idempotency-Key": "k"}},
        "ERR-PYOCO-0002",
    ),
    ("POST", "/runs/batch", {"json": {"runs": []}}, "ERR-PYOCO-0002"),
    ("POST", "/runs/yaml", {"data": {"flow_name": "f"}}, "ERR-PYOCO-0002"),
    ("POST", "/runs/yaml", {"files": {"workflow": ("f", b"- 1")}, "data": {"flow_name": "f"}}, "ERR-PYOCO-0002"),
    ("POST", "/runs/cancel", {"json": {}}, "ERR-PYOCO-0002"),
    ("POST", "/runs/cancel", {"json": {"status": "GONE"}}, "ERR-PYOCO-0002"),
    ("POST", "/runs/r/nodes/n/resume", {"json": {"unknown": 1}}, "ERR-PYOCO-0002"),
    ("GET", "/runs?limit=0", {}, "ERR-PYOCO-0017"),
    ("GET", "/runs?cursor=x", {}, "ERR-PYOCO-0017"),
    ("GET", "/runs/r/watch?timeout_sec=0", {}, "ERR-PYOCO-0002"),
    ("GET", "/runs/r/events?after=-1", {}, "ERR-PYOCO-0002"),
    ("POST", "/executions", {"json": {"executionId": "a b"}}, "ERR-PYOCO-0002"),
    ("PUT", "/graphs/g", {"json": {"nodes": 1, "edges": []}}, "ERR-PYOCO-0002"),
    ("GET", "/workers?limit=0", {}, "ERR-PYOCO-0019"),
    ("PATCH", "/workers/w", {"json": {}}, "ERR-PYOCO-0019"),
    ("GET", "/wheels/history?limit=0", {}, "ERR-PYOCO-0002"),
    ("GET", "/dlq?limit=0", {}, "ERR-PYOCO-0002"),
]


def test_a_request_that_is_not_valid_is_refused_also_without_nats(own_nats: NatsServer, tmp_path: Path) -> None:
    with Stand(settings_for(own_nats.url, tmp_path), workers=0) as stand, stand.client() as client:
        own_nats.kill()
        disconnected(stand)
        for method, path, sent, err_id in INVALID:
            check_error(client.request(method, path, **sent), 422, err_id)
        many = {"run_ids": ["r", "s"]}
        check_error(client.post("/runs/cancel", json=many), 503, "ERR-PYOCO-0003")  # as a whole, not for each
        entries = {"runs": [{"flow_name": "hello"}, {}]}
        check_error(client.post("/runs/batch", json=entries), 503, "ERR-PYOCO-0003")


@pytest.mark.spec("004 REQ-0002", "004 REQ-0003", "004 ERR-PYOCO-0003")
def test_a_server_that_does_not_answer_costs_no_long_wait(own_nats: NatsServer, tmp_path: Path) -> None:
    """The server accepts messages and does not answer: the gateway cannot know yet that it is stuck."""
    key = {"Idempotency-Key": "again"}
    body = {"flow_name": "hello", "tag": "no-worker"}
    with Stand(settings_for(own_nats.url, tmp_path), workers=0) as stand, stand.client() as client:
        run_id = submit(client, tag="no-worker")
        asks: list[Callable[[], httpx.Response]] = [
            lambda: client.get(f"/runs/{run_id}"),
            lambda: client.post("/runs", json=body, headers=key),
            lambda: client.post(f"/runs/{run_id}/cancel"),
        ]
        for asking in asks:
            own_nats.pause()
            try:
                answer = asking()
            finally:
                own_nats.resume()
            check_error(answer, 503, "ERR-PYOCO-0003")
            assert TIMED_OUT.match(answer.json()["detail"]), answer.text  # the connection itself still seemed alive
            # A reply proves that the server has answered the pings, too: the connection is as it was.
            assert sent(client, "GET", f"/runs/{run_id}").status_code == 200

        def submitted_again() -> httpx.Response:
            return client.post("/runs", json=body, headers=key)

        async def accepted() -> bool:
            return (await asyncio.to_thread(submitted_again)).status_code == 200

        asyncio.run(eventually(accepted))
        again = submitted_again().json()["run_id"]
        assert {run["run_id"] for run in listed(client, 2, tag="no-worker")} == {run_id, again}


class Traffic:
    """A client that submits without a pause, and counts the answers."""

    def __init__(self, stand: Stand, tag: str) -> None:
        self.accepted: list[str] = []
        self.answers: Counter[tuple[int, str]] = Counter()
        self._stand = stand
        self._tag = tag
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(3)]

    def _run(self) -> None:
        with self._stand.client() as client:
            while not self._stop.is_set():
                answer = client.post("/runs", json={"flow_name": "hello", "tags": [self._tag]})
                said = answer.json()
                self.answers[answer.status_code, said.get("error", {}).get("err_id", "")] += 1
                if answer.status_code == 200:
                    self.accepted.append(said["run_id"])
                look = client.get("/runs", params={"limit": 1})
                self.answers[look.status_code, "" if look.status_code == 200 else look.json()["error"]["err_id"]] += 1

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


@pytest.mark.spec("004 REQ-0003", "004 REQ-0019", "004 ERR-PYOCO-0003")
def test_nats_dies_under_traffic_and_nothing_that_was_accepted_is_lost(own_nats: NatsServer, tmp_path: Path) -> None:
    quick = {"PYOCO_CONSUMER_ACK_WAIT_SEC": "2", "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "0.5"}
    with Stand(settings_for(own_nats.url, tmp_path, **quick)) as stand, stand.client() as client:
        watched = submit(client, "ask")
        waiting(client, watched)

        async def body(traffic: Traffic) -> None:
            async with watching(stand.url, watched, "timeout_sec=100") as mine:
                assert (await mine.next())["snapshot"]["status"] == "RUNNING"
                for _ in range(2):
                    enough = len(traffic.accepted) + 20
                    await wait_until(lambda enough=enough: len(traffic.accepted) >= enough)  # type: ignore[misc]
                    own_nats.kill()
                    most = traffic.answers[503, "ERR-PYOCO-0003"] + 10
                    await wait_until(lambda most=most: traffic.answers[503, "ERR-PYOCO-0003"] >= most)  # type: ignore[misc]
                    own_nats.start()
                enough = len(traffic.accepted) + 20
                await wait_until(lambda: len(traffic.accepted) >= enough)

                async def resumed() -> bool:
                    resume = f"/runs/{watched}/nodes/ask/resume"
                    return (await asyncio.to_thread(client.post, resume, json={"input": 1})).status_code == 200

                await eventually(resumed)
                while (await mine.next())["snapshot"]["status"] != "COMPLETED":
                    pass  # the same connection, through all of it

        traffic = Traffic(stand, unique("traffic"))
        with traffic.flowing():
            asyncio.run(asyncio.wait_for(body(traffic), 100))
        assert set(traffic.answers) == {(200, ""), (503, "ERR-PYOCO-0003")}
        assert len(set(traffic.accepted)) == len(traffic.accepted)
        for run_id in traffic.accepted:
            assert ended(client, run_id)["status"] == "COMPLETED"
