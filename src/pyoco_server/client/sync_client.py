"""The blocking client, and how it performs the steps of a request."""

import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from pyoco_server.client import config as setup
from pyoco_server.client.methods import Operations
from pyoco_server.client.sans_io import (
    CloseStream,
    Exchange,
    Item,
    OpenStream,
    Pause,
    ReadStream,
    Reply,
    Request,
    RequestSeries,
    Step,
)
from pyoco_server.messages import Language

T = TypeVar("T")


class Client(Operations):
    """A client of a gateway; threads may share it. Close it, or use it as a context manager.

    Iterators (``watch``, ``iterate``, ``events``) hold a connection until they end, or until their ``close()``.

    Without ``server``, the address is ``PYOCO_SERVER_URL``, else http://127.0.0.1:8000; without ``api_key``, the key is
    ``PYOCO_API_KEY``, if it is set. An empty ``api_key`` sends none.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        api_key: str | None = None,
        api_key_header: str = setup.DEFAULT_API_KEY_HEADER,
        lang: Language | str | None = None,
        timeout: float = setup.REQUEST_SEC,
        retries: int = setup.RETRIES,
        reconnect: float = setup.RECONNECT_SEC,
        poll: float = setup.POLL_SEC,
    ) -> None:
        self.server = setup.server_url(server)
        self._policy = setup.retry_policy(self.server, retries=retries, reconnect=reconnect, poll=poll)
        headers = setup.request_headers(api_key, api_key_header, lang)
        self._http = httpx.Client(
            base_url=self.server,
            headers=headers,
            timeout=setup.timeouts(timeout),
            verify=setup.trusted(self.server),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def do(self, plan: Request[T]) -> T:
        """Perform a request and return its result."""
        steps = plan.steps(self._policy)
        exchange = _SyncExchange(self._http)
        reply: object = None
        try:
            while True:
                reply = exchange.perform(steps.send(reply))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
            exchange.close_stream()

    def each(self, series: RequestSeries[T]) -> Generator[T, None, None]:
        """Perform a series of requests and yield its results."""
        steps = series.steps(self._policy)
        exchange = _SyncExchange(self._http)
        reply: object = None
        try:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration:
                    return
                reply = None
                if isinstance(step, Item):
                    yield step.value
                else:
                    reply = exchange.perform(step)
        finally:
            steps.close()
            exchange.close_stream()


class _SyncExchange:
    """Performs steps, and holds the one stream that is open."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._answer: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def perform(self, step: Step) -> Reply | bytes | None:
        try:
            match step:
                case Exchange(call):
                    return self._http.send(call.build(self._http))
                case OpenStream(call):
                    return self._listen(self._http.send(call.build(self._http), stream=True))
                case ReadStream():
                    return next(self._chunks, b"")
                case CloseStream():
                    self.close_stream()
                case Pause(seconds):
                    time.sleep(seconds)
        except httpx.RequestError as error:
            return error
        return None

    def _listen(self, answer: httpx.Response) -> httpx.Response:
        self._answer = answer
        if not answer.is_success:
            answer.read()
        self._chunks = answer.iter_bytes() if answer.is_success else iter(())
        return answer

    def close_stream(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
