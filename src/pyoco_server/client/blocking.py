"""The client whose methods return when they are done."""

import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from pyoco_server.client import setup
from pyoco_server.client.operations import Operations
from pyoco_server.client.steps import Exchange, HangUp, Hear, Item, Listen, Pause, Plan, Reply, Series, Step
from pyoco_server.messages import Language

T = TypeVar("T")


class Client(Operations):
    """Talks to a gateway; may be shared by threads. Close it, or use it as a context manager.

    Iterators (``watch``, ``iterate``, ``events``) hold a connection until they end, or until their ``close()``.

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

    def do(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        flow = plan.flow(self._manner)
        line = _Line(self._http)
        told: object = None
        try:
            while True:
                told = line.go(flow.send(told))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()
            line.hang_up()

    def each(self, series: Series[T]) -> Generator[T, None, None]:
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
                    told = line.go(step)
        finally:
            walk.close()
            line.hang_up()


class _Line:
    """Goes the steps, and holds the one answer that goes on."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._answer: httpx.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def go(self, step: Step) -> Reply | bytes | None:
        try:
            match step:
                case Exchange(call):
                    return self._http.send(call.build(self._http))
                case Listen(call):
                    return self._listen(self._http.send(call.build(self._http), stream=True))
                case Hear():
                    return next(self._chunks, b"")
                case HangUp():
                    self.hang_up()
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

    def hang_up(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
