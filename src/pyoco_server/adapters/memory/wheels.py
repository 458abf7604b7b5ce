"""Wheels and their history in memory."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from pyoco_server.adapters.system import uuid_maker
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Admit, NewWheel, Read, Wheel, WheelEvent
from pyoco_server.errors import PyocoServerError

_PIECE_BYTES: Final = 256 * 1024


class MemoryWheelRegistry:
    """Wheels by name."""

    def __init__(self, bucket: str = "pyoco_wheels") -> None:
        self._bucket = bucket
        self._kept: dict[str, tuple[Wheel, bytes]] = {}
        self._events: dict[str, WheelEvent] = {}
        self._new_id = uuid_maker()

    async def all(self) -> Sequence[Wheel]:
        """Return all wheels, ordered by name."""
        return [wheel for _, (wheel, _) in sorted(self._kept.items())]

    async def find(self, name: str) -> Wheel | None:
        """Return the wheel of that name, if there is one."""
        return self._kept[name][0] if name in self._kept else None

    async def add(self, wheel: NewWheel, read: Read, admit: Admit) -> Wheel:
        """Store a wheel if ``admit`` accepts it."""
        admit(await self.all())
        pieces = []
        while piece := await read(_PIECE_BYTES):
            pieces.append(piece)
            await asyncio.sleep(0)  # other tasks run in between, as they do with a real store
        content = b"".join(pieces)
        if hashlib.sha256(content).hexdigest() != wheel.sha256_hex:
            raise PyocoServerError(f"'{wheel.name}' changed while it was stored")
        admit(await self.all())
        kept = Wheel(
            name=wheel.name,
            size_bytes=len(content),
            bucket=self._bucket,
            nuid=self._new_id(),
            modified=wheel.event.occurred_at,
            sha256_hex=wheel.sha256_hex,
            tags=wheel.tags,
            requires_python=wheel.requires_python,
            event=wheel.event,
        )
        self._kept[wheel.name] = (kept, content)
        self._events[wheel.name] = wheel.event
        return kept

    async def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """Yield the wheel's bytes."""
        kept, content = self._kept.get(wheel.name, (None, b""))
        if kept is None or kept.nuid != wheel.nuid:
            raise UnavailableError(f"'{wheel.name}' was replaced or deleted meanwhile")
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]

    async def delete(self, name: str, event: Callable[[Wheel], WheelEvent]) -> tuple[Wheel, WheelEvent] | None:
        """Remove a wheel, and return it with its history entry."""
        wheel, _ = self._kept.pop(name, (None, b""))
        if wheel is None:
            return None
        happened = self._events[name] = event(wheel)
        return wheel, happened

    async def events(self) -> Sequence[WheelEvent]:
        """Return the last event of every name."""
        return [*self._events.values()]

    async def tidy(self, now: float) -> None:
        """Do nothing: a failed upload leaves nothing behind here."""


class MemoryWheelHistory:
    """Events by their id; none expires here."""

    def __init__(self) -> None:
        self._events: dict[str, WheelEvent] = {}

    async def add(self, event: WheelEvent) -> None:
        """Store an event."""
        self._events.setdefault(event.event_id, event)

    async def all(self) -> Sequence[WheelEvent]:
        """Return all events."""
        return [*self._events.values()]
