"""Use cases of the registry of wheels: list, upload, download, delete, history."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO, Final, Literal, Self

import msgspec

from pyoco_server.app.ports import Clock, NewId, UnavailableError
from pyoco_server.app.ports.wheels import (
    NewWheel,
    Wheel,
    WheelActor,
    WheelEvent,
    WheelHistory,
    WheelRegistry,
    WheelSource,
)
from pyoco_server.app.wheels.archive import WheelLimits
from pyoco_server.app.wheels.content import check_wheel
from pyoco_server.app.wheels.errors import WheelNotFoundError
from pyoco_server.app.wheels.names import must_be_newer, parse_name
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)

CHECKS_AT_ONCE: Final = 2
"""How many wheels are checked at the same time; it takes processor time that requests need."""


class WheelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Who requests a change, and from where: for the history."""

    actor: WheelActor = WheelActor()
    source: WheelSource = WheelSource()


class WheelService:
    """Lists, stores, reads and deletes wheels, and keeps the history of who did."""

    def __init__(
        self,
        *,
        registry: WheelRegistry,
        history: WheelHistory,
        clock: Clock,
        new_id: NewId,
        limits: WheelLimits,
        history_ttl_sec: float = 0.0,
    ) -> None:
        """``history_ttl_sec``: older entries of the history are left out (0: none is)."""
        self._registry = registry
        self._history = history
        self._clock = clock
        self._new_id = new_id
        self._history_ttl_sec = history_ttl_sec
        self._tenant_id: str | None = None
        self._checking = asyncio.Semaphore(CHECKS_AT_ONCE)
        self.limits = limits

    def confined_to(self, tenant_id: str) -> Self:
        """Return the service as a tenant sees it: the same wheels, without the keys and addresses of other tenants."""
        view = copy.copy(self)
        view._tenant_id = tenant_id  # noqa: SLF001 a copy of this object
        return view

    async def all(self) -> Sequence[Wheel]:
        """Return all wheels, ordered by name."""
        return await self._registry.all()

    async def find(self, name: str) -> Wheel:
        """Return a wheel; WheelNotFoundError if there is none of that name."""
        found = await self._registry.find(name) if name.endswith(".whl") else None
        if found is None:
            raise WheelNotFoundError(f"wheel not found: '{name:.200}'")
        return found

    def content(self, wheel: Wheel) -> AsyncIterator[bytes]:
        """Yield the wheel's bytes in pieces."""
        return self._registry.content(wheel)

    async def upload(
        self, file: BinaryIO, name: str, *, tags: tuple[str, ...], replace: bool, asked: WheelRequest
    ) -> Wheel:
        """Check a file and store it as a wheel; nothing of a refused file is stored.

        WheelRefusedError or WheelTooLargeError if the file is not a sound wheel, WheelVersionError if it is not newer
        than every wheel of its package, even with ``replace``.
        """
        parse_name(name)
        must_be_newer(name, await self._registry.all())  # before the slow check
        async with self._checking:
            checked = await asyncio.to_thread(check_wheel, file, name, self.limits)
        await self._catch_up()
        event = WheelEvent(
            event_id=self._new_id(),
            occurred_at=self._now(),
            action="upload",
            wheel_name=name,
            tags=tags,
            size_bytes=checked.size_bytes,
            sha256_hex=checked.sha256_hex,
            replace=replace,
            actor=asked.actor,
            source=asked.source,
        )
        file.seek(0)

        async def read(size: int) -> bytes:
            return await asyncio.to_thread(file.read, size)

        new = NewWheel(
            name=name,
            sha256_hex=checked.sha256_hex,
            tags=tags,
            requires_python=checked.requires_python,
            event=event,
        )
        wheel = await self._registry.add(new, read, lambda there: must_be_newer(name, there))
        await self._note(event)
        await self._tidy()
        return wheel

    async def delete(self, name: str, asked: WheelRequest) -> Wheel:
        """Remove a wheel; WheelNotFoundError if there is none of that name."""
        await self.find(name)
        await self._catch_up()

        def event(wheel: Wheel) -> WheelEvent:
            return WheelEvent(
                event_id=self._new_id(),
                occurred_at=self._now(),
                action="delete",
                wheel_name=wheel.name,
                tags=wheel.tags,
                size_bytes=wheel.size_bytes,
                sha256_hex=wheel.sha256_hex,
                actor=asked.actor,
                source=asked.source,
            )

        deleted = await self._registry.delete(name, event)
        if deleted is None:
            raise WheelNotFoundError(f"wheel not found: '{name}'")
        wheel, happened = deleted
        await self._note(happened)
        return wheel

    async def events(
        self, *, limit: int, wheel_name: str | None = None, action: Literal["upload", "delete"] | None = None
    ) -> Sequence[WheelEvent]:
        """Return the newest events that fit, newest first."""
        found = [
            event
            for event in await self._catch_up()
            if wheel_name in {None, event.wheel_name} and action in {None, event.action}
        ]
        newest = sorted(found, key=lambda event: (event.occurred_at, event.event_id), reverse=True)[:limit]
        return [self._shown(event) for event in newest]

    def _shown(self, event: WheelEvent) -> WheelEvent:
        """Return an event without its sender, unless that is the tenant itself."""
        if self._tenant_id is None or event.actor.tenant_id == self._tenant_id:
            return event
        return msgspec.structs.replace(event, actor=WheelActor(), source=WheelSource())

    async def _catch_up(self) -> Sequence[WheelEvent]:
        """Return the whole history, with events that a process stored with a wheel and died before it added them."""
        known = {event.event_id: event for event in await self._history.all()}
        oldest = self._now() - self._history_ttl_sec if self._history_ttl_sec else 0.0
        for event in await self._registry.events():
            if event.event_id not in known and event.occurred_at > oldest:
                await self._history.add(event)
                known[event.event_id] = event
        return [*known.values()]

    async def _note(self, event: WheelEvent) -> None:
        try:
            await self._history.add(event)
        except UnavailableError as error:  # the change is made; its event is stored with the wheel
            log_error(_log, "ERR-PYOCO-0003", action="wheel_history_late", exc=error, level=logging.WARNING)

    async def _tidy(self) -> None:
        try:
            await self._registry.tidy(self._now())
        except UnavailableError as error:  # the next upload tidies
            log_error(_log, "ERR-PYOCO-0003", action="wheels_untidy", exc=error, level=logging.WARNING)

    def _now(self) -> float:
        return self._clock.now().timestamp()
