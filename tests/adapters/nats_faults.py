"""Every error of NATS, raised below the adapters: instead of one operation of a client, or of all of them."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.client import Answer, NatsClient
from pyoco_server.adapters.jetstream.connection import Connection

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
"""The numbers of all errors JetStream can answer with, by the HTTP status it sends along (nats-server 2.15)."""


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
    """One of each class of error the library has, and what it lets through."""
    found: list[Exception] = [TimeoutError(), ConnectionResetError(), BrokenPipeError(), OSError("no route")]
    for module in (nats.errors, nats.js.errors):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, nats.errors.Error) and kind.__module__ == module.__name__:
                found.append(kind(*_ARGUMENTS.get(kind, ())))
    return found


Fault = Exception | dict[str, Any]
"""What an operation raises, or the ``error`` object the server answers it with."""


def answers(codes: Sequence[tuple[int, int]] = CODES) -> list[dict[str, Any]]:
    """What the server answers with, for each of these errors."""
    return [{"code": code, "err_code": number, "description": f"the error {number}"} for code, number in codes]


def named(fault: Fault) -> str:
    """A short name for a fault."""
    return f"{fault['err_code']}" if isinstance(fault, dict) else type(fault).__name__


_READS: Final = (
    "$JS.API.DIRECT.GET.",
    "$JS.API.STREAM.MSG.GET.",
    "$JS.API.STREAM.INFO.",
    "$JS.API.CONSUMER.INFO.",
    "$JS.API.CONSUMER.LIST.",
)


def is_write(subject: str) -> bool:
    """Does an operation on this subject change anything?"""
    return not subject.startswith(_READS)


def only(number: int) -> Callable[[int, str], bool]:
    """Hits one operation: the first has the number 0."""
    return lambda at, _subject: at == number


class FaultyClient:
    """Stands between a connection and its client, and lets operations fail.

    ``is_hit`` decides by the number (0 first) and the subject of an operation. What fails never reaches the server.
    """

    def __init__(self, connection: Connection, *, affects: Callable[[str], bool] = lambda _subject: True) -> None:
        """``affects`` says of which subjects operations are counted; others never fail."""
        self._affects = affects
        self.subjects: list[str] = []
        """Of the operations there were."""
        self.hits = 0
        self._fault: Fault | None = None
        self._is_hit: Callable[[int, str], bool] = lambda _number, _subject: False
        self._stand_before(connection.nc)

    def begin(self, fault: Fault | None = None, is_hit: Callable[[int, str], bool] | None = None) -> None:
        """Count operations from now on, and let those fail; without arguments, none."""
        self.subjects, self.hits, self._fault = [], 0, fault
        self._is_hit = is_hit or (lambda _number, _subject: fault is not None)

    def _failing(self, subject: str, *, is_answered: bool = True) -> Fault | None:
        if not self._affects(subject):
            return None
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

    def _stand_before(self, client: NatsClient) -> None:
        ask_for, request, tell, publish = client.ask_for, client.request, client.tell, client.publish
        in_request = contextvars.ContextVar("in a request, whose publish is no operation of its own", default=False)

        async def faulty_ask_for(subject: str, payload: bytes, headers: bytes, settle: Any, *, timeout: float) -> Any:  # noqa: ASYNC109
            error = self._failing(subject)
            if error is None:
                return await ask_for(subject, payload, headers, settle, timeout=timeout)
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            settle(answered, Answer(msgspec.json.encode({"error": error}), None))
            return await answered

        async def faulty_request(subject: str, payload: bytes = b"", *args: Any, **options: Any) -> Msg:
            error = self._failing(subject)
            if error is None:
                token = in_request.set(True)
                try:
                    return await request(subject, payload, *args, **options)
                finally:
                    in_request.reset(token)
            return Msg(client, data=msgspec.json.encode({"error": error}))

        async def faulty_tell(subject: str, payload: bytes = b"", *, reply: str = "") -> None:
            self._failing(subject, is_answered=False)
            await tell(subject, payload, reply=reply)

        async def faulty_publish(subject: str, payload: bytes = b"", *args: Any, **options: Any) -> None:
            if not in_request.get():
                self._failing(subject, is_answered=False)
            await publish(subject, payload, *args, **options)

        client.ask_for = faulty_ask_for  # type: ignore[method-assign]
        client.request = faulty_request  # type: ignore[method-assign]
        client.tell = faulty_tell  # type: ignore[method-assign]
        client.publish = faulty_publish  # type: ignore[method-assign]
