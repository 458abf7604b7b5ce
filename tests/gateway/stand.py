"""A gateway on a real socket with workers, in an event loop of its own; tests send requests to it over HTTP."""

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import uvicorn
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import wait
from pyoco_server.bootstrap import open_platform, open_worker, worker_options
from pyoco_server.bootstrap.gateway import open_gateway
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.gateway.app import create_app
from pyoco_server.gateway.middleware.connections import connection_limits
from pyoco_server.gateway.middleware.write_coalescing import http_protocol
from pyoco_server.gateway.services import Services
from pyoco_server.settings import Settings, load_settings
from pyoco_server.worker.flow_source import FlowSource
from tests.plain_http import NO_TLS
from tests.waiting import PATIENCE_SEC

R = TypeVar("R")
TERMINAL = {"COMPLETED", "FAILED", "CANCELLED"}
_numbers = itertools.count(1)


def settings_for(nats_url: str, directory: Path, **variables: str) -> Settings:
    """Settings of one gateway or worker, independent of the environment."""
    given = {"PYOCO_NATS_URL": nats_url, "PYOCO_DATA_DIR": str(directory), "PYOCO_LOAD_DOTENV": "0"}
    return load_settings({**given, **variables}).settings


class Stand:
    """A gateway and workers that run inside ``with``."""

    def __init__(self, settings: Settings, *, workers: int = 1) -> None:
        self.settings = settings
        self.url = ""
        self.app = create_app(lambda: open_gateway(settings))
        self.connections = connection_limits(settings)
        self._workers = workers
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="stand")

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result(timeout=30)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    @property
    def services(self) -> Services:
        """The services of the gateway."""
        given: Services = self.app.state.services
        return given

    def call(self, body: Callable[[Services], Coroutine[Any, Any, R]], *, timeout_sec: float = 30) -> R:
        """Run a coroutine in the gateway's event loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(body(self.services), self._loop).result(timeout=timeout_sec)

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[httpx.Client]:
        """A client; its errors are in English."""
        headers = {"Accept-Language": "en", **options.pop("headers", {})}
        with httpx.Client(base_url=self.url, headers=headers, timeout=20, verify=NO_TLS, **options) as client:
            yield client

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(2_048)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=http_protocol(self.connections),
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(self._workers):
                await stack.enter_async_context(a_worker(self.settings))
            while not server.started and not serving.done():  # noqa: ASYNC110 uvicorn has no event for it
                await asyncio.sleep(0.005)
            if serving.done():
                serving.result()
            self._ready.set_result(None)
            await self._stop.wait()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """A server without signal handlers, which belong to the test runner."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def a_worker(settings: Settings, *tags: str, flows: Callable[[str], Flow] | None = None) -> AsyncIterator[None]:
    """A worker with the flows below."""
    source = FlowSource(flows or FLOWS, CallablePolicy(places=["tests.gateway.yaml_tasks"]))
    async with open_platform(settings, name="test worker") as platform:
        options = worker_options(settings, tags=tags, worker_id=f"worker-{next(_numbers)}")
        async with open_worker(platform, settings, options, source) as worker:
            working = asyncio.create_task(worker.run())
            try:
                yield
            finally:
                worker.stop()
                await asyncio.gather(working, return_exceptions=True)


# --- Flows -----------------------------------------------------------------------------------------------------------


def _task(name: str, body: Callable[..., Any]) -> TaskWrapper:
    return TaskWrapper(Task(func=body, name=name))


async def _greet(ctx: Any) -> str:
    return f"hello {ctx.params.get('name', 'world')}"


async def _end(ctx: Any) -> int:
    return len(ctx.results["greet"])


def _boom(ctx: Any) -> None:
    raise ValueError(f"no good: {ctx.params.get('name')}")


async def _long(ctx: Any) -> None:  # noqa: ARG001 as tasks are called
    await asyncio.sleep(60)


def _take(ctx: Any) -> Any:
    return ctx.results["ask"]


CALLED: list[tuple[str, str]] = []
"""The run and the task of every call that the tasks of ``order`` had, by workers in this process."""


def _called(name: str, result: Any) -> TaskWrapper:
    def call(ctx: Any) -> Any:
        CALLED.append((ctx.run_context.run_id, name))
        if name == "ship" and "address" not in ctx.params:
            raise LookupError("no address")
        return result

    return _task(name, call)


_MADE: Mapping[str, Callable[[], Flow]] = {
    "hello": lambda: Flow("hello") >> _task("greet", _greet) >> _task("end", _end),
    "boom": lambda: Flow("boom") >> _task("fails", _boom),
    "long": lambda: Flow("long") >> _task("sleeps", _long),
    "ask": lambda: Flow("ask") >> wait("ask", key="approval", prompt={"question": "?"}) >> _task("take", _take),
    "order": lambda: (
        Flow("order")
        >> _called("charge", ("paid", 12))
        >> _called("receipt", "r" * 100_000)
        >> wait("approve")
        >> _called("ship", "shipped")
        >> _called("notify", "done")
    ),
    "due": lambda: Flow("due") >> wait("ask", deadline_sec=0.2, default="late") >> _task("take", _take),
}


def FLOWS(name: str) -> Flow:  # noqa: N802 a function that is used like a table
    """Return a new flow of this name; KeyError if there is none."""
    return _MADE[name]()


# --- Helpers ---------------------------------------------------------------------------------------------------------


def unique(what: str) -> str:
    """Return a name that no other test uses."""
    return f"{what}-{next(_numbers)}"


def submit(client: httpx.Client, flow: str = "hello", **fields: Any) -> str:
    """Submit a run and return its id."""
    answer = sent(client, "POST", "/runs", json={"flow_name": flow, **fields})
    assert answer.status_code == 200, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


def sent(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request, again while NATS does not answer in time: that may be so on a loaded machine."""
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        answer = client.request(method, path, **options)
        if answer.status_code != 503 or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


def until(
    client: httpx.Client, run_id: str, holds: Callable[[dict[str, Any]], object], timeout_sec: float = PATIENCE_SEC
) -> dict[str, Any]:
    """Return the run's snapshot as soon as the condition holds."""
    deadline = time.monotonic() + timeout_sec
    while True:
        snapshot: dict[str, Any] = sent(client, "GET", f"/runs/{run_id}", params={"include": "records"}).json()
        if holds(snapshot):
            return snapshot
        assert time.monotonic() < deadline, f"the condition did not hold in time: {snapshot}"
        time.sleep(0.01)


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """Return the run's snapshot when it has ended."""
    return until(client, run_id, lambda snapshot: snapshot["status"] in TERMINAL)


def waiting(client: httpx.Client, run_id: str) -> dict[str, Any]:
    """Return the run's snapshot when it has reached a wait."""
    return until(client, run_id, lambda snapshot: snapshot["waiting"])


def listed(client: httpx.Client, count: int, **query: Any) -> list[dict[str, Any]]:
    """Return the list as soon as it has so many runs: it may lag behind a little."""
    deadline = time.monotonic() + PATIENCE_SEC
    while True:
        found: list[dict[str, Any]] = sent(client, "GET", "/runs", params={"limit": 200, **query}).json()
        if len(found) == count:
            return found
        assert time.monotonic() < deadline, f"{len(found)} runs are listed, not {count}"
        time.sleep(0.01)


def check_error(answer: httpx.Response, status: int, err_id: str) -> dict[str, Any]:
    """Check the shape, the status and the id of an error; return its facts."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "detail"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"err_id", "msg_id", "message", "action", "details"}
    assert (error["err_id"], error["msg_id"]) == (err_id, err_id.replace("ERR", "MSG"))
    assert error["message"]
    assert error["action"]
    assert body["detail"]
    return error


async def eventually(condition: Callable[[], Awaitable[object]], timeout_sec: float = PATIENCE_SEC) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + timeout_sec
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        await asyncio.sleep(0.02)
