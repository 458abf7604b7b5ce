"""The client for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from pyoco_server.client import setup
from pyoco_server.client.operations import Operations
from pyoco_server.client.steps import Exchange, HangUp, Hear, Item, Listen, Pause, Plan, Reply, Series, Step
from pyoco_server.messages import Language

T = TypeVar("T")


class AsyncClient(Operations):
    """Talks to a gateway; may be shared by the tasks of one loop. Close it, or use it as a context manager.

    Iterators (``watch``, ``iterate``, ``events``) hold a connection until they end, or until their ``aclose()``; leave
    them early inside ``contextlib.aclosing``.

    Without ``server`` it is where ``PYOCO_SERVER_URL`` says, else at http://127.0.0.1:8000; without ``api_key`` the key
    is that of ``PYOCO_API_KEY``, if there is one. An empty ``api_key`` sends none.
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
        self._manner = setup.manner(self.server, retries=retries, reconnect=reconnect, poll=poll)
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

    async def do(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        flow = plan.flow(self._manner)
        line = _Line(self._http)
        told: object = None
        try:
            while True:
                try:
                    step = flow.send(told)
                except StopIteration as end:  # caught here: a coroutine must not let it pass
                    result: T = end.value
                    return result
                told = await line.go(step)
        finally:
            flow.close()
            await line.hang_up()

    async def each(self, series: Series[T]) -> AsyncGenerator[T, None]:
        """Carry out a plan with many results."""
        walk = series.walk(self._manner)
        line = _Line(self._http)
        told: object = None
        try:
            while True:
                try:
                    step = walk.send(told)
                except StopIteration:
                    return
                told = None
                if isinstance(step, Item):
                    yield step.value
                else:
                    told = await line.go(step)
        finally:
            walk.close()
            await line.hang_up()


class _Line:
    """Goes the steps, and holds the one answer that goes on."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._answer: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None

    async def go(self, step: Step) -> Reply | bytes | None:
        try:
            match step:
                case Exchange(call):
                    return await self._http.send(call.build(self._http))
                case Listen(call):
                    return await self._listen(await self._http.send(call.build(self._http), stream=True))
                case Hear():
                    return b"" if self._chunks is None else await anext(self._chunks, b"")
                case HangUp():
                    await self.hang_up()
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

    async def hang_up(self) -> None:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            await answer.aclose()
