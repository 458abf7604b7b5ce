"""The gate of one worker's slots: many slots use the process together, or one user has it alone.

A slot is inside from before it asks for a job until the job is settled. Two users want the process alone: a job that
may kill it (see ``job_handler.py``), and wheel sync, which changes the code of the process (``wheel_sync/sync.py``).
While one of them has the gate, or waits for the slots inside to leave, no other slot comes in.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

from pyoco_server.app.ports import Delivery, UnavailableError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)


class SlotGate:
    """A shared and exclusive lock; there is never more than one claimant, and a closed gate keeps no slot out."""

    def __init__(self) -> None:
        self.is_closed = False
        self.present = 0
        """How many slots are inside, also that of a job that claims the gate."""
        self.is_claimed = False
        """Does a user have the gate alone, or wait to?"""
        self._delivery: Delivery | None = None
        self._kept_out = 0
        self._changes: set[asyncio.Event] = set()

    @property
    def is_alone(self) -> bool:
        """Is the slot of the claiming job the only one inside?"""
        return self.present <= 1

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Come in when the gate is not claimed, or is closed; leave at the end."""
        if self.is_claimed and not self.is_closed:
            await self._until_unclaimed()
        self.present += 1
        try:
            yield
        finally:
            self.present -= 1
            self._notify()

    async def _until_unclaimed(self) -> None:
        self._kept_out += 1
        self._notify()
        try:
            with self.changes() as changed:
                while self.is_claimed and not self.is_closed:
                    await changed.wait()
                    changed.clear()
        finally:
            self._kept_out -= 1

    @contextlib.contextmanager
    def exclusive(self, delivery: Delivery) -> Iterator[bool]:
        """Claim the gate for a job inside; False if it is claimed or closed. The caller waits until it ``is_alone``."""
        is_mine = self.claim(delivery)
        try:
            yield is_mine
        finally:
            if is_mine:
                self.release()

    def claim(self, delivery: Delivery | None = None) -> bool:
        """Let no more slots in; False if the gate is claimed or closed. ``delivery``: the job that claims it."""
        if self.is_claimed or self.is_closed:
            return False
        self.is_claimed, self._delivery = True, delivery
        return True

    def release(self) -> None:
        """Give up the claim: slots come in again."""
        self.is_claimed, self._delivery = False, None
        self._notify()

    async def until_empty(self, patience_sec: float) -> bool:
        """Wait, as the claimant, until no slot is inside; False if that takes too long, or the gate is closed.

        The time counts from when a slot is kept out: before that, waiting costs nothing.
        """
        loop, ends_at = asyncio.get_running_loop(), None
        with self.changes() as changed:
            while self.present and not self.is_closed:
                if ends_at is None and self._kept_out:
                    ends_at = loop.time() + patience_sec
                if ends_at is not None and loop.time() >= ends_at:
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(ends_at):
                        await changed.wait()
                changed.clear()
        return not self.is_closed

    @contextlib.contextmanager
    def changes(self) -> Iterator[asyncio.Event]:
        """An event that is set at each change of the gate; others may set it, too."""
        changed = asyncio.Event()
        self._changes.add(changed)
        try:
            yield changed
        finally:
            self._changes.discard(changed)

    def close(self) -> None:
        """The worker stops: no slot is kept out any more, and no user gets the gate alone."""
        self.is_closed = True
        self._notify()

    async def report_progress(self) -> None:
        """Keep the queue from delivering the claiming job to another worker while it waits."""
        if self._delivery is not None:
            try:
                await self._delivery.in_progress()
            except UnavailableError as error:
                log_error(_log, "ERR-PYOCO-0009", action="in_progress_failed", exc=error, level=logging.WARNING)

    def _notify(self) -> None:
        for changed in self._changes:
            changed.set()
