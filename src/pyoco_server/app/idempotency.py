"""The same request again gives the same run, with nothing stored for it: the run's id is worked out from the key.

Whoever comes second finds that the log of that id has begun, and looks at what it began with. A submission that was
not accepted has closed its log; then the key stands for the next id of its sequence.
"""

import asyncio
import uuid
from typing import ClassVar, Final

import msgspec

from pyoco_server.app.ports import LogConflictError, Snapshots, UnavailableError
from pyoco_server.app.retracting import NOT_ACCEPTED
from pyoco_server.app.run_desk import OpenRun, RunDesk, RunNotFoundError
from pyoco_server.app.submitting import Submission, Submitter
from pyoco_server.core import Actor
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError

_NAMESPACE: Final = uuid.UUID("6f1d3a52-6a0e-4b0e-9c1e-0d5f6f7c2b11")
_TRIES: Final = 16
_LOOKS: Final = 20
_PAUSE_SEC: Final = 0.05


class IdempotencyKeyError(PyocoServerError):
    """The key was used for another request."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


class Once:
    """Submits runs under keys; any number of them may work on one log."""

    def __init__(self, submitter: Submitter, desk: RunDesk, snapshots: Snapshots) -> None:
        self._submitter = submitter
        self._desk = desk
        self._snapshots = snapshots

    async def submit(
        self,
        submission: Submission,
        actor: Actor,
        *,
        key: str | None,
        run_id: str | None = None,
        correlation_id: str | None = None,
    ) -> JsonObject:
        """Submit a run unless the key has one already; either way the run's first snapshot, so that answers are alike.

        IdempotencyKeyError if the key stands for another request; without a key, every submission is a run of its own,
        under ``run_id`` if that is given.
        """
        if key is None:
            return await self._submitter.submit(submission, actor, run_id=run_id, correlation_id=correlation_id)
        for generation in range(_TRIES):
            run_id = str(uuid.uuid5(_NAMESPACE, f"{submission.tenant_id or ''}\n{generation}\n{key}"))
            try:
                return await self._submitter.submit(
                    submission, actor, run_id=run_id, is_shared=True, correlation_id=correlation_id
                )
            except LogConflictError:
                found = await self._accepted(run_id)
            if found is None:
                continue
            if not _is_same(found, submission):
                raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was used for another request; use a new one")
            if len(found.events) == 1:  # whoever submitted it may have got no further than its snapshot
                await self._submitter.queue_again(found.events[0], found.projection.input, found.execution.position)
            return found.snapshot_after(1)
        raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was tried {_TRIES} times in vain; use a new one")

    async def _accepted(self, run_id: str) -> OpenRun | None:
        """The run with this id; None if it was not accepted.

        Whoever submitted it may be about to find out that it is not: what is only a log is not answered for. Once there
        is a snapshot, or somebody has gone on with the run, it is never taken back.
        """
        for _ in range(_LOOKS):
            try:
                run = await self._desk.open(run_id)
            except RunNotFoundError as error:
                raise UnavailableError("the log has the same request already, and cannot be read; try again") from error
            if run.execution.state.cancel_reason == NOT_ACCEPTED:
                return None
            if len(run.events) > 1:
                return run
            if await self._snapshots.read(run_id) is not None:
                await self._snapshots.sync()  # whoever wrote it may not have waited for that
                return run
            await asyncio.sleep(_PAUSE_SEC)
        raise UnavailableError("the same request is being handled, and has no outcome yet; try again")


def _is_same(found: OpenRun, submission: Submission) -> bool:
    """The same run of the same tenant; by which of its keys and when does not matter."""
    given = found.projection.input
    wanted = submission.input(found.execution.clock.now())
    return msgspec.structs.replace(wanted, submitted_at=given.submitted_at, api_key_id=given.api_key_id) == given
