"""The one place where a changed snapshot reaches those who follow runs: event streams, waiting requests, the list.

A change arrives twice: announced by the store at once, and in order from the index. Each watcher has a slot for the
newest snapshot of its run and ignores what is not newer, so that a slow reader costs no more than a fast one.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import SnapshotChange, StoredSnapshot, UnavailableError
from pyoco_server.app.snapshots.codec import json_object, number
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.live.run_changes import RunChanges
from pyoco_server.gateway.live.shared_reads import SharedReads
from pyoco_server.gateway.run_views import snapshot_view
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

MOST_READS: Final = 32
"""The most reads at a time for announcements that come without a snapshot; the index brings the others."""


class SnapshotUpdate:
    """A new snapshot of a run, shared by its watchers and encoded once in each form that they send."""

    __slots__ = ("_forms", "_updated_at", "body", "sequence")

    def __init__(self, body: bytes, sequence: int) -> None:
        self.body = body
        self.sequence = sequence
        """The revision in the store: it grows with every snapshot of any run."""
        self._forms: dict[bool, msgspec.Raw | None] = {}
        self._updated_at = 0.0

    @property
    def updated_at(self) -> float:
        """When the run last changed, in Unix seconds; 0 if the snapshot does not say so."""
        self.snapshot(records=False)
        return self._updated_at

    def snapshot(self, *, records: bool) -> msgspec.Raw | None:
        """Return the snapshot as JSON, with its task records or without; None if another program damaged it."""
        if records not in self._forms:
            self._forms[records] = self._encoded(records=records)
        return self._forms[records]

    def _encoded(self, *, records: bool) -> msgspec.Raw | None:
        snapshot = json_object(self.body)
        if snapshot is None:
            return None
        self._updated_at = number(snapshot.get("updated_at")) or 0.0
        return msgspec.Raw(msgspec.json.encode(snapshot_view(snapshot, records=records)))


class Watcher:
    """One reader of one run, with a slot for the newest snapshot that it has not taken yet."""

    __slots__ = ("_changed", "_newest", "_sequence")

    def __init__(self) -> None:
        self._newest: SnapshotUpdate | None = None
        self._sequence = 0
        self._changed = asyncio.Event()

    @property
    def is_changed(self) -> bool:
        """Whether the run has changed since the reader last took a snapshot."""
        return self._changed.is_set()

    def put(self, update: SnapshotUpdate) -> None:
        """Offer a snapshot; one that is not newer than those before is ignored."""
        if update.sequence > self._sequence:
            self._newest, self._sequence = update, update.sequence
            self._changed.set()

    def wake(self) -> None:
        """Wake the reader without a snapshot: it has to read the store."""
        self._newest = None
        self._changed.set()

    async def wait(self) -> None:
        """Return when the run has changed."""
        await self._changed.wait()

    def take(self) -> SnapshotUpdate | None:
        """Return the newest snapshot and empty the slot; None if the reader has to read the store."""
        self._changed.clear()
        newest, self._newest = self._newest, None
        return newest

    async def next(self, timeout_sec: float) -> SnapshotUpdate | None:
        """Return the newest snapshot that was not taken yet; None if there was none in time."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._changed.wait()
        except TimeoutError:
            return None
        return self.take()


class SnapshotHub:
    """Knows the watchers of each run, and passes on every change of a snapshot."""

    def __init__(
        self, read: Callable[[str], Awaitable[StoredSnapshot | None]], *, most: int, most_per_client: int
    ) -> None:
        """``read`` reads a run's snapshot, for announcements that come without one."""
        self.streams = WatcherLimit(
            most,
            most_per_client,
            "{} connections watch already; try again later, or ask another gateway",
            "you watch {} runs already; close a connection first",
        )
        self.requests = WatcherLimit(
            most,
            most_per_client,
            "{} requests wait already; ask without wait_sec, or another gateway",
            "{} of your requests wait already; ask without wait_sec",
        )
        self.changes = RunChanges()
        self.reads: SharedReads[StoredSnapshot] = SharedReads()
        """Reads of the snapshots that new watchers are sent first: many come at once when something happens."""
        self.is_closed = False
        """The gateway is stopping: no request may wait any longer."""
        self._read = read
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._waiting: set[Watcher] = set()
        self._changed_again: set[str] = set()
        self._reading: dict[str, asyncio.Task[None]] = {}

    def notify(self, change: SnapshotChange) -> None:
        """Pass on a change that the index has; changes come in order."""
        self.changes.notify(change)
        self._pass_on(change)

    def announce(self, run_id: str, change: SnapshotChange | None) -> None:
        """Pass on a change that the store announces, which may be lost or come without the snapshot.

        One read serves all watchers of the run, and all that is announced before the read begins.
        """
        if run_id not in self._watchers:
            return
        if change is not None:
            self._pass_on(change)
        elif run_id in self._reading:
            self._changed_again.add(run_id)
        elif len(self._reading) < MOST_READS:
            self._reading[run_id] = asyncio.create_task(self._read_announced(run_id), name=f"{run_id} announced")

    def close(self) -> None:
        """Wake every waiting request, so that it answers now."""
        self.is_closed = True
        for watcher in self._waiting:
            watcher.wake()

    @contextmanager
    def watch(self, run_id: str, client: str, *, tenant_id: str | None = None) -> Iterator[Watcher]:
        """Watch a run for an event stream; TooManyError if that would be one too many."""
        with self.streams.counted(client, tenant_id), self._registered(run_id) as watcher:
            yield watcher

    @contextmanager
    def wait_for(self, run_id: str, client: str) -> Iterator[Watcher]:
        """Watch a run for a request that waits for its end; TooManyError if so many wait already."""
        with self.requests.counted(client), self._registered(run_id) as watcher:
            self._waiting.add(watcher)
            try:
                yield watcher
            finally:
                self._waiting.discard(watcher)

    @contextmanager
    def _registered(self, run_id: str) -> Iterator[Watcher]:
        watcher = Watcher()
        self._watchers[run_id].add(watcher)
        try:
            yield watcher
        finally:
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]

    def _pass_on(self, change: SnapshotChange) -> None:
        watchers = self._watchers.get(change.run_id)
        if not watchers:
            return
        if change.body is not None:
            update = SnapshotUpdate(change.body, change.sequence)
            for watcher in watchers:
                watcher.put(update)
        else:  # the snapshot was removed: an event stream has nothing to send
            for watcher in watchers & self._waiting:
                watcher.wake()

    async def _read_announced(self, run_id: str) -> None:
        try:
            while True:
                self._changed_again.discard(run_id)
                stored = await self._read(run_id)
                if stored is not None:
                    self._pass_on(SnapshotChange(run_id, stored.body, stored.revision))
                if run_id not in self._changed_again:
                    return
        except UnavailableError:
            _log.debug(
                "an announced snapshot cannot be read; the index will bring it",
                extra={"action": "watchers_told_later", "run_id": run_id},
            )
        except Exception as error:  # noqa: BLE001 this task has no caller; the index brings the change later
            log_error(_log, "ERR-PYOCO-0106", action="watchers_told_later", exc=error, run_id=run_id)
        finally:
            self._changed_again.discard(run_id)
            del self._reading[run_id]


class WatcherLimit:
    """Counts watchers, in all and by client; the texts of its errors take the limit that was reached."""

    def __init__(self, most: int, most_per_client: int, too_many: str, too_many_of_client: str) -> None:
        self._most = most
        self._most_per_client = most_per_client
        self._too_many = too_many
        self._too_many_of_client = too_many_of_client
        self._clients: Counter[str] = Counter()
        self._tenants: Counter[str | None] = Counter()

    @property
    def count(self) -> int:
        """How many there are now."""
        return self._clients.total()

    def count_of(self, tenant_id: str | None) -> int:
        """How many of them are this tenant's; all of them for None."""
        return self.count if tenant_id is None else self._tenants[tenant_id]

    @contextmanager
    def counted(self, client: str, tenant_id: str | None = None) -> Iterator[None]:
        """Count one more of a client; TooManyError if a limit is reached."""
        if self.count >= self._most:
            raise TooManyError(self._too_many.format(self._most))
        if self._clients[client] >= self._most_per_client:
            raise TooManyError(self._too_many_of_client.format(self._most_per_client))
        self._clients[client] += 1
        self._tenants[tenant_id] += 1
        try:
            yield
        finally:
            _count_down(self._clients, client)
            _count_down(self._tenants, tenant_id)


def _count_down(counter: Counter[Any], name: str | None) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
