"""The connection to NATS: it comes back by itself, and says at once when it is not there.

Nothing is kept back to be sent later. A publish that was given up and arrives all the same would be an answer nobody
waits for; so what could not be sent is dropped when the connection breaks, and whoever sent it is told.
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

from pyoco_server.adapters.jetstream.client import Answer, NatsClient, header_block
from pyoco_server.adapters.jetstream.store_sync import StoreSync, serve_syncs
from pyoco_server.adapters.jetstream.translation import in_words, refusal, translated
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
"""Why connecting fails while no server can be reached. Any other error is the word of a server."""


class NotLetInError(UnavailableError):
    """NATS is there, and we are not welcome or it is not who it should be: waiting does not help."""


class _Ack(msgspec.Struct):
    """How the server answers for what it stored."""

    seq: int = 0
    stream: str = ""
    error: dict[str, Any] | None = None


class _Refusal(msgspec.Struct):
    """What any answer of the API says if it is an error."""

    error: dict[str, Any] | None = None


_ACK: Final = msgspec.json.Decoder(_Ack)
_REFUSAL: Final = msgspec.json.Decoder(_Refusal)


class Connection:
    """A connection to NATS with JetStream on it."""

    def __init__(self, *, request_timeout_sec: float) -> None:
        self._client = NatsClient()
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
        """Can something be sent now?"""
        return self._client.is_connected and not self._closing

    @property
    def is_closed(self) -> bool:
        """Is it over for good? Then a new connection is needed."""
        return self._client.is_closed

    @property
    def max_payload(self) -> int:
        """How large a message may be, headers included."""
        return self._client.max_payload

    async def open(self, servers: list[str], *, timeout_sec: float, options: Mapping[str, Any]) -> None:
        """Connect for the first time; UnavailableError if that does not succeed in time."""
        shown = ", ".join(_without_secrets(server) for server in servers)
        try:
            async with asyncio.timeout(timeout_sec):
                await self._client.connect(
                    servers,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    error_cb=self._on_error,
                    connect_timeout=min(timeout_sec, ATTEMPT_TIMEOUT_SEC),  # type: ignore[arg-type]  # need not be whole
                    reconnect_time_wait=RECONNECT_WAIT_SEC,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    ping_interval=PING_INTERVAL_SEC,
                    max_outstanding_pings=MAX_OUTSTANDING_PINGS,
                    pending_size=0,
                    **options,
                )
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
        """Store a message and return its sequence; errors are translated (see :mod:`.translation`).

        The message is durable then; if it is not urgent, it is when :meth:`sync` has been called and returned.
        """
        block = header_block(headers) if headers else b""
        settle = self._settle_when_durable if is_urgent else _settle_when_stored
        with translated():
            return await self._client.ask_for(subject, payload, block, settle, timeout=self.request_timeout_sec)

    async def request(self, question: str, body: bytes = b"", *, timeout_sec: float | None = None) -> bytes:
        """Ask the API of JetStream and return the answer; an answer that is an error is raised, translated."""
        timeout = timeout_sec or self.request_timeout_sec
        with translated():
            answer = await self._client.request(f"$JS.API.{question}", body, timeout=timeout)
            error = _REFUSAL.decode(answer.data).error
        if error is not None:
            raise refusal(error)
        return answer.data

    def _settle_when_durable(self, stored: asyncio.Future[int], answer: Answer) -> None:
        """Whoever stored something is woken once: when it is durable."""
        ack = _acknowledged(answer)
        group = self.syncs.group(ack.stream)
        if group is None:
            stored.set_result(ack.seq)
        else:
            group.join(stored, ack.seq)

    async def sync(self, stream: str) -> None:
        """Return when all that a stream holds is durable, whoever stored it; UnavailableError if nobody knows."""
        group = self.syncs.group(stream)
        if group is not None:
            await group.wait()

    async def serve_syncs(self) -> None:
        """Sync for those who use the same embedded server and cannot reach its store, as long as this is open."""
        await serve_syncs(self._client, self.syncs)

    async def say(self, subject: str, word: bytes) -> None:
        """Say something and wait until it was heard."""
        with translated():
            await self._client.ask(subject, word, b"", timeout=self.request_timeout_sec)

    async def close(self) -> None:
        """Let go of the connection; never takes long, and no task stays behind."""
        self._closing = True
        self.syncs.close()
        tasks = self._client.tasks()
        closing = asyncio.create_task(self._client.close())
        tasks |= self._client.tasks() | {closing}
        _, late = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_SEC)
        if late:
            self._client.break_off()
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[asyncio.Future[None]]:
        """A future to wait for an answer with; it fails when the connection breaks, since then none will come."""
        future = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        try:
            yield future
        finally:
            self._awaited.discard(future)
            if not future.cancel() and not future.cancelled():
                future.exception()  # seen, even if nobody waits any more

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _on_disconnected(self) -> None:
        self._client.forget_unsettled()
        for future in self._awaited:
            if not future.done():
                future.set_exception(nats.errors.StaleConnectionError())
        if not self._closing:
            _log.warning("the connection to NATS is gone; trying again", extra={"action": "nats_disconnected"})

    async def _on_reconnected(self) -> None:
        _log.info("the connection to NATS is back", extra={"action": "nats_reconnected"})

    async def _on_closed(self) -> None:
        if not self._closing:
            cause = in_words(self._client.last_error)
            _log.error("NATS ended the connection for good: %s", cause, extra={"action": "nats_closed"})

    async def _on_error(self, error: Exception) -> None:
        expected = isinstance(error, (OSError, nats.errors.StaleConnectionError)) or not self._client.is_connected
        level = logging.DEBUG if expected or self._closing else logging.WARNING  # an outage is reported once
        _log.log(level, "NATS reports: %s", in_words(error), extra={"action": "nats_error"})


async def connect(  # noqa: PLR0913 what an operator may have to say about a connection
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
) -> Connection:
    """Connect to one of the servers in ``url`` (several are separated by commas); UnavailableError if none answers.

    ``user_credentials`` is the path of a file, ``nkeys_seed`` the seed itself. Answers come in under ``inbox_prefix``:
    a user with one of its own can be kept from reading what others are answered. While the servers stay away, it is
    tried again until ``connect_timeout_sec`` is over; once connected, for ever.
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
    connection = Connection(request_timeout_sec=request_timeout_sec)
    await connection.open(_servers(url), timeout_sec=connect_timeout_sec, options=options)
    return connection


def _settle_when_stored(stored: asyncio.Future[int], answer: Answer) -> None:
    stored.set_result(_acknowledged(answer).seq)


def _acknowledged(answer: Answer) -> _Ack:
    ack = _ACK.decode(answer.data)
    if ack.error is not None:
        raise refusal(ack.error)
    return ack


def _is_away(error: BaseException) -> bool:
    """Is nobody there, or not yet? A server that does not let us in is there, and so is one that is not who it says."""
    return isinstance(error, _NO_SERVER) and not isinstance(error, ssl.SSLError)


def message_size(payload: bytes, headers: Mapping[str, str] | None = None) -> int:
    """How large a message is for the server, which closes the connection if it exceeds ``max_payload``."""
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
    """The url without the user and password it may carry."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
