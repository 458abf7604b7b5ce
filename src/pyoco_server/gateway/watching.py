"""Those who watch runs: each is shown the newest snapshot when they are ready for it, and never more than that."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from pyoco_server.app.ports import SnapshotChange, StoredSnapshot, UnavailableError
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.errors import TooManyError
from pyoco_server.gateway.run_views import snapshot_view
from pyoco_server.gateway.shared_reads import SharedReads
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

MOST_LOOKS: Final = 32
"""So many runs are looked at ahead of the index at a time; when more change at once, it is quicker with the rest."""

Look = Callable[[], Awaitable[StoredSnapshot | None]]


class Told:
    """A snapshot on its way to whoever watches: shared by all of them, written out once in each form they want."""

    __slots__ = ("_body", "_forms", "_updated_at", "sequence")

    def __init__(self, body: bytes, sequence: int) -> None:
        self.sequence = sequence
        """Grows with every snapshot of any run; as the store's revisions do."""
        self._body = body
        self._forms: dict[bool, msgspec.Raw] = {}
        self._updated_at: float | None = None

    @property
    def updated_at(self) -> float:
        """When the run last changed."""
        if self._updated_at is None:
            self._form(records=False)
        return self._updated_at or 0.0

    def snapshot(self, *, records: bool) -> msgspec.Raw:
        """The snapshot as JSON, with its task records or without."""
        return self._forms.get(records) or self._form(records=records)

    def _form(self, *, records: bool) -> msgspec.Raw:
        snapshot: JsonObject = msgspec.json.decode(self._body)
        said = snapshot.get("updated_at")
        self._updated_at = float(said) if isinstance(said, int | float) else 0.0
        self._forms[records] = msgspec.Raw(msgspec.json.encode(snapshot_view(snapshot, records=records)))
        return self._forms[records]


class Watcher:
    """One reader of one run: a slot for the newest snapshot, so a slow reader costs no more than a quick one."""

    __slots__ = ("_newest", "_sequence", "_something")

    def __init__(self) -> None:
        self._newest: Told | None = None
        self._sequence = 0
        self._something = asyncio.Event()

    def put(self, told: Told) -> None:
        """Have a newer snapshot ready; what is no newer than what was there before changes nothing."""
        if told.sequence > self._sequence:
            self._newest, self._sequence = told, told.sequence
            self._something.set()

    async def next(self, timeout_sec: float) -> Told | None:
        """The newest snapshot that was not shown yet; None if there was none in time."""
        try:
            async with asyncio.timeout(timeout_sec):
                await self._something.wait()
        except TimeoutError:
            return None
        self._something.clear()
        newest, self._newest = self._newest, None
        return newest


class WatchHub:
    """Who watches what."""

    def __init__(self, *, most: int, most_per_client: int) -> None:
        self.reads: SharedReads[StoredSnapshot] = SharedReads()
        """Of what newcomers are shown first: when something happens, many come at once."""
        self._most = most
        self._most_per_client = most_per_client
        self._watchers: defaultdict[str, set[Watcher]] = defaultdict(set)
        self._clients: Counter[str] = Counter()
        self._count = 0
        self._announced: set[str] = set()
        self._looking: dict[str, asyncio.Task[None]] = {}

    @property
    def count(self) -> int:
        """How many watch."""
        return self._count

    def tell(self, change: SnapshotChange) -> None:
        """Let those who watch the run know."""
        if change.body is not None and change.run_id in self._watchers:
            told = Told(change.body, change.sequence)
            for watcher in self._watchers[change.run_id]:
                watcher.put(told)

    def announced(self, run_id: str, look: Look) -> None:
        """A change of a run was announced: look at it and tell of it ahead of the index, which does so in any case.

        One look serves all who watch the run, and all that is announced before it begins.
        """
        if run_id in self._looking:
            self._announced.add(run_id)
        elif len(self._looking) < MOST_LOOKS:
            self._looking[run_id] = asyncio.create_task(self._look(run_id, look), name=f"{run_id} announced")

    async def _look(self, run_id: str, look: Look) -> None:
        try:
            while True:
                self._announced.discard(run_id)
                stored = await look()
                if stored is not None:
                    self.tell(SnapshotChange(run_id, stored.body, stored.revision))
                if run_id not in self._announced:
                    return
        except UnavailableError:
            _log.debug("a change is left to the index", extra={"action": "watchers_told_later", "run_id": run_id})
        except Exception as error:  # noqa: BLE001 nobody awaits a look; the index tells the watchers, later
            log_error(_log, "ERR-PYOCO-0106", action="watchers_told_later", exc=error, run_id=run_id)
        finally:
            self._announced.discard(run_id)
            del self._looking[run_id]

    @contextmanager
    def watch(self, run_id: str, client: str) -> Iterator[Watcher]:
        """Watch a run; TooManyError if that would be one too many."""
        self._check(client)
        watcher = Watcher()
        self._watchers[run_id].add(watcher)
        self._clients[client] += 1
        self._count += 1
        try:
            yield watcher
        finally:
            self._count -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            self._watchers[run_id].discard(watcher)
            if not self._watchers[run_id]:
                del self._watchers[run_id]

    def _check(self, client: str) -> None:
        if self._count >= self._most:
            raise TooManyError(f"{self._most} connections watch already; try again later, or ask another gateway")
        if self._clients[client] >= self._most_per_client:
            raise TooManyError(f"you watch {self._most_per_client} runs already; close a connection first")
