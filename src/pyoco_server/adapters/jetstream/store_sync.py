"""Whether what NATS acknowledges is on the disk already and, if not, how it gets there.

A server of one's own syncs as it is configured. The embedded one leaves it to those who use it, who do it for many
messages at a time (:mod:`.group_sync`): by themselves if they can read its files, else by asking the gateway that runs
it (:func:`serve_syncs`).
"""

import asyncio
import contextlib
import re
from typing import Final

from nats.aio.msg import Msg

from pyoco_server.adapters.jetstream.client import NatsClient
from pyoco_server.adapters.jetstream.group_sync import Done, FileSyncer, StreamGroup, Syncer
from pyoco_server.adapters.jetstream.store_files import StreamFiles, SyncFile, sync_file
from pyoco_server.adapters.jetstream.translation import NATS_ERRORS, in_words
from pyoco_server.adapters.store_address import leaves_syncing, streams_dir
from pyoco_server.app.ports import UnavailableError

SYNC_SUBJECT: Final = "pyoco.sync"
"""Where those ask who cannot sync by themselves."""

_DONE: Final = b"+OK"
_STREAM: Final = re.compile(r"[^\x00-\x20./\\*>\x7f]+")
"""What streams can be called: nothing that would lead elsewhere as a path."""


class StoreSync:
    """Syncs for the users of one connection, whichever server that leads to."""

    def __init__(self, client: NatsClient, *, timeout_sec: float) -> None:
        self._client = client
        self._timeout_sec = timeout_sec
        self._server_name = ""
        self._groups: dict[str, StreamGroup] | None = None
        self._is_closed = False
        self.sync_file: SyncFile = sync_file
        """How an open file is synced."""

    def group(self, stream: str) -> StreamGroup | None:
        """Those who wait for a stream; None if what the server acknowledges needs no sync by us.

        UnavailableError if there is no such stream, or if this was closed.
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
            group = self._groups[stream] = StreamGroup(self._syncer(stream))
        return group

    def is_local(self) -> bool:
        """Is there a store to be synced, and can we do that?"""
        name = self._client.server_name
        return leaves_syncing(name) and streams_dir(name) is not None

    def close(self) -> None:
        """End all threads. Whoever still waits is told that nobody knows."""
        self._is_closed = True
        self._forget()

    def _forget(self) -> None:
        for group in (self._groups or {}).values():
            group.close()
        self._server_name, self._groups = "", None

    def _syncer(self, stream: str) -> Syncer:
        if _STREAM.fullmatch(stream) is None:
            raise UnavailableError(f"there can be no stream called {stream!r:.80}")
        directory = streams_dir(self._server_name)
        if directory is not None:
            if not (directory / stream).is_dir():  # nobody can have us wait for what they invent
                raise UnavailableError(f"there is no stream {stream}")
            return FileSyncer(StreamFiles(directory / stream, sync=self.sync_file), name=stream)
        return _AskingSyncer(self._client, stream, timeout_sec=self._timeout_sec)


class _AskingSyncer:
    """Lets somebody sync who can reach the store."""

    def __init__(self, client: NatsClient, stream: str, *, timeout_sec: float) -> None:
        self._client = client
        self._stream = stream
        self._timeout_sec = timeout_sec
        self._asking: asyncio.Task[None] | None = None

    def begin(self, done: Done) -> None:
        """Ask."""
        self._asking = asyncio.get_running_loop().create_task(self._ask(done))

    def close(self) -> None:
        """Wait for no answer."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, done: Done) -> None:
        try:
            answer = await self._client.ask(SYNC_SUBJECT, self._stream.encode(), b"", timeout=self._timeout_sec)
        except NATS_ERRORS as error:
            done(UnavailableError(f"nobody who runs the embedded NATS server syncs its store: {in_words(error)}"))
            return
        except Exception as error:
            done(UnavailableError(f"the stream {self._stream} was not synced: {error!r:.200}"))
            raise
        done(None if answer.data == _DONE else UnavailableError(answer.data.decode(errors="replace")))


async def serve_syncs(client: NatsClient, syncs: StoreSync) -> None:
    """From now on, sync for those who cannot; nothing to do where that is not needed, or not possible from here."""
    if not syncs.is_local():
        return
    answering = set[asyncio.Task[None]]()

    async def answer(message: Msg) -> None:
        said = _DONE
        try:
            group = syncs.group(message.data.decode(errors="replace"))
            if group is None or isinstance(group.syncer, _AskingSyncer):  # we would ask ourselves
                said = b"the store of the NATS server cannot be read"
            else:
                await group.wait()
        except UnavailableError as error:
            said = str(error).encode()
        with contextlib.suppress(*NATS_ERRORS):
            await client.publish(message.reply, said)

    async def asked(message: Msg) -> None:  # several at once: they share a sync
        task = asyncio.create_task(answer(message))
        answering.add(task)
        task.add_done_callback(answering.discard)

    with contextlib.suppress(*NATS_ERRORS):  # what is listened to is told to the server again when it is back
        await client.subscribe(SYNC_SUBJECT, cb=asked)
