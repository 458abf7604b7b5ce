"""The methods of both clients, defined once: each returns a request as data, and the client performs it.

:class:`Client` blocks until the result is there; :class:`AsyncClient` returns a coroutine or an async generator.
"""

import functools
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from pyoco_server.client import outputs, wheel_upload
from pyoco_server.client import pagination as walking
from pyoco_server.client import requests as calls
from pyoco_server.client import watch as watching
from pyoco_server.client.sans_io import Request, RequestSeries

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """A client that blocks until a request is done."""

    @abstractmethod
    def do(self, plan: Request[T]) -> T:
        """Perform a request and return its result."""

    @abstractmethod
    def each(self, series: RequestSeries[T]) -> Generator[T, None, None]:
        """Perform a series and yield its results."""


class Asynchronous(Protocol):
    """A client whose requests are awaited."""

    @abstractmethod
    async def do(self, plan: Request[T]) -> T:
        """Perform a request and return its result."""

    @abstractmethod
    def each(self, series: RequestSeries[T]) -> AsyncGenerator[T, None]:
        """Perform a series and yield its results."""


class SingleMethod(Generic[P, T]):
    """A method with one result."""

    def __init__(self, plan: Callable[P, Request[T]]) -> None:
        self._plan = plan
        self.__doc__ = plan.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Request[T]]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        """Return a bound method; of the class, the plain function, which has the signature and the docstring."""
        if client is None:
            return self._plan

        @functools.wraps(self._plan)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.do(self._plan(*args, **kwargs))

        return method


class SeriesMethod(Generic[P, T]):
    """A method with many results, one after the other."""

    def __init__(self, series: Callable[P, RequestSeries[T]]) -> None:
        self._series = series
        self.__doc__ = series.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, RequestSeries[T]]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        """Return a bound method; of the class, the plain function, which has the signature and the docstring."""
        if client is None:
            return self._series

        @functools.wraps(self._series)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.each(self._series(*args, **kwargs))

        return method


class Operations:
    """The methods of both clients."""

    health = SingleMethod(calls.health)

    submit = SingleMethod(calls.submit)
    submit_yaml = SingleMethod(calls.submit_yaml)

    get = SingleMethod(calls.get)
    tasks = SingleMethod(calls.tasks)
    list = SingleMethod(calls.list_runs)
    page = SingleMethod(calls.page)
    iterate = SeriesMethod(walking.iterate)
    watch = SeriesMethod(watching.watch)
    wait = SingleMethod(watching.wait)

    cancel = SingleMethod(calls.cancel)
    resume = SingleMethod(calls.resume)
    archive = SingleMethod(calls.archive)
    redrive = SingleMethod(calls.redrive)
    redrive_many = SingleMethod(calls.redrive_many)

    events = SeriesMethod(walking.events)
    graph = SingleMethod(calls.graph)
    state = SingleMethod(calls.state)
    output = SingleMethod(outputs.output)
    save_output = SingleMethod(outputs.save_output)

    workers = SingleMethod(calls.workers)
    hide_worker = SingleMethod(calls.hide_worker)
    show_worker = SingleMethod(calls.show_worker)
    metrics = SingleMethod(calls.metrics)
    dlq = SingleMethod(calls.dlq)
    dead_letter = SingleMethod(calls.dead_letter)

    wheels = SingleMethod(calls.wheels)
    wheel_history = SingleMethod(calls.wheel_history)
    upload_wheel = SingleMethod(wheel_upload.upload_wheel)
    download_wheel = SingleMethod(calls.download_wheel)
    delete_wheel = SingleMethod(calls.delete_wheel)
