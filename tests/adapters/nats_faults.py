"""Every error of NATS, injected below the adapters into one operation of a client or into all of them."""

import asyncio
import contextlib
import contextvars
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.transport.client import NatsClient, RawReply

_RANGES: Final = {
    400: "10002-10003 10005 10011 10013 10015-10022 10024-10027 10030-10034 10038 10040 10043-10044 10046 10054-10056 "
    "10058 10060-10061 10065 10070-10071 10073 10078-10095 10097-10103 10105-10109 10112-10116 10120-10157 10159-10162 "
    "10164-10166 10168-10179 10181-10184 10186-10193 10196-10209 10212-10227",
    404: "10014 10037 10059 10068",
    409: "10158",
    412: "10180 10185",
    429: "10167 10210-10211",
    500: "10006-10007 10009 10012 10028-10029 10041-10042 10045 10047-10053 10057 10062 10064 10066-10067 10069 10072 "
    "10074 10096 10104 10110-10111 10117-10119 10194-10195",
    503: "10004 10008 10010 10023 10035-10036 10039 10063 10075-10077 10163",
}
"""The numbers of all errors of JetStream, by their HTTP status (nats-server 2.15)."""


def _codes() -> Iterator[tuple[int, int]]:
    for status, ranges in _RANGES.items():
        for given in ranges.split():
            first, _, last = given.partition("-")
            yield from ((status, number) for number in range(int(first), int(last or first) + 1))


CODES: Final = [*_codes(), (400, 19999), (500, 19998), (599, 19997)]
"""Status and number of every error, and of some that do not exist yet."""

_ARGUMENTS: Final[dict[type[Exception], tuple[Any, ...]]] = {
    nats.errors.SlowConsumerError: ("subject", "reply", 1, None),
    nats.js.errors.APIError: (400, "no description"),
}


def library_errors() -> list[Exception]:
    """Return one error of each class of the library, and of each class that it lets through."""
    found: list[Exception] = [TimeoutError(), ConnectionResetError(), BrokenPipeError(), OSError("no route")]
    for module in (nats.errors, nats.js.errors):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, nats.errors.Error) and kind.__module__ == module.__name__:
                found.append(kind(*_ARGUMENTS.get(kind, ())))
    return found


Fault = Exception | dict[str, Any]
"""What an operation raises, or the ``error`` object the server answers it with."""


def answers(codes: Sequence[tuple[int, int]] = CODES) -> list[dict[str, Any]]:
    """Return the ``error`` object of the server for each of these errors."""
    return [{"code": code, "err_code": number, "description": f"the error {number}"} for code, number in codes]


def named(fault: Fault) -> str:
    """Return a short name for a fault."""
    return f"{fault['err_code']}" if isinstance(fault, dict) else type(fault).__name__


_READS: Final = (
    "$JS.API.DIRECT.GET.",
    "$JS.API.STREAM.MSG.GET.",
    "$JS.API.STREAM.INFO.",
    "$JS.API.CONSUMER.INFO.",
    "$JS.API.CONSUMER.LIST.",
)


def is_write(subject: str) -> bool:
    """Return whether an operation on this subject changes anything."""
    return not subject.startswith(_READS)


def only(number: int) -> Callable[[int, str], bool]:
    """Return a condition that hits one operation: the first has the number 0."""
    return lambda at, _subject: at == number


class FaultPlan:
    """Decides which operations of a client fail, and records all of them. Without a fault, none fails."""

    def __init__(self, fault: Fault | None = None, is_hit: Callable[[int, str], bool] | None = None) -> None:
        """``is_hit`` decides by the number (0 first) and the subject of an operation; without it, every one is hit."""
        self.subjects: list[str] = []
        self.hits = 0
        self._fault = fault
        self._is_hit = is_hit or (lambda _number, _subject: True)

    def end(self) -> None:
        """Let no operation fail from now on."""
        self._fault = None

    def failing(self, subject: str, *, is_answered: bool = True) -> Fault | None:
        """Record an operation; raise the fault, or return the ``error`` object that the server answers with."""
        number = len(self.subjects)
        self.subjects.append(subject)
        if self._fault is None or not self._is_hit(number, subject):
            return None
        if not is_answered and isinstance(self._fault, dict):
            return None
        self.hits += 1
        if isinstance(self._fault, Exception):
            raise self._fault
        return self._fault


class FaultyClient:
    """Wraps the client of a connection, and lets operations fail. What fails never reaches the server.

    Code inside :meth:`within` has a plan of its own, so that requests with different faults can run at once.
    """

    def __init__(self, connection: Connection, *, affects: Callable[[str], bool] = lambda _subject: True) -> None:
        """Operations are counted, and can fail, on subjects for which ``affects`` is true."""
        self._affects = affects
        self._plan = FaultPlan()
        self._own_plan = contextvars.ContextVar[FaultPlan | None]("the plan of this task", default=None)
        self._wrap(connection.nc)

    @property
    def subjects(self) -> list[str]:
        """The subjects of the operations since :meth:`begin`."""
        return self._plan.subjects

    @property
    def hits(self) -> int:
        """How many operations failed since :meth:`begin`."""
        return self._plan.hits

    def begin(self, fault: Fault | None = None, is_hit: Callable[[int, str], bool] | None = None) -> None:
        """Count operations from now on, and let those fail; without arguments, none."""
        self._plan = FaultPlan(fault, is_hit)

    @contextlib.contextmanager
    def within(self, plan: FaultPlan) -> Iterator[None]:
        """Let operations of this task, and of the tasks it starts, follow ``plan`` instead."""
        token = self._own_plan.set(plan)
        try:
            yield
        finally:
            self._own_plan.reset(token)

    def _failing(self, subject: str, *, is_answered: bool = True) -> Fault | None:
        plan = self._own_plan.get() or self._plan
        return plan.failing(subject, is_answered=is_answered) if self._affects(subject) else None

    def _wrap(self, client: NatsClient) -> None:
        request_settled, request, publish_raw, publish = (
            client.request_settled,
            client.request,
            client.publish_raw,
            client.publish,
        )
        in_request = contextvars.ContextVar("in a request, whose publish is no operation of its own", default=False)

        async def faulty_request_settled(
            subject: str,
            payload: bytes,
            headers: bytes,
            settle: Any,
            *,
            timeout: float,  # noqa: ASYNC109
        ) -> Any:
            error = self._failing(subject)
            if error is None:
                return await request_settled(subject, payload, headers, settle, timeout=timeout)
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            settle(answered, RawReply(msgspec.json.encode({"error": error}), None))
            return await answered

        async def faulty_request(subject: str, payload: bytes = b"", *args: Any, **options: Any) -> Msg:
            error = self._failing(subject)
            if error is None:
                token = in_request.set(True)
                try:
                    return await request(subject, payload, *args, **options)
                finally:
                    in_request.reset(token)
            return Msg(client, "", "", msgspec.json.encode({"error": error}))  # type: ignore[arg-type]  # as the client does

        async def faulty_publish_raw(subject: str, payload: bytes = b"", *, reply: str = "") -> None:
            self._failing(subject, is_answered=False)
            await publish_raw(subject, payload, reply=reply)

        async def faulty_publish(subject: str, payload: bytes = b"", *args: Any, **options: Any) -> None:
            if not in_request.get():
                self._failing(subject, is_answered=False)
            await publish(subject, payload, *args, **options)

        client.request_settled = faulty_request_settled  # type: ignore[method-assign]
        client.request = faulty_request  # type: ignore[method-assign]
        client.publish_raw = faulty_publish_raw  # type: ignore[method-assign]
        client.publish = faulty_publish  # type: ignore[method-assign]
