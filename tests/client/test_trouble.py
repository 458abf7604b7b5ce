"""Refusals, broken connections, silence and garbage; which requests are repeated, and which never are."""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pyoco_server.client import ApiError, AsyncClient, Client, GatewayUnreachableError, UnexpectedAnswerError
from tests.client.scripted_gateway import Answer, Script, ScriptedGateway, refuses, says, snapshot

CUT = Answer(body=b'{"run_id": "r', cut_off=True)
"""The request arrived, the answer never did."""
AWAY = refuses("ERR-PYOCO-0003")


@pytest.mark.parametrize(
    ("err_id", "status", "message", "action"),
    [
        ("ERR-PYOCO-0014", 401, "API key が必要です", "API key を付与"),
        ("ERR-PYOCO-0015", 403, "API key が無効です", "API key を確認/再発行"),
        ("ERR-PYOCO-0005", 404, "runが見つかりません", "run_id確認"),
        ("ERR-PYOCO-0103", 409, "コマンドは拒否されました", "現在の状態を確認する"),
        ("ERR-PYOCO-0101", 413, "リクエストが大きすぎます", "小さく分けて送信する"),
        ("ERR-PYOCO-0002", 422, "リクエストが不正です", "入力修正"),
        ("ERR-PYOCO-0102", 429, "上限に達しました", "時間をおいて再試行"),
        ("ERR-PYOCO-0106", 500, "内部エラーが発生しました", "ログを確認する"),
    ],
)
def test_a_refusal_is_raised_with_all_its_facts(
    gateway: ScriptedGateway, client: Client, err_id: str, status: int, message: str, action: str
) -> None:
    gateway.on("GET", "/runs/r1", refuses(err_id, detail="this very case", fact=7))
    with pytest.raises(ApiError) as refused:
        client.get("r1")
    error = refused.value
    assert (error.status, error.err_id, error.msg_id) == (status, err_id, err_id.replace("ERR", "MSG"))
    assert (error.message, error.action, error.details) == (message, action, {"fact": 7})
    assert str(error) == f"HTTP {status}: {message}: this very case"
    assert len(gateway.requests) == 1  # trying again would not help
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301 our own
    assert (str(copied), copied.err_id, copied.details) == (str(error), err_id, {"fact": 7})


def test_problems_of_a_validation_are_in_the_text(gateway: ScriptedGateway, client: Client) -> None:
    findings = [{"loc": ["body", "flow_name"], "msg": "too short"}, {"loc": ["body"], "msg": "no"}, "odd"]
    gateway.on("POST", "/runs", refuses("ERR-PYOCO-0002", detail=findings))
    with pytest.raises(ApiError, match=r"flow_name: too short; no; odd$"):
        client.submit("")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says({"detail": "Not Found"}, 404), "HTTP 404: Not Found$"),
        (says(["odd"], 404), "HTTP 404: Not Found: odd"),
        (says({"error": {"message": 3, "details": []}, "detail": None}, 418), "HTTP 418: I'm a Teapot"),
        (Answer(502, b"<html>bad gateway</html>"), "HTTP 502: Bad Gateway: <html>bad gateway</html>"),
        (Answer(500, b"\xff\xfe" * 500), "HTTP 500: Internal Server Error"),
        (Answer(307, b"", {"location": "http://elsewhere/"}), "HTTP 307"),
        (Answer(200, b"<html>hello</html>", {"content-type": "text/html"}), "is this the address of a pyoco-server"),
        (Answer(200, b""), "not JSON"),
        (says([1]), "not an object"),
        (Answer(200, b"[" * 100_000), "not JSON"),
    ],
)
def test_an_answer_of_another_server_is_raised_with_its_text(
    gateway: ScriptedGateway, client: Client, answer: Answer, said: str
) -> None:
    gateway.on("GET", "/runs/r1", answer)
    with pytest.raises(ApiError, match=said) as refused:
        client.get("r1")
    assert refused.value.err_id is None
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("method", "path", "answer", "call"),
    [
        ("GET", "/workers", {"a": 1}, lambda c: c.workers()),
        ("GET", "/workers", ["a"], lambda c: c.workers()),
        ("GET", "/runs", {"runs": []}, lambda c: c.list()),
        ("GET", "/runs", [], lambda c: c.page()),
        ("POST", "/runs", {"run_id": 3}, lambda c: c.submit("f")),
        ("GET", "/runs/r/events", {"events": []}, lambda c: list(c.events("r"))),
    ],
)
def test_an_answer_of_another_shape_is_not_passed_on(
    gateway: ScriptedGateway, client: Client, method: str, path: str, answer: Any, call: Callable[[Client], Any]
) -> None:
    gateway.on(method, path, says(answer))
    with pytest.raises(UnexpectedAnswerError, match="is this the address of a pyoco-server"):
        call(client)


# --- Trying again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [CUT, AWAY])
def test_a_look_is_tried_again(gateway: ScriptedGateway, client: Client, trouble: Script) -> None:
    gateway.on("GET", "/runs/r1", trouble, trouble, says(snapshot("RUNNING")))
    assert client.get("r1")["status"] == "RUNNING"
    assert len(gateway.requests) == 3


@pytest.mark.parametrize("trouble", [CUT, AWAY])
def test_a_submission_is_never_doubled(gateway: ScriptedGateway, client: Client, trouble: Script) -> None:
    gateway.on("POST", "/runs", trouble, says({"run_id": "r2"}))
    with pytest.raises((ApiError, GatewayUnreachableError)) as failed:
        client.submit("f")
    assert len(gateway.requests) == 1
    if isinstance(failed.value, GatewayUnreachableError):
        assert failed.value.outcome_unknown
        assert "may still have been carried out" in str(failed.value)


@pytest.mark.parametrize("trouble", [CUT, AWAY])
def test_a_submission_with_a_key_is_tried_again(gateway: ScriptedGateway, client: Client, trouble: Script) -> None:
    gateway.on("POST", "/runs", trouble, says({"run_id": "r1"}))
    assert client.submit("f", {"x": 1}, idempotency_key="monday") == "r1"
    first, second = gateway.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "monday"
    assert first.body == second.body


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "/runs/yaml", lambda c: c.submit_yaml("a: 1", "f")),
        ("POST", "/runs/r1/cancel", lambda c: c.cancel("r1")),
        ("POST", "/runs/r1/nodes/n/resume", lambda c: c.resume("r1", "n")),
        ("POST", "/runs/r1/archive", lambda c: c.archive("r1")),
        ("PATCH", "/workers/w", lambda c: c.hide_worker("w")),
        ("POST", "/wheels", lambda c: c.upload_wheel(b"x", name="a.whl")),
        ("DELETE", "/wheels/a.whl", lambda c: c.delete_wheel("a.whl")),
    ],
)
def test_a_request_that_changes_something_is_sent_once(
    gateway: ScriptedGateway, client: Client, method: str, path: str, call: Callable[[Client], Any]
) -> None:
    gateway.on(method, path, AWAY)
    with pytest.raises(ApiError) as refused:
        call(client)
    assert refused.value.err_id == "ERR-PYOCO-0003"
    assert len(gateway.requests) == 1


def test_patience_has_an_end(gateway: ScriptedGateway) -> None:
    gateway.on("GET", "/runs/r1", AWAY)
    with Client(gateway.url, retries=2) as client, pytest.raises(ApiError) as refused:
        client.get("r1")
    assert refused.value.status == 503
    assert len(gateway.requests) == 3


def test_an_unreachable_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", retries=1) as client, pytest.raises(GatewayUnreachableError) as failed:
        client.submit("f")
    assert (failed.value.err_id, failed.value.msg_id) == ("ERR-PYOCO-0001", "MSG-PYOCO-0001")
    assert f"http://127.0.0.1:{port}: " in str(failed.value)
    assert not failed.value.outcome_unknown  # it never left


def test_an_answer_that_does_not_come_in_time(gateway: ScriptedGateway) -> None:
    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    gateway.on("GET", "/runs/r1", Answer(chunks=never))
    gateway.on("POST", "/runs", Answer(chunks=never))
    with Client(gateway.url, timeout=0.2) as client:
        with pytest.raises(GatewayUnreachableError, match="no answer in time"):
            client.get("r1")
        with pytest.raises(GatewayUnreachableError) as failed:
            client.submit("f")
    assert failed.value.outcome_unknown
    assert gateway.paths() == ["GET /runs/r1", "POST /runs"]  # a slow answer is not requested twice


def test_the_other_client_meets_the_same_trouble(gateway: ScriptedGateway) -> None:
    gateway.on("GET", "/runs/r1", CUT, AWAY, says(snapshot("RUNNING")))
    gateway.on("POST", "/runs", CUT)
    gateway.on("GET", "/runs/none", refuses("ERR-PYOCO-0005"))

    async def go() -> None:
        async with AsyncClient(gateway.url) as client:
            assert (await client.get("r1"))["status"] == "RUNNING"
            with pytest.raises(GatewayUnreachableError):
                await client.submit("f")
            with pytest.raises(ApiError) as refused:
                await client.get("none")
            assert refused.value.err_id == "ERR-PYOCO-0005"

    asyncio.run(go())
    assert gateway.paths().count("POST /runs") == 1
