"""What a client can do. Both clients have these methods; which of the two one has decides how they are called."""

import functools
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from pyoco_server.client import calls, outputs, walking, watching, wheel_upload
from pyoco_server.client.steps import Plan, Series

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """Carries out plans and returns when they are done."""

    @abstractmethod
    def do(self, plan: Plan[T]) -> T:
        """To its result."""

    @abstractmethod
    def each(self, series: Series[T]) -> Generator[T, None, None]:
        """From result to result."""


class Asynchronous(Protocol):
    """Carries out plans while others go on."""

    @abstractmethod
    async def do(self, plan: Plan[T]) -> T:
        """To its result."""

    @abstractmethod
    def each(self, series: Series[T]) -> AsyncGenerator[T, None]:
        """From result to result."""


class One(Generic[P, T]):
    """A method with one result."""

    def __init__(self, plan: Callable[P, Plan[T]]) -> None:
        self._plan = plan
        self.__doc__ = plan.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Plan[T]]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        """The plan itself when the class is asked, which is where its signature and its text are."""
        if client is None:
            return self._plan

        @functools.wraps(self._plan)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.do(self._plan(*args, **kwargs))

        return method


class Many(Generic[P, T]):
    """A method with many results, one after the other."""

    def __init__(self, series: Callable[P, Series[T]]) -> None:
        self._series = series
        self.__doc__ = series.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Series[T]]: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    def __get__(self, client: Any, owner: type) -> Callable[P, Any]:
        """The series itself when the class is asked, which is where its signature and its text are."""
        if client is None:
            return self._series

        @functools.wraps(self._series)
        def method(*args: P.args, **kwargs: P.kwargs) -> object:
            return client.each(self._series(*args, **kwargs))

        return method


class Operations:
    """The methods of both clients."""

    health = One(calls.health)

    submit = One(calls.submit)
    submit_yaml = One(calls.submit_yaml)

    get = One(calls.get)
    tasks = One(calls.tasks)
    list = One(calls.list_runs)
    page = One(calls.page)
    iterate = Many(walking.iterate)
    watch = Many(watching.watch)
    wait = One(watching.wait)

    cancel = One(calls.cancel)
    resume = One(calls.resume)
    archive = One(calls.archive)

    events = Many(walking.events)
    graph = One(calls.graph)
    state = One(calls.state)
    output = One(outputs.output)
    save_output = One(outputs.save_output)

    workers = One(calls.workers)
    hide_worker = One(calls.hide_worker)
    show_worker = One(calls.show_worker)
    metrics = One(calls.metrics)
    dlq = One(calls.dlq)
    dead_letter = One(calls.dead_letter)

    wheels = One(calls.wheels)
    wheel_history = One(calls.wheel_history)
    upload_wheel = One(wheel_upload.upload_wheel)
    download_wheel = One(calls.download_wheel)
    delete_wheel = One(calls.delete_wheel)
