"""Which runs changed recently, for the streams that watch the list of runs: once for all, and once for each tenant."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from pyoco_server.app.ports import SnapshotChange

MOST: Final = 2_000
"""The most runs that are remembered. A reader that lags behind by more has to read the list again."""


class _OwnedRun(msgspec.Struct):
    tenant_id: str | None = None


_OWNED: Final = msgspec.json.Decoder(_OwnedRun)


class RecentRuns:
    """The ids of the runs that changed last, each once. A reader passes the number of changes it has seen."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._changed_at: dict[str, int] = {}  # in the order of the changes
        self._count = 0
        self._forgotten = 0
        self._changed = asyncio.Event()
        self.readers = 0

    @property
    def count(self) -> int:
        """The number of changes so far."""
        return self._count

    def note(self, run_id: str) -> None:
        """Note that a run has changed."""
        self._count += 1
        self._changed_at.pop(run_id, None)
        self._changed_at[run_id] = self._count
        if len(self._changed_at) > self._most:
            self._forgotten = self._changed_at.pop(next(iter(self._changed_at)))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def since(self, seen: int) -> list[str] | None:
        """Return the runs that changed after the first ``seen`` changes, newest first; None if some are forgotten."""
        if seen < self._forgotten:
            return None
        found: list[str] = []
        for run_id, changed_at in reversed(self._changed_at.items()):
            if changed_at <= seen:
                break
            found.append(run_id)
        return found

    async def wait(self, seen: int, timeout_sec: float) -> bool:
        """Return True when a run has changed after the first ``seen`` changes, False when the time is up."""
        if self._count == seen:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True


class RunChanges:
    """Notifies the streams that watch the list. No tenant learns how much the runs of others change."""

    def __init__(self) -> None:
        self._watched: dict[str | None, RecentRuns] = {}

    def notify(self, change: SnapshotChange) -> None:
        """Note that a run has changed; a run whose snapshot was removed belongs to no tenant."""
        if not self._watched:
            return
        of_all = self._watched.get(None)
        if of_all is not None:
            of_all.note(change.run_id)
        if change.body is not None and len(self._watched) > (of_all is not None):
            tenant_id = _tenant_of(change.body)
            if tenant_id is not None and tenant_id in self._watched:
                self._watched[tenant_id].note(change.run_id)

    @contextmanager
    def watch(self, tenant_id: str | None) -> Iterator[RecentRuns]:
        """Watch the changes of a tenant's runs; None: of all runs."""
        recent = self._watched.setdefault(tenant_id, RecentRuns())
        recent.readers += 1
        try:
            yield recent
        finally:
            recent.readers -= 1
            if not recent.readers:
                del self._watched[tenant_id]


def _tenant_of(body: bytes) -> str | None:
    try:
        return _OWNED.decode(body).tenant_id
    except (msgspec.DecodeError, UnicodeDecodeError):  # another program damaged it; no list has it either
        return None
