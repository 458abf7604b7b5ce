"""The NATS client on nats-py's public API alone: slower, and independent of how the library works inside.

The library cannot be kept from sending, after it has reconnected, what it could not send before. So it never
reconnects here: every connection has a library client of its own, which is dropped with everything in it, and
subscriptions are made again on the next.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from typing_extensions import override

from pyoco_server.adapters.jetstream.transport.client import (
    Handler,
    InlineSubscription,
    NatsClient,
    OnMessage,
    ServerSubscription,
    cancel,
    end_within,
    parsed_headers,
    received_block,
)
from pyoco_server.adapters.jetstream.transport.compat import abort

_LOOK_SEC: Final = 0.25
"""How often it is checked whether the connection is still there: the library may report its end late."""

_FLUSH_LOOK_SEC: Final = 0.001
_DISCARD_SEC: Final = 1.0
_DRAIN_SEC: Final = 1.0
_WHO_AM_I: Final = "$SYS.REQ.USER.INFO"
"""The server answers with its name. A user who may not ask is not one of the embedded server, which has no users."""

_CONNECT_ERRORS: Final = (OSError, nats.errors.Error)
_NOT_ALLOWED: Final = "permissions violation"

Callback = Callable[[], Coroutine[Any, Any, None]]


class _ServerFacts(msgspec.Struct):
    name: str = ""
    cluster: str = ""


class _UserInfo(msgspec.Struct):
    server: _ServerFacts = msgspec.field(default_factory=_ServerFacts)


class _TaskSubscription:
    """A subscription with a handler, on whichever connection there is."""

    def __init__(self, client: "PlainClient", subject: str, queue: str, handler: Handler | None) -> None:
        self.client = client
        self.subject = subject
        self.queue = queue
        self.handler = handler
        self.current: Any = None

    async def unsubscribe(self) -> None:
        """Stop receiving."""
        await self.client.remove(self)


class PlainClient(NatsClient):
    """One connection after the other, each on a library client of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._library = Client()
        self._lost = asyncio.Event()
        self._is_ready = False
        self._is_closed = False
        self._facts = _ServerFacts()
        self._past = Counter[str]()
        self._error: Exception | None = None
        self._subscriptions: set[_TaskSubscription | InlineSubscription] = set()
        self._supervising: asyncio.Task[None] | None = None
        self._discarding: set[asyncio.Task[None]] = set()

    @override
    async def connect(self, servers: Any, **options: Any) -> None:
        self._servers = list(servers)
        self._options = {**options, "allow_reconnect": False}
        self._on_disconnected: Callback = self._options.pop("disconnected_cb")
        self._on_reconnected: Callback = self._options.pop("reconnected_cb")
        self._on_closed: Callback = self._options.pop("closed_cb")
        self._on_error: Callable[[Exception], Coroutine[Any, Any, None]] = self._options.pop("error_cb")
        await self._connect_patiently()
        self._supervising = asyncio.create_task(self._supervise(), name="NATS connection")

    async def _connect_patiently(self) -> None:
        while True:
            try:
                await self._connect_once()
            except _CONNECT_ERRORS as error:
                self._error = error
                await self._on_error(error)
                await asyncio.sleep(self._options["reconnect_time_wait"])
            else:
                return

    async def _connect_once(self) -> None:
        """Connect a new library client, and make the subscriptions on it."""
        library, lost = Client(), asyncio.Event()
        denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def on_lost() -> None:
            lost.set()

        async def on_error(error: Exception) -> None:
            self._error = error
            if _WHO_AM_I.lower() in str(error) and _NOT_ALLOWED in str(error) and not denied.done():
                denied.set_result(None)
            else:
                await self._on_error(error)

        try:
            await library.connect(
                self._servers, disconnected_cb=on_lost, closed_cb=on_lost, error_cb=on_error, **self._options
            )
            self._facts = await self._ask_for_name(library, denied)
            made = set[_TaskSubscription | InlineSubscription]()
            while missing := self._subscriptions - made:
                for subscription in missing:
                    await self._make(subscription, library)
                made |= missing
                await library.flush()
        except BaseException:
            await self._discard(library)
            raise
        self._servers = list({url.geturl(): None for url in [*library.servers, *library.discovered_servers]})
        self._library, self._lost, self._is_ready = library, lost, True

    async def _ask_for_name(self, library: Client, denied: "asyncio.Future[None]") -> _ServerFacts:
        asking: asyncio.Future[Any] = asyncio.ensure_future(
            library.request(_WHO_AM_I, timeout=self._options["connect_timeout"])
        )
        try:
            await asyncio.wait({asking, denied}, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                return _ServerFacts()
            return msgspec.json.decode((await asking).data, type=_UserInfo).server
        except (nats.errors.NoRespondersError, msgspec.DecodeError):
            return _ServerFacts()
        finally:
            asking.cancel()

    async def _supervise(self) -> None:
        while True:
            while not self._lost.is_set() and self._library.is_connected:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SEC):
                        await self._lost.wait()
            self._is_ready = False
            self._error = self._library.last_error or self._error
            self._past.update(self._library.stats)
            abort(self._library)
            discarding = asyncio.create_task(self._discard(self._library))
            self._discarding.add(discarding)
            discarding.add_done_callback(self._discarding.discard)
            await self._on_disconnected()
            if type(self._error) in {nats.errors.Error, nats.errors.AuthorizationError}:  # the server ended it
                self._is_closed = True
                await self._on_closed()
                return
            await self._connect_patiently()
            self._past["reconnects"] += 1
            await self._on_reconnected()

    async def _discard(self, library: Client) -> None:
        await end_within({asyncio.create_task(library.close())}, _DISCARD_SEC, lambda: abort(library))

    @override
    async def shut_down(self, *, within_sec: float) -> None:
        self._is_ready, self._is_closed = False, True
        if self._supervising is None:
            return
        await cancel(self._supervising)
        self._supervising = None
        closing = asyncio.create_task(self._library.close())
        await end_within({closing, *self._discarding}, within_sec, lambda: abort(self._library))
        await self._on_disconnected()
        await asyncio.sleep(0)  # the library's tasks are cancelled, and end now

    # --- Messages ----------------------------------------------------------------------------------------------------

    @override
    def _send(self, subject: str, reply: str, headers: bytes, payload: bytes) -> Awaitable[Any] | None:
        return self._library.publish(subject, payload, reply, parsed_headers(headers) or None)

    @override
    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self._refuse_unless_connected()
        await self._library.publish(subject, payload, reply, headers)

    @override
    async def subscribe(self, subject: str, queue: str = "", cb: Handler | None = None) -> ServerSubscription:
        subscription = _TaskSubscription(self, subject, queue, cb)
        await self._add(subscription)
        return subscription

    @override
    async def subscribe_inline(self, subject: str, on_message: OnMessage) -> InlineSubscription:
        subscription = InlineSubscription(subject, on_message)
        await self._add(subscription)
        return subscription

    @override
    async def unsubscribe_inline(self, subscription: InlineSubscription) -> None:
        await self.remove(subscription)

    @override
    async def withdraw(self, subscription: InlineSubscription) -> None:
        """Drain it: the server forgets it at once, and messages are handled until it has confirmed that."""
        self._subscriptions.discard(subscription)
        if subscription.current is not None:
            with contextlib.suppress(TimeoutError, nats.errors.Error):
                async with asyncio.timeout(_DRAIN_SEC):
                    await subscription.current.drain()

    async def remove(self, subscription: _TaskSubscription | InlineSubscription) -> None:
        """End a subscription, which may have ended with its connection."""
        self._subscriptions.discard(subscription)
        if subscription.current is not None:
            with contextlib.suppress(nats.errors.Error):
                await subscription.current.unsubscribe()

    async def _add(self, subscription: _TaskSubscription | InlineSubscription) -> None:
        if self._is_closed:
            raise nats.errors.ConnectionClosedError
        self._subscriptions.add(subscription)
        if self._is_ready:
            with contextlib.suppress(nats.errors.ConnectionClosedError):  # it broke: made on the next connection
                await self._make(subscription, self._library)

    async def _make(self, subscription: _TaskSubscription | InlineSubscription, library: Client) -> None:
        handler = _inline(subscription) if isinstance(subscription, InlineSubscription) else subscription.handler
        queue = "" if isinstance(subscription, InlineSubscription) else subscription.queue
        subscription.current = await library.subscribe(subscription.subject, queue, cb=handler)
        if subscription not in self._subscriptions:  # it ended meanwhile
            await self.remove(subscription)

    @override
    async def flush(self, timeout: int = 10) -> None:
        self._refuse_unless_connected()
        library = self._library
        while library.pending_data_size and library.is_connected:  # noqa: ASYNC110 the library's ping would overtake it
            await asyncio.sleep(_FLUSH_LOOK_SEC)
        await library.flush(timeout)

    @override
    def jetstream(self, *, timeout: float) -> JetStreamContext:
        return JetStreamContext(self, timeout=timeout)  # type: ignore[arg-type]  # it needs a client's methods only

    @override
    def new_inbox(self) -> str:
        return self._library.new_inbox()

    # --- Facts -------------------------------------------------------------------------------------------------------

    @property
    @override
    def is_connected(self) -> bool:
        return self._is_ready and self._library.is_connected

    @property
    @override
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    @override
    def is_draining_pubs(self) -> bool:
        return False

    @property
    @override
    def max_payload(self) -> int:
        return self._library.max_payload

    @property
    @override
    def last_error(self) -> Exception | None:
        return self._error

    @property
    @override
    def pending_data_size(self) -> int:
        return self._library.pending_data_size

    @property
    @override
    def connected_server_version(self) -> Any:
        return self._library.connected_server_version

    @property
    @override
    def server_name(self) -> str:
        return self._facts.name

    @property
    @override
    def is_in_cluster(self) -> bool:
        return bool(self._facts.cluster)

    @property
    @override
    def stats(self) -> dict[str, int]:  # type: ignore[override]
        """Counters over all connections."""
        return {
            name: self._past[name] + (count if self._is_ready else 0) for name, count in self._library.stats.items()
        }


def _inline(subscription: InlineSubscription) -> Handler:
    async def handle(message: Msg) -> None:
        headers = received_block(message.headers)
        subscription.dispatch(message.subject.encode(), message.data, headers, message.reply.encode())

    return handle
