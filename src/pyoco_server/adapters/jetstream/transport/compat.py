"""The only module that touches members of nats-py that the library does not promise to keep.

:class:`FastClient` is the library's client with a shorter way in and out. :func:`problems` compares the installed
library with what this module needs, once, at import. If it finds any difference, connections use
:class:`~.plain_client.PlainClient`, which is slower and needs the public API only. See ADR 0024.
"""

import asyncio
import functools
import importlib.metadata
import inspect
import logging
from collections.abc import Awaitable, Iterator
from typing import Any, Final

from nats.aio.client import Client
from typing_extensions import override

from pyoco_server.adapters.jetstream.transport.client import InlineSubscription, NatsClient, OnMessage, end_within
from pyoco_server.adapters.jetstream.transport.protocol_parser import MessageParser

_log = logging.getLogger(__name__)

TESTED_VERSIONS: Final = "2.16"
"""The minor versions of nats-py that the fast path was tested with."""

_PING: Final = b"PING\r\n"

_ATTRIBUTES: Final[dict[str, type | None]] = {
    "_ps": None,
    "_sid": int,
    "_subs": dict,
    "_pending": list,
    "_pending_data_size": int,
    "_flush_queue": None,
    "_pongs": list,
    "_transport": None,
    "_server_info": dict,
    "_reading_task": None,
    "_ping_interval_task": None,
    "_flusher_task": None,
    "_reconnection_task": None,
    "stats": dict,
}
"""What a new client has, and of which type; None: any."""

_PARAMETERS: Final = {
    "_process_msg": ["sid", "subject", "reply", "data", "headers"],
    "_send_ping": ["future"],
    "_process_op_err": ["e"],
    "_send_unsubscribe": ["sid", "limit"],
}
"""The parameters of methods that are called or overridden."""

_USES: Final = {
    "subscribe": {"_sid", "_subs"},
    "flush": {"_send_ping"},
    "_ping_interval": {"_send_ping", "_process_op_err"},
    "_process_pong": {"_pongs"},
    "_read_loop": {"_ps", "parse", "_process_op_err"},
    "_process_op_err": {"_ps", "reset", "_reconnection_task"},
    "_flusher": {"_flush_queue", "_pending", "_pending_data_size", "_transport", "writelines"},
    "_flush_pending": {"_flush_queue", "is_connected"},
    "_attempt_reconnect": {"_subs", "_disconnected_cb"},
}
"""Which names the library's own methods use: a member that stays, but is not used any more, is found too."""


class FastClient(Client, NatsClient):  # type: ignore[misc]  # the library names its options
    """The library's client; requests and inline messages pass its queues and tasks by."""

    def __init__(self) -> None:
        Client.__init__(self)
        NatsClient.__init__(self)
        self._inline: dict[int, InlineSubscription] = {}
        library = self._ps
        # The library's parser hands on what it parses itself to this client.
        self._ps = MessageParser(  # type: ignore[assignment]
            library, between_messages=library.state, dispatch=self.dispatch, process=self._process_by_library
        )

    @override
    def _send(self, subject: str, reply: str, headers: bytes, payload: bytes) -> Awaitable[Any] | None:
        if headers:
            size = len(headers) + len(payload)
            command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
                subject.encode(),
                reply.encode(),
                len(headers),
                size,
                headers,
                payload,
            )
        else:
            command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        self._pending.append(command)
        self._pending_data_size += len(command)
        return self._flush_pending() if self._flush_queue is not None and self._flush_queue.empty() else None

    request = NatsClient.request  # the library's waits for a reply that cannot come

    # --- Inline messages ---------------------------------------------------------------------------------------------

    @override
    async def subscribe_inline(self, subject: str, on_message: OnMessage) -> InlineSubscription:
        subscription = InlineSubscription(subject, on_message)
        subscription.number = self._sid + 1  # what the library will call it; messages may arrive before it returns
        self._inline[subscription.number] = subscription
        try:
            subscription.current = await self.subscribe(subject)
        except BaseException:
            self._inline.pop(subscription.number, None)
            raise
        return subscription

    @override
    async def unsubscribe_inline(self, subscription: InlineSubscription) -> None:
        self._inline.pop(subscription.number, None)
        if not self.is_closed:
            await subscription.current.unsubscribe()

    @override
    async def withdraw(self, subscription: InlineSubscription) -> None:
        await self._send_unsubscribe(subscription.number)

    def dispatch(self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> bool:
        """Handle a message of an inline subscription; return False if it is none."""
        subscription = self._inline.get(number)
        if subscription is None:
            return False
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        subscription.dispatch(subject, data, headers, reply)
        return True

    async def _process_by_library(
        self, number: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        await super()._process_msg(number, subject, reply, data, headers)  # type: ignore[arg-type]  # there may be none

    @override
    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        """Handle a message that the library has parsed."""
        if not self.dispatch(sid, subject, reply, data, headers):
            await self._process_by_library(sid, subject, reply, data, headers)

    # --- What the library does otherwise -----------------------------------------------------------------------------

    @override
    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Send a ping behind everything that waits to be sent; the library's ping would overtake it."""
        self._pongs.append(asyncio.get_running_loop().create_future() if future is None else future)
        self._pending.append(_PING)
        self._pending_data_size += len(_PING)
        await self._flush_pending()

    @override
    async def _process_op_err(self, e: Exception) -> None:
        """The connection broke. The library would first wait until the peer accepts what is left, maybe for ever."""
        if self.is_connected:
            self._break_off()
        await super()._process_op_err(e)

    def _break_off(self) -> None:
        abort(self)

    @override
    def abandon_requests(self) -> None:
        self._pending = []
        self._pending_data_size = 0
        super().abandon_requests()

    # --- Facts -------------------------------------------------------------------------------------------------------

    @property
    @override
    def server_name(self) -> str:
        return str(self._server_info.get("server_name", ""))

    @property
    @override
    def is_in_cluster(self) -> bool:
        return bool(self._server_info.get("cluster"))

    @override
    async def shut_down(self, *, within_sec: float) -> None:
        tasks = self._tasks()
        closing = asyncio.create_task(self.close())
        tasks |= self._tasks() | {closing}
        await end_within(tasks, within_sec, self._break_off)

    def _tasks(self) -> set[asyncio.Task[Any]]:
        own = [self._reading_task, self._ping_interval_task, self._flusher_task, self._reconnection_task]
        handling = [subscription._wait_for_msgs_task for subscription in self._subs.values()]  # noqa: SLF001 no other way
        return {task for task in [*own, *handling] if task is not None}


def abort(client: Client) -> None:
    """Close the socket of a client without sending what is in its buffer; no effect where that is not possible."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


# --- The check -------------------------------------------------------------------------------------------------------


def problems() -> list[str]:
    """Return how the installed library differs from what the fast path needs."""
    try:
        return list(_differences())
    except Exception as error:  # noqa: BLE001 whatever a changed library raises, the plain path works
        return [f"the check failed: {error!r:.200}"]


def _differences() -> Iterator[str]:
    from nats.aio import subscription  # noqa: PLC0415 it may be elsewhere one day

    client = Client()
    for name, kind in _ATTRIBUTES.items():
        if not hasattr(client, name):
            yield f"Client.{name} is missing"
        elif kind is not None and not isinstance(getattr(client, name), kind):
            yield f"Client.{name} is no {kind.__name__}"
    for name, parameters in _PARAMETERS.items():
        method = getattr(Client, name, None)
        if not inspect.iscoroutinefunction(method) or list(inspect.signature(method).parameters)[1:] != parameters:
            yield f"Client.{name} does not take ({', '.join(parameters)})"
    for name, used in _USES.items():
        code = getattr(getattr(Client, name, None), "__code__", None)
        if code is None:
            yield f"Client.{name} is missing"
        elif missing := sorted(used.difference(code.co_names)):
            yield f"Client.{name} does not use {', '.join(missing)}"
    yield from _parser_differences(getattr(client, "_ps", None))
    if not hasattr(subscription.Subscription(None, 7), "_wait_for_msgs_task"):
        yield "Subscription._wait_for_msgs_task is missing"


def _parser_differences(parser: object) -> Iterator[str]:
    for name, kind in {"state": int, "needed": int, "buf": bytearray}.items():
        if not isinstance(getattr(parser, name, None), kind):
            yield f"Parser.{name} is no {kind.__name__}"
    if not inspect.iscoroutinefunction(getattr(parser, "parse", None)):
        yield "Parser.parse is no coroutine function"
    if not callable(getattr(parser, "reset", None)):
        yield "Parser.reset is missing"


PROBLEMS: Final = problems()
"""How the installed library differs from what the fast path needs; empty if it can be used."""


@functools.cache
def report_problems() -> None:
    """Log what is different, once in a process."""
    _log.warning(
        "nats-py %s differs from the tested versions (%s.*): %s; its public API is used, which is slower",
        importlib.metadata.version("nats-py"),
        TESTED_VERSIONS,
        "; ".join(PROBLEMS),
        extra={"action": "nats_client_plain"},
    )
