"""A server with the answers of a test: real sockets, real HTTP, the documented shapes, and all kinds of failures."""

import asyncio
import contextlib
import json
import socket
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import uvicorn

from pyoco_server.messages import CATALOGUE, Language, error_body, negotiate

Chunks = Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """An answer; one with ``cut_off`` ends before it is complete."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Chunks | None = None
    cut_off: bool = False


Script = Answer | Callable[[Request], Answer]


def says(value: object, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, json.dumps(value).encode(), {"content-type": "application/json", **named})


def refuses(err_id: str, status: int | None = None, detail: object = None, **details: object) -> Script:
    entry = CATALOGUE[err_id]

    def answer(request: Request) -> Answer:
        language = negotiate(request.headers.get("accept-language"), default=Language.JA)
        code = status or entry.http_status or 500
        headers = {"retry_after": "0"} if code == 503 else {}
        return says(error_body(entry, language, details=details, detail=detail), code, **headers)

    return answer


def streams(*events: bytes, then: Callable[[], AsyncIterator[bytes]] | None = None, cut_off: bool = False) -> Answer:
    """Server-sent events, and the bytes after them."""

    async def chunks() -> AsyncIterator[bytes]:
        for event in events:
            yield event
        if then is not None:
            async for event in then():
                yield event

    return Answer(headers={"content-type": "text/event-stream"}, chunks=chunks, cut_off=cut_off)


async def silence() -> AsyncIterator[bytes]:
    """Send nothing, for ever."""
    await asyncio.Event().wait()
    yield b""


def event(snapshot: Mapping[str, Any]) -> bytes:
    data = {"run_id": snapshot["run_id"], "snapshot": snapshot, "ts": 1.0}
    return f"event: snapshot\ndata: {json.dumps(data)}\n\n".encode()


HEARTBEAT = b'event: heartbeat\ndata: {"run_id": "r1", "ts": 1.0}\n\n'


def snapshot(status: str, version: int = 1, **more: object) -> dict[str, Any]:
    """A run's snapshot as the gateway shows it."""
    return {
        "run_id": "r1",
        "flow_name": "hello",
        "status": status,
        "params": {},
        "tasks": {"greet": "RUNNING"},
        "heartbeat_at": 100.0 + version,
        "updated_at": 100.0 + version,
        "version": version,
        **more,
    }


class ScriptedGateway:
    """Answers of a route are sent in turn; the last one repeatedly."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._scripts: defaultdict[tuple[str, str], list[Script]] = defaultdict(list)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, method: str, path: str, *answers: Script) -> None:
        self._scripts[method, path] = list(answers)

    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]

    def reset(self) -> None:
        """Reset for another test."""
        self._scripts.clear()
        self.requests = []
        if self._listening.fileno() < 0:
            self.start()

    def start(self) -> None:
        """Listen; after a stop on the same port."""
        if self._listening.fileno() < 0:
            self._listening = socket.create_server(("127.0.0.1", self.port))
        config = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False
        )
        self._server = uvicorn.Server(config)
        sockets = [self._listening]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": sockets}, name="gateway")
        self._thread.start()

    def stop(self) -> None:
        """Break all connections and stop listening."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(10)
            assert not self._thread.is_alive()
        self._listening.close()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        request = await _received(scope, receive)
        self.requests.append(request)
        scripts = self._scripts[request.method, request.path]
        if not scripts:
            answer = says({"detail": "Not Found"}, 404)
        else:
            script = scripts.pop(0) if len(scripts) > 1 else scripts[0]
            answer = script if isinstance(script, Answer) else script(request)
        await _send(answer, send)


async def _received(scope: Any, receive: Any) -> Request:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
    query = parse_qsl(scope["query_string"].decode(), keep_blank_values=True)
    return Request(scope["method"], scope["path"], query, headers, body)


async def _send(answer: Answer, send: Any) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    if answer.chunks is None:
        headers.append((b"content-length", str(len(answer.body) + answer.cut_off).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if answer.chunks is None:
        await send({"type": "http.response.body", "body": answer.body, "more_body": answer.cut_off})
    else:
        async for chunk in answer.chunks():
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if answer.cut_off:
        return  # the server notices that the answer is not complete, and closes the connection
    if answer.chunks is not None:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.contextmanager
def scripted_gateway() -> Iterator[ScriptedGateway]:
    gateway = ScriptedGateway()
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()
