"""Decides how acknowledged messages get onto the disk.

An operator's own server syncs as it is configured. The embedded one leaves syncing to its clients, which share syncs
(:mod:`.group_commit`): directly if they can read its files, as a self-test shows (:mod:`.self_test`), else by a request
to the gateway that runs the server (:func:`serve_syncs`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.durability.group_commit import Done, FileSyncer, GroupCommit, StreamSyncer
from pyoco_server.adapters.jetstream.durability.self_test import find_problem
from pyoco_server.adapters.jetstream.durability.server_name import leaves_syncing, streams_dir
from pyoco_server.adapters.jetstream.durability.stream_files import (
    DiskFailedError,
    StreamFiles,
    SyncFile,
    sync_description,
    sync_file,
)
from pyoco_server.adapters.jetstream.transport.client import NatsClient
from pyoco_server.adapters.jetstream.transport.error_translation import NATS_ERRORS, in_words
from pyoco_server.app.ports import UnavailableError
from pyoco_server.identifiers import ANY_STREAM

SYNC_SUBJECT: Final = "pyoco.sync"
"""Clients that cannot read the store send their requests here."""

_DONE: Final = b"+OK"

_log = logging.getLogger(__name__)


class StoreSync:
    """Syncs for the users of one connection, whichever server it reaches."""

    def __init__(self, client: NatsClient, *, timeout_sec: float) -> None:
        self._client = client
        self._timeout_sec = timeout_sec
        self._server_name = ""
        self._groups: dict[str, GroupCommit] | None = None
        self._self_test: asyncio.Task[bool] | None = None
        self._is_closed = False
        self.sync_file: SyncFile = sync_file
        """How an open file is synced."""

    def group(self, stream: str) -> GroupCommit | None:
        """Return the group commit of a stream; None if the server itself syncs what it acknowledges.

        UnavailableError if there is no such stream, or if this is closed.
        """
        if self._is_closed:
            raise UnavailableError("the connection was closed")
        name = self._client.server_name
        if name != self._server_name:
            self._forget()
            self._server_name, self._groups = name, {} if leaves_syncing(name) else None
        if self._groups is None:
            return None
        group = self._groups.get(stream)
        if group is None:
            group = self._groups[stream] = GroupCommit(self._syncer(stream))
        return group

    def is_local(self) -> bool:
        """Whether the store needs syncs, and this process can read it."""
        name = self._client.server_name
        return leaves_syncing(name) and streams_dir(name) is not None

    async def reads_store(self) -> bool:
        """Return whether this process reads what the server writes, by a self-test once for each start of the server.

        UnavailableError and errors of NATS are raised; then the next call tests again.
        """
        test = self._self_test
        if test is None:
            test = self._self_test = asyncio.create_task(self._test_store())
        try:
            return await asyncio.shield(test)
        except (*NATS_ERRORS, UnavailableError):
            if self._self_test is test:
                self._self_test = None
            raise

    async def _test_store(self) -> bool:
        async def request(subject: str, payload: bytes) -> bytes:
            return (await self._client.request_raw(subject, payload, b"", timeout=self._timeout_sec)).data

        directory = streams_dir(self._client.server_name)
        problem = None if directory is None else await find_problem(request, directory)
        if problem is not None:
            _log.warning(
                "this process cannot sync the files of the NATS server: %s; it sends requests to the gateway that runs "
                "the server, which is slower",
                problem,
                extra={"action": "durability_self_test_failed", "resource": str(directory)},
            )
        return directory is not None and problem is None

    async def sync_descriptions(self, streams: Iterable[str]) -> None:
        """Sync the files that describe streams, if there is a store to be synced and this process can do that.

        Other processes need not: they wait for a sync of a stream before they rely on a message in it.
        """
        directory = streams_dir(self._client.server_name) if self.is_local() else None
        if directory is None:
            return
        try:
            for stream in streams:
                await asyncio.to_thread(sync_description, directory / stream)
        except (DiskFailedError, OSError) as error:
            raise UnavailableError(f"the files of the streams were not synced: {error}") from error

    def close(self) -> None:
        """End all threads, and fail the writers that still wait."""
        self._is_closed = True
        self._forget()

    def _forget(self) -> None:
        for group in (self._groups or {}).values():
            group.close()
        if self._self_test is not None:
            self._self_test.cancel()
            self._self_test = None
        self._server_name, self._groups = "", None

    def _syncer(self, stream: str) -> StreamSyncer:
        if not ANY_STREAM.fits(stream):
            raise UnavailableError(f"there can be no stream called {stream!r:.80}")
        remote = _RemoteSyncer(self._client, stream, timeout_sec=self._timeout_sec)
        directory = streams_dir(self._server_name)
        if directory is None:
            return remote
        if not (directory / stream).is_dir():  # a request for an invented stream must not wait
            raise UnavailableError(f"there is no stream {stream}")
        local = FileSyncer(StreamFiles(directory / stream, sync=self.sync_file), name=stream)
        return _TestedSyncer(local, remote, self.reads_store)


class _TestedSyncer:
    """Syncs the files if the self-test shows that the server writes to them, else requests syncs."""

    def __init__(self, local: StreamSyncer, remote: StreamSyncer, is_local: Callable[[], Awaitable[bool]]) -> None:
        self._local = local
        self._remote = remote
        self._is_local = is_local
        self._chosen: StreamSyncer | None = None
        self._choice: asyncio.Task[None] | None = None

    def begin(self, done: Done) -> None:
        """Begin a sync; the first one waits for the self-test."""
        if self._chosen is not None:
            self._chosen.begin(done)
        else:
            self._choice = asyncio.get_running_loop().create_task(self._choose(done))

    def close(self) -> None:
        """Close both ways."""
        if self._choice is not None:
            self._choice.cancel()
        self._local.close()
        self._remote.close()

    async def _choose(self, done: Done) -> None:
        try:
            self._chosen = self._local if await self._is_local() else self._remote
        except UnavailableError as error:
            done(error)
            return
        except NATS_ERRORS as error:
            done(UnavailableError(f"the self-test of the store did not end: {in_words(error)}"))
            return
        except Exception as error:
            done(UnavailableError(f"the self-test of the store failed: {error!r:.200}"))
            raise
        self._chosen.begin(done)


class _RemoteSyncer:
    """Requests syncs from a process that can read the store."""

    def __init__(self, client: NatsClient, stream: str, *, timeout_sec: float) -> None:
        self._client = client
        self._stream = stream
        self._timeout_sec = timeout_sec
        self._request: asyncio.Task[None] | None = None

    def begin(self, done: Done) -> None:
        """Send a request."""
        self._request = asyncio.get_running_loop().create_task(self._send(done))

    def close(self) -> None:
        """Stop waiting for the answer."""
        if self._request is not None:
            self._request.cancel()

    async def _send(self, done: Done) -> None:
        try:
            answer = await self._client.request_raw(SYNC_SUBJECT, self._stream.encode(), b"", timeout=self._timeout_sec)
        except NATS_ERRORS as error:
            done(UnavailableError(f"no gateway syncs the store of the embedded NATS server: {in_words(error)}"))
            return
        except Exception as error:
            done(UnavailableError(f"the stream {self._stream} was not synced: {error!r:.200}"))
            raise
        done(None if answer.data == _DONE else UnavailableError(answer.data.decode(errors="replace")))


async def serve_syncs(client: NatsClient, syncs: StoreSync) -> None:
    """Serve requests for syncs from now on; no effect if the store needs none, or cannot be read here."""
    if not syncs.is_local():
        return
    answering = set[asyncio.Task[None]]()

    async def answer(message: Msg) -> None:
        reply = _DONE
        try:
            group = syncs.group(message.data.decode(errors="replace"))
            if group is None or not await syncs.reads_store():  # the request would come back to us
                reply = b"the store of the NATS server cannot be read"
            else:
                await group.wait()
        except UnavailableError as error:
            reply = str(error).encode()
        except NATS_ERRORS as error:
            reply = f"the self-test of the store did not end: {in_words(error)}".encode()
        with contextlib.suppress(*NATS_ERRORS):
            await client.publish(message.reply, reply)

    async def on_request(message: Msg) -> None:  # several at once share a sync
        task = asyncio.create_task(answer(message))
        answering.add(task)
        task.add_done_callback(answering.discard)

    with contextlib.suppress(*NATS_ERRORS):  # the subscription is repeated on every reconnect
        await client.subscribe(SYNC_SUBJECT, cb=on_request)
