"""The client for asyncio, and how it performs the steps of a request."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
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


class AsyncClient(Operations):
    """A client of a gateway; the tasks of one event loop may share it. Close it, or use it as a context manager.

    Iterators (``watch``, ``iterate``, ``events``) hold a connection until they end, or until their ``aclose()``; leave
    them early inside ``contextlib.aclosing``.

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
        self._http = httpx.AsyncClient(
            base_url=self.server,
            headers=headers,
            timeout=setup.timeouts(timeout),
            verify=setup.trusted(self.server),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def do(self, plan: Request[T]) -> T:
        """Perform a request and return its result."""
        steps = plan.steps(self._policy)
        exchange = _AsyncExchange(self._http)
        reply: object = None
        try:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:  # caught here: a coroutine may not raise it
                    result: T = end.value
                    return result
                reply = await exchange.perform(step)
        finally:
            steps.close()
            await exchange.close_stream()

    async def each(self, series: RequestSeries[T]) -> AsyncGenerator[T, None]:
        """Perform a series of requests and yield its results."""
        steps = series.steps(self._policy)
        exchange = _AsyncExchange(self._http)
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
                    reply = await exchange.perform(step)
        finally:
            steps.close()
            await exchange.close_stream()


class _AsyncExchange:
    """Performs steps, and holds the one stream that is open."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._answer: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def perform(self, step: Step) -> Reply | bytes | None:
        try:
            match step:
                case Exchange(call):
                    return await self._http.send(call.build(self._http))
                case OpenStream(call):
                    return await self._listen(await self._http.send(call.build(self._http), stream=True))
                case ReadStream():
                    return b"" if self._chunks is None else await anext(self._chunks, b"")
                case CloseStream():
                    await self.close_stream()
                case Pause(seconds):
                    await asyncio.sleep(seconds)
        except httpx.RequestError as error:
            return error
        return None

    async def _listen(self, answer: httpx.Response) -> httpx.Response:
        self._answer = answer
        if not answer.is_success:
            await answer.aread()
        self._chunks = answer.aiter_bytes() if answer.is_success else None
        return answer

    async def close_stream(self) -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            await answer.aclose()
