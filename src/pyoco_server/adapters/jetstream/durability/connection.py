"""The connection to NATS: reconnects by itself, and refuses at once while there is none.

Nothing is kept to be sent later. A publish that arrives after its caller has timed out would have an outcome that
is never read; so unsent messages are dropped when the connection breaks, and their callers get an error.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec
import nats.errors
from nats.js import JetStreamContext

from pyoco_server.adapters.jetstream.durability.remote_sync import StoreSync, serve_syncs
from pyoco_server.adapters.jetstream.transport import compat
from pyoco_server.adapters.jetstream.transport.client import NatsClient, RawReply, cancel, header_block
from pyoco_server.adapters.jetstream.transport.error_translation import in_words, refusal, translated
from pyoco_server.adapters.jetstream.transport.plain_client import PlainClient
from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import InvalidInputError

_log = logging.getLogger(__name__)

ATTEMPT_TIMEOUT_SEC: Final = 2.0
RECONNECT_WAIT_SEC: Final = 0.25
PING_INTERVAL_SEC: Final = 2
MAX_OUTSTANDING_PINGS: Final = 2
CLOSE_TIMEOUT_SEC: Final = 2.0

_NO_SERVER: Final = (
    OSError,
    nats.errors.StaleConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.NoServersError,
)
"""Errors of connecting while no server can be reached. Any other error comes from a server."""


class NotLetInError(UnavailableError):
    """NATS answers and refuses this client, or has the wrong certificate: waiting does not help."""


class _PublishAck(msgspec.Struct):
    """The server's acknowledgement of a stored message."""

    seq: int = 0
    stream: str = ""
    error: dict[str, Any] | None = None


class _Refusal(msgspec.Struct):
    """The error in an answer of the API, if it is one."""

    error: dict[str, Any] | None = None


_ACK: Final = msgspec.json.Decoder(_PublishAck)
_REFUSAL: Final = msgspec.json.Decoder(_Refusal)


class Connection:
    """A connection to NATS with JetStream on it."""

    def __init__(self, *, request_timeout_sec: float, plain: bool = False) -> None:
        self._client = _new_client(plain=plain)
        self._closing = False
        self._awaited: set[asyncio.Future[None]] = set()
        self.request_timeout_sec = request_timeout_sec
        self.js: JetStreamContext = self._client.jetstream(timeout=request_timeout_sec)
        self.syncs = StoreSync(self._client, timeout_sec=request_timeout_sec)

    @property
    def nc(self) -> NatsClient:
        """The NATS client."""
        return self._client

    @property
    def is_connected(self) -> bool:
        """Whether a message can be sent now."""
        return self._client.is_connected and not self._closing

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended for good; then a new one is needed."""
        return self._client.is_closed

    @property
    def max_payload(self) -> int:
        """The largest message that the server accepts, headers included."""
        return self._client.max_payload

    async def open(self, servers: list[str], *, timeout_sec: float, options: Mapping[str, Any]) -> None:
        """Connect for the first time; UnavailableError if that does not succeed in time."""
        shown = ", ".join(_without_secrets(server) for server in servers)
        try:
            connecting = asyncio.create_task(
                self._client.connect(
                    servers,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    error_cb=self._on_error,
                    connect_timeout=min(timeout_sec, ATTEMPT_TIMEOUT_SEC),
                    reconnect_time_wait=RECONNECT_WAIT_SEC,
                    max_reconnect_attempts=-1,
                    ping_interval=PING_INTERVAL_SEC,
                    max_outstanding_pings=MAX_OUTSTANDING_PINGS,
                    pending_size=0,
                    **options,
                )
            )
            try:
                await asyncio.wait({connecting}, timeout=timeout_sec)
            finally:
                await cancel(connecting)
            if connecting.cancelled():
                raise TimeoutError(f"no answer within {timeout_sec:g} s")  # noqa: TRY301 handled as the library's own
            connecting.result()
        except (TimeoutError, OSError, nats.errors.Error) as error:
            cause = self._client.last_error or error
            await self.close()
            kind = UnavailableError if _is_away(cause) else NotLetInError
            raise kind(f"cannot connect to NATS at {shown}: {in_words(cause)}") from error
        except ModuleNotFoundError as error:
            await self.close()
            raise InvalidInputError(
                f"NATS credentials need the package '{error.name}', which is not installed: pip install {error.name}"
            ) from error
        except BaseException:
            await self.close()
            raise

    async def publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, is_urgent: bool = True
    ) -> int:
        """Store a message and return its sequence; errors are translated (see :mod:`.error_translation`).

        The message is durable when this returns; if it is not urgent, when a later :meth:`sync` returns.
        """
        block = header_block(headers) if headers else b""
        settle = self._settle_when_durable if is_urgent else _settle_when_stored
        with translated():
            return await self._client.request_settled(subject, payload, block, settle, timeout=self.request_timeout_sec)

    async def request(self, question: str, body: bytes = b"", *, timeout_sec: float | None = None) -> bytes:
        """Send a request to the API of JetStream and return the answer; an error in it is raised, translated."""
        timeout = timeout_sec or self.request_timeout_sec
        with translated():
            answer = await self._client.request(f"$JS.API.{question}", body, timeout=timeout)
            error = _REFUSAL.decode(answer.data).error
        if error is not None:
            raise refusal(error)
        return answer.data

    def _settle_when_durable(self, stored: asyncio.Future[int], answer: RawReply) -> None:
        """Wake the writer once, when the message is durable."""
        ack = _acknowledged(answer)
        group = self.syncs.group(ack.stream)
        if group is None:
            stored.set_result(ack.seq)
        else:
            group.settle_after_sync(stored, ack.seq)

    async def sync(self, stream: str) -> None:
        """Return when everything in a stream is durable, by any writer; UnavailableError if that is unknown."""
        group = self.syncs.group(stream)
        if group is not None:
            await group.wait()

    async def serve_syncs(self) -> None:
        """Sync for clients of the embedded server that cannot read its store, until this connection is closed."""
        await serve_syncs(self._client, self.syncs)

    async def confirmed(self, subject: str, word: bytes) -> None:
        """Send ``word`` and return when the receiver has confirmed it."""
        with translated():
            await self._client.request_raw(subject, word, b"", timeout=self.request_timeout_sec)

    async def close(self) -> None:
        """Close the connection within a few seconds, whatever the server does; no task is left."""
        self._closing = True
        self.syncs.close()
        await self._client.shut_down(within_sec=CLOSE_TIMEOUT_SEC)

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[asyncio.Future[None]]:
        """Yield a future to wait for an answer with; it fails when the connection breaks."""
        future = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            yield future
        finally:
            self._awaited.discard(future)
            if not future.cancel() and not future.cancelled():
                future.exception()  # read, in case the caller has stopped waiting

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _on_disconnected(self) -> None:
        self._client.abandon_requests()
        for future in self._awaited:
            if not future.done():
                future.set_exception(nats.errors.StaleConnectionError())
        if not self._closing:
            _log.warning("the connection to NATS broke; reconnecting", extra={"action": "nats_disconnected"})

    async def _on_reconnected(self) -> None:
        _log.info("reconnected to NATS", extra={"action": "nats_reconnected"})

    async def _on_closed(self) -> None:
        if not self._closing:
            cause = in_words(self._client.last_error)
            _log.error("NATS ended the connection for good: %s", cause, extra={"action": "nats_closed"})

    async def _on_error(self, error: Exception) -> None:
        expected = isinstance(error, (OSError, nats.errors.StaleConnectionError)) or not self._client.is_connected
        level = logging.DEBUG if expected or self._closing else logging.WARNING  # an outage is reported once
        _log.log(level, "NATS reports: %s", in_words(error), extra={"action": "nats_error"})


async def connect(  # noqa: PLR0913 what an operator can configure of a connection
    url: str,
    *,
    name: str,
    request_timeout_sec: float = 2.0,
    connect_timeout_sec: float = 3.0,
    user_credentials: str | None = None,
    nkeys_seed: str | None = None,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_hostname: str | None = None,
    inbox_prefix: str = "_INBOX",
    plain: bool = False,
) -> Connection:
    """Connect to one of the servers in ``url`` (several are separated by commas); UnavailableError if none answers.

    ``user_credentials`` is the path of a file, ``nkeys_seed`` the seed itself. Replies arrive under ``inbox_prefix``: a
    user with a prefix of its own can be kept from reading the replies of others. While no server can be reached, it is
    tried again until ``connect_timeout_sec`` is over; once connected, for ever. ``plain``: use only the public API of
    nats-py, which is slower. A version of nats-py that the fast client does not work with is used that way in any case.
    """
    files = {
        "user_credentials": user_credentials,
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    for field, file in files.items():
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidInputError(f"{field} cannot be used: there is no file '{file}' that can be read")
    options = {
        "name": name,
        "user_credentials": user_credentials,
        "nkeys_seed_str": nkeys_seed,
        "token": token,
        "user": user,
        "password": password,
        "tls": _tls(tls_ca, tls_cert, tls_key),
        "tls_hostname": tls_hostname,
        "inbox_prefix": inbox_prefix,
    }
    connection = Connection(request_timeout_sec=request_timeout_sec, plain=plain)
    await connection.open(_servers(url), timeout_sec=connect_timeout_sec, options=options)
    return connection


def _new_client(*, plain: bool) -> NatsClient:
    if plain:
        return PlainClient()
    if compat.PROBLEMS:
        compat.report_problems()
        return PlainClient()
    return compat.FastClient()


def _settle_when_stored(stored: asyncio.Future[int], answer: RawReply) -> None:
    stored.set_result(_acknowledged(answer).seq)


def _acknowledged(answer: RawReply) -> _PublishAck:
    ack = _ACK.decode(answer.data)
    if ack.error is not None:
        raise refusal(ack.error)
    return ack


def _is_away(error: BaseException) -> bool:
    """Whether no server was reached. A server that refuses this client, or has the wrong certificate, was reached."""
    return isinstance(error, _NO_SERVER) and not isinstance(error, ssl.SSLError)


def message_size(payload: bytes, headers: Mapping[str, str] | None = None) -> int:
    """Return a message's size as the server counts it; it closes the connection if that exceeds ``max_payload``."""
    if not headers:
        return len(payload)
    lines = sum(len(name.encode()) + len(value.encode()) + len(": \r\n") for name, value in headers.items())
    return len(b"NATS/1.0\r\n\r\n") + lines + len(payload)


def _servers(url: str) -> list[str]:
    servers = [part.strip() for part in url.split(",") if part.strip()]
    if not servers:
        raise InvalidInputError("the NATS url is empty: give one like nats://127.0.0.1:4222")
    for server in servers:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        try:
            usable = bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.scheme not in {"nats", "tls"}:
            raise InvalidInputError(
                f"the NATS url {_without_secrets(server)!r:.120} cannot be used: give one like nats://127.0.0.1:4222"
            )
    return servers


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if ca is None and cert is None:
        return None
    context = ssl.create_default_context(cafile=ca)
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


def _without_secrets(url: str) -> str:
    """Return the url without user and password."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
