"""Who is in the process: many in company, or one alone.

Every slot is in company from before it asks for a job until it is done with it. Who wants to be alone claims the place:
from then on nobody comes in, and the claimant waits until the others have left. Requests for jobs that are out at that
moment are not cut short, since a job on its way to one would lose a delivery.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

from pyoco_server.app.ports import Delivery, UnavailableError
from pyoco_server.logs import log_error

_log = logging.getLogger(__name__)


class Quarantine:
    """The place of one worker process; there is never more than one claimant."""

    def __init__(self) -> None:
        self.is_closed = False
        self.present = 0
        """How many are here, the claimant among them."""
        self._claimant: Delivery | None = None
        self._waiting: set[asyncio.Event] = set()

    @property
    def is_claimed(self) -> bool:
        """Is somebody alone here, or does somebody want to be?"""
        return self._claimant is not None

    @property
    def is_alone(self) -> bool:
        """Is the claimant the only one here?"""
        return self.present <= 1

    @contextlib.asynccontextmanager
    async def company(self) -> AsyncIterator[None]:
        """Come in when nobody is alone here or wants to be, or when the place is closed; leave at the end."""
        while self.is_claimed and not self.is_closed:
            with self.changes() as changed:
                await changed.wait()
        self.present += 1
        try:
            yield
        finally:
            self.present -= 1
            self._tell()

    @contextlib.contextmanager
    def claimed(self, delivery: Delivery) -> Iterator[bool]:
        """Claim the place; False if somebody else has, or if it is closed. Being alone is still to be waited for."""
        if self.is_claimed or self.is_closed:
            yield False
            return
        self._claimant = delivery
        try:
            yield True
        finally:
            self._claimant = None
            self._tell()

    @contextlib.contextmanager
    def changes(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever somebody leaves or the place is closed; others may set it, too."""
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            yield changed
        finally:
            self._waiting.discard(changed)

    def close(self) -> None:
        """The worker stops: nobody need begin to be alone any more."""
        self.is_closed = True
        self._tell()

    async def still_waiting(self) -> None:
        """Keep the claimant's job from being given to somebody else."""
        if self._claimant is not None:
            try:
                await self._claimant.in_progress()
            except UnavailableError as error:
                log_error(_log, "ERR-PYOCO-0009", action="in_progress_failed", exc=error, level=logging.WARNING)

    def _tell(self) -> None:
        for changed in self._waiting:
            changed.set()
