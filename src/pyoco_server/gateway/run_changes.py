"""Which runs changed lately: one short memory for all who watch the list, and one for each tenant who does."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from pyoco_server.app.ports import SnapshotChange

MOST: Final = 2_000
"""So many runs are remembered. Who lags behind by more has to read the list anew."""


class _Owned(msgspec.Struct):
    tenant_id: str | None = None


_OWNED: Final = msgspec.json.Decoder(_Owned)


class RecentRuns:
    """The ids of the runs that changed last, each once; who reads says up to where they have read."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._changed_at: dict[str, int] = {}  # in the order of the changes
        self._count = 0
        self._forgotten = 0
        self._news = asyncio.Event()
        self.readers = 0

    @property
    def mark(self) -> int:
        """How many changes there have been."""
        return self._count

    def note(self, run_id: str) -> None:
        """A run has changed."""
        self._count += 1
        self._changed_at.pop(run_id, None)
        self._changed_at[run_id] = self._count
        if len(self._changed_at) > self._most:
            self._forgotten = self._changed_at.pop(next(iter(self._changed_at)))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def since(self, mark: int) -> list[str] | None:
        """The runs that changed behind the mark, the last first; None if some of them are forgotten."""
        if mark < self._forgotten:
            return None
        found: list[str] = []
        for run_id, changed_at in reversed(self._changed_at.items()):
            if changed_at <= mark:
                break
            found.append(run_id)
        return found

    async def wait(self, mark: int, timeout_sec: float) -> bool:
        """Has anything changed behind the mark? Returns when it has, or when the time is up."""
        if self._count == mark:
            try:
                async with asyncio.timeout(timeout_sec):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True


class RunChanges:
    """Tells those who watch the list. Nobody learns from it how much others' runs change."""

    def __init__(self) -> None:
        self._watched: dict[str | None, RecentRuns] = {}

    def tell(self, change: SnapshotChange) -> None:
        """A run has changed; one that was removed is nobody's any more."""
        if not self._watched:
            return
        everybodys = self._watched.get(None)
        if everybodys is not None:
            everybodys.note(change.run_id)
        if change.body is not None and len(self._watched) > (everybodys is not None):
            tenant_id = _tenant_of(change.body)
            if tenant_id is not None and tenant_id in self._watched:
                self._watched[tenant_id].note(change.run_id)

    @contextmanager
    def watch(self, tenant_id: str | None) -> Iterator[RecentRuns]:
        """Follow the changes of a tenant's runs; None: of everybody's."""
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
    except (msgspec.DecodeError, UnicodeDecodeError):  # what somebody else wrote there; no list has it either
        return None
