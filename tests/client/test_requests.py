"""Every method of both clients: its request, and the result from the answer."""

import asyncio
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any

import pytest

from pyoco_server.client import AsyncClient, Client, Output, RunPage
from pyoco_server.client.methods import Operations, SeriesMethod, SingleMethod
from pyoco_server.errors import InvalidInputError
from tests.client.scripted_gateway import Answer, Request, ScriptedGateway, says, snapshot

ACCEPTED: Any = {"run_id": "r1", "status": "PENDING"}


@dataclass(frozen=True)
class Case:
    call: Callable[[Any], Any]
    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    body: object = None
    answer: Any = field(default_factory=lambda: ACCEPTED)
    result: Any = field(default_factory=lambda: ACCEPTED)


ROW: list[Any] = [{"name": "x"}]
CASES = {
    "health": Case(lambda c: c.health(), "GET", "/health"),
    "submit": Case(lambda c: c.submit("f"), "POST", "/runs", body={"flow_name": "f", "params": {}}, result="r1"),
    "submit with everything": Case(
        lambda c: c.submit("f", {"a": [1, None, "é"]}, tag="cpu", tags=["x", "y"], idempotency_key="k"),
        "POST",
        "/runs",
        body={"flow_name": "f", "params": {"a": [1, None, "é"]}, "tag": "cpu", "tags": ["x", "y"]},
        result="r1",
    ),
    "get": Case(lambda c: c.get("r 1/ä"), "GET", "/runs/r 1/ä"),
    "get with records": Case(lambda c: c.get("r1", "records"), "GET", "/runs/r1", [("include", "records")]),
    "get with many": Case(
        lambda c: c.get("r1", ["records", "full"]), "GET", "/runs/r1", [("include", "records"), ("include", "full")]
    ),
    "tasks": Case(lambda c: c.tasks("r1"), "GET", "/runs/r1/tasks"),
    "list": Case(lambda c: c.list(), "GET", "/runs", answer=ROW, result=ROW),
    "list with filters": Case(
        lambda c: c.list(
            status="FAILED",
            flow="f",
            tag="t",
            updated_after=1.5,
            submitted_after=0.5,
            cursor="abc",
            workflow_yaml_sha256="00",
            held=True,
            limit=7,
            include="full",
        ),
        "GET",
        "/runs",
        [
            ("status", "FAILED"),
            ("flow", "f"),
            ("tag", "t"),
            ("updated_after", "1.5"),
            ("submitted_after", "0.5"),
            ("cursor", "abc"),
            ("workflow_yaml_sha256", "00"),
            ("limit", "7"),
            ("held", "true"),
            ("include", "full"),
        ],
        answer={"items": ROW, "next_cursor": "n"},
        result=ROW,
    ),
    "page": Case(
        lambda c: c.page(limit=2),
        "GET",
        "/runs",
        [("limit", "2"), ("updated_after", "0.0")],
        answer={"items": ROW, "next_cursor": "n"},
        result=RunPage(ROW, "n"),
    ),
    "the last page": Case(
        lambda c: c.page(cursor="c"), "GET", "/runs", [("cursor", "c")], answer={"items": []}, result=RunPage([], None)
    ),
    "cancel": Case(lambda c: c.cancel("r1"), "POST", "/runs/r1/cancel", body={}),
    "cancel for a reason": Case(lambda c: c.cancel("r1", "why"), "POST", "/runs/r1/cancel", body={"reason": "why"}),
    "resume": Case(
        lambda c: c.resume("r1", "loop[1]/ask", {"ok": True}),
        "POST",
        "/runs/r1/nodes/loop[1]/ask/resume",
        body={"input": {"ok": True}},
    ),
    "resume what waits for a key": Case(
        lambda c: c.resume("r1", "ask", 1, resume_key="approval"),
        "POST",
        "/runs/r1/nodes/ask/resume",
        body={"input": 1, "resumeKey": "approval"},
    ),
    "resume with nothing": Case(
        lambda c: c.resume("r1", "ask"), "POST", "/runs/r1/nodes/ask/resume", body={"input": None}
    ),
    "archive": Case(lambda c: c.archive("r1"), "POST", "/runs/r1/archive"),
    "redrive": Case(lambda c: c.redrive("r1"), "POST", "/runs/r1/redrive", body={"from": "failed"}),
    "redrive with everything": Case(
        lambda c: c.redrive(
            "r1",
            from_=["a", "b"],
            params={"n": 1},
            tag="gpu",
            ask_again=["ok"],
            reason="why",
            dry_run=True,
        ),
        "POST",
        "/runs/r1/redrive",
        body={
            "from": ["a", "b"],
            "params": {"n": 1},
            "tag": "gpu",
            "ask_again": ["ok"],
            "reason": "why",
            "dry_run": True,
        },
    ),
    "redrive many": Case(
        lambda c: c.redrive_many(status="FAILED", error_code="E", ended_after=1.5, per_sec=2.0, limit=7, cursor="c"),
        "POST",
        "/runs/redrive",
        body={
            "filter": {"status": "FAILED", "error_code": "E", "ended_after": 1.5},
            "from": "failed",
            "per_sec": 2.0,
            "limit": 7,
            "cursor": "c",
        },
    ),
    "graph": Case(lambda c: c.graph("r1"), "GET", "/runs/r1/graph"),
    "output": Case(
        lambda c: c.output("r1", "loop[1]/a b"),
        "GET",
        "/runs/r1/nodes/loop[1]/a b/output",
        answer=Answer(body=b"[1]", headers={"X-Pyoco-Output-Kind": "json"}),
        result=Output("json", b"[1]"),
    ),
    "state": Case(lambda c: c.state("r1"), "GET", "/runs/r1/state"),
    "state then": Case(lambda c: c.state("r1", 3), "GET", "/runs/r1/state", [("at", "3")]),
    "workers": Case(lambda c: c.workers(), "GET", "/workers", answer=ROW, result=ROW),
    "workers with filters": Case(
        lambda c: c.workers(scope="all", state="IDLE", include_hidden=True, limit=3),
        "GET",
        "/workers",
        [("scope", "all"), ("state", "IDLE"), ("include_hidden", "true"), ("limit", "3")],
        answer=ROW,
        result=ROW,
    ),
    "hide a worker": Case(lambda c: c.hide_worker("w"), "PATCH", "/workers/w", body={"hidden": True}),
    "show a worker": Case(lambda c: c.show_worker("w"), "PATCH", "/workers/w", body={"hidden": False}),
    "metrics": Case(lambda c: c.metrics(), "GET", "/metrics", answer=1, result="1"),
    "dead letters": Case(lambda c: c.dlq(), "GET", "/dlq", answer=ROW, result=ROW),
    "some dead letters": Case(lambda c: c.dlq(2), "GET", "/dlq", [("limit", "2")], answer=ROW, result=ROW),
    "a dead letter": Case(lambda c: c.dead_letter(17), "GET", "/dlq/17"),
    "wheels": Case(lambda c: c.wheels(), "GET", "/wheels", answer=ROW, result=ROW),
    "wheel history": Case(
        lambda c: c.wheel_history(limit=3, wheel_name="a.whl", action="upload"),
        "GET",
        "/wheels/history",
        [("limit", "3"), ("wheel_name", "a.whl"), ("action", "upload")],
        answer=ROW,
        result=ROW,
    ),
    "download a wheel": Case(lambda c: c.download_wheel("a.whl"), "GET", "/wheels/a.whl", answer=1, result=b"1"),
    "delete a wheel": Case(lambda c: c.delete_wheel("a.whl"), "DELETE", "/wheels/a.whl"),
}


def blocking(gateway: ScriptedGateway, call: Callable[[Any], Any]) -> Any:
    with Client(gateway.url) as client:
        result = call(client)
        return list(result) if isinstance(result, Iterator) else result


def asynchronous(gateway: ScriptedGateway, call: Callable[[Any], Any]) -> Any:
    async def go() -> Any:
        async with AsyncClient(gateway.url) as client:
            result = call(client)
            return [item async for item in result] if isinstance(result, AsyncIterator) else await result

    return asyncio.run(go())


BOTH = pytest.mark.parametrize("ask", [blocking, asynchronous])


@BOTH
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_method_sends_its_request_and_returns_its_result(
    gateway: ScriptedGateway, ask: Callable[..., Any], case: Case
) -> None:
    gateway.on(case.method, case.path, case.answer if isinstance(case.answer, Answer) else says(case.answer))
    assert ask(gateway, case.call) == case.result
    (request,) = gateway.requests
    assert request.query == case.query
    assert (request.json if request.body else None) == case.body


def test_both_clients_have_the_same_methods() -> None:
    methods = {name for name, found in vars(Operations).items() if isinstance(found, SingleMethod | SeriesMethod)}
    assert len(methods) > 20
    for name in methods:
        assert getattr(Client, name) is getattr(AsyncClient, name)
        assert inspect.getdoc(getattr(Client, name))


@BOTH
def test_iterate_follows_the_cursor(gateway: ScriptedGateway, ask: Callable[..., Any]) -> None:
    pages: list[dict[str, Any]] = [
        {"items": [{"run_id": "a"}, {"run_id": "b"}], "next_cursor": "1"},
        {"items": [], "next_cursor": "2"},
        {"items": [{"run_id": "c"}], "next_cursor": None},
    ]
    gateway.on("GET", "/runs", *(says(page) for page in pages))
    found = ask(gateway, lambda client: client.iterate(flow="f", limit=2))
    assert [run["run_id"] for run in found] == ["a", "b", "c"]
    assert [dict(request.query).get("cursor") for request in gateway.requests] == [None, "1", "2"]
    assert all(dict(request.query)["flow"] == "f" for request in gateway.requests)
    assert dict(gateway.requests[0].query)["updated_after"] == "0.0"  # or there would be no cursor in the answer


@BOTH
def test_events_are_read_to_the_end_of_the_log(gateway: ScriptedGateway, ask: Callable[..., Any]) -> None:
    first = says({"events": [{"version": 3}, {"version": 4}], "version": 4, "next_after": 4})
    gateway.on("GET", "/runs/r1/events", first, says({"events": [{"version": 5}], "version": 5, "next_after": None}))
    found = ask(gateway, lambda client: client.events("r1", after=2))
    assert [one["version"] for one in found] == [3, 4, 5]
    assert [dict(request.query)["after"] for request in gateway.requests] == ["2", "4"]


@BOTH
def test_notes_about_an_inconsistent_log_are_passed_on_once(gateway: ScriptedGateway, ask: Callable[..., Any]) -> None:
    pages: list[dict[str, Any]] = [
        {"events": [{"version": 1}], "version": 1, "next_after": 1, "notes": ["odd"]},
        {"events": [{"version": 2}], "version": 2, "next_after": None, "notes": ["odd"]},
    ]
    gateway.on("GET", "/runs/r1/events", *map(says, pages))
    noted: list[tuple[str, ...]] = []
    assert len(ask(gateway, lambda client: client.events("r1", on_notes=noted.append))) == 2
    assert noted == [("odd",)]


def parts(request: Request) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a multipart body by name: the file's name and the content."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + request.body)
    found = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found[str(name)] = (part.get_filename(), content)
    return found


@pytest.mark.parametrize("as_file", [True, False])
def test_a_flow_yaml_is_sent_as_a_file(gateway: ScriptedGateway, client: Client, tmp_path: Path, as_file: bool) -> None:
    gateway.on("POST", "/runs/yaml", says({"run_id": "r1"}))
    text = "version: 1\n# é\n"
    (tmp_path / "flow.yaml").write_text(text, encoding="utf-8")
    assert client.submit_yaml(tmp_path / "flow.yaml" if as_file else text, "hello", tag="cpu") == "r1"
    assert parts(gateway.requests[0]) == {
        "workflow": ("flow.yaml", text.encode()),
        "flow_name": (None, b"hello"),
        "tag": (None, b"cpu"),
    }


def test_a_wheel_is_sent_as_a_file(gateway: ScriptedGateway, client: Client, tmp_path: Path) -> None:
    gateway.on("POST", "/wheels", says({"name": "a.whl"}))
    (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"\x00\xff")
    client.upload_wheel(tmp_path / "a-1-py3-none-any.whl", tags=["cpu", "linux"], replace=False)
    client.upload_wheel(b"\x01", name="b-1-py3-none-any.whl")
    first, second = (parts(request) for request in gateway.requests)
    assert first == {
        "wheel": ("a-1-py3-none-any.whl", b"\x00\xff"),
        "tags": (None, b"cpu,linux"),
        "replace": (None, b"false"),
    }
    assert second == {"wheel": ("b-1-py3-none-any.whl", b"\x01"), "replace": (None, b"true")}


def test_key_and_language_go_with_every_request(gateway: ScriptedGateway) -> None:
    gateway.on("GET", "/runs/r1", says(snapshot("RUNNING")))
    with Client(f"{gateway.url}/", api_key="secret", api_key_header="X-Team-Key", lang="en") as client:
        client.get("r1")
    headers = gateway.requests[0].headers
    assert headers["x-team-key"] == "secret"
    assert headers["accept-language"] == "en"
    assert "x-api-key" not in headers


def test_a_gateway_may_live_below_a_path(gateway: ScriptedGateway) -> None:
    gateway.on("GET", "/team/pyoco/runs/r1", says(snapshot("RUNNING")))
    with Client(f"{gateway.url}/team/pyoco/") as client:
        assert client.get("r1")["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.get(""), "run_id: '' is not valid"),
        (lambda c: c.get(".."), "run_id: '..' is not valid"),
        (lambda c: c.get("\ud800"), "is not text"),
        (lambda c: c.resume("r", "a/../b"), "node: 'a/../b' is not valid"),
        (lambda c: c.submit("f", {"x": object()}), r"a object is not accepted here.*params\.x"),
        (lambda c: c.resume("r", "n", [re.compile("x")]), r"a Pattern is not accepted here.*input\[0\]"),
        (lambda c: c.submit("f", idempotency_key="a\nb"), "idempotency_key"),
        (lambda c: c.submit("f", idempotency_key=""), "idempotency_key"),
        (lambda c: c.upload_wheel(b"x"), "name: bytes have no file name"),
    ],
)
def test_an_argument_that_is_not_valid_is_not_sent(
    gateway: ScriptedGateway, client: Client, call: Callable[[Client], Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        call(client)
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("server", "more"),
    [
        ("", {}),
        ("localhost:8000", {}),
        ("ftp://localhost", {}),
        ("http://", {}),
        ("http://a b", {}),
        ("http://[1", {}),
        ("http://localhost:port", {}),
        ("http://localhost?x=1", {}),
        ("http://localhost", {"lang": "fr"}),
        ("http://localhost", {"api_key": "a\r\nX-Other: b"}),
        ("http://localhost", {"api_key": "k", "api_key_header": "X Y"}),
    ],
)
def test_a_client_that_cannot_work_is_refused(server: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        Client(server, **more)
    assert "X-Other" not in str(refused.value)  # a key is a secret even if it cannot be one


def test_json_is_sent_as_it_was_meant(gateway: ScriptedGateway, client: Client) -> None:
    gateway.on("POST", "/runs", says({"run_id": "r1"}))
    client.submit("f", {"big": 2**60, "text": "日本\u2028"})
    assert json.loads(gateway.requests[0].body)["params"] == {"big": 2**60, "text": "日本\u2028"}
