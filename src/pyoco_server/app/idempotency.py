"""The same request again gives the same run, with nothing stored for it: the run's id is worked out from the key.

Whoever comes second finds that the log of that id has begun, and looks at what it began with. A submission that was
not accepted has closed its log; then the key stands for the next id of its sequence.
"""

import uuid
from typing import ClassVar, Final

import msgspec

from pyoco_server.app.ports import LogConflictError
from pyoco_server.app.run_desk import OpenRun, RunDesk
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.submitting import NOT_ACCEPTED, Submission, Submitter
from pyoco_server.core import Actor
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError

_NAMESPACE: Final = uuid.UUID("6f1d3a52-6a0e-4b0e-9c1e-0d5f6f7c2b11")
_TRIES: Final = 16


class IdempotencyKeyError(PyocoServerError):
    """The key was used for another request."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0105"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0105"


async def submit_once(
    submitter: Submitter, desk: RunDesk, submission: Submission, actor: Actor, *, key: str
) -> JsonObject:
    """Submit a run unless the key has one already; either way the run's snapshot."""
    for generation in range(_TRIES):
        run_id = str(uuid.uuid5(_NAMESPACE, f"{submission.tenant_id or ''}\n{generation}\n{key}"))
        try:
            return await submitter.submit(submission, actor, run_id=run_id)
        except LogConflictError:
            found = await desk.open(run_id)
        if found.execution.state.cancel_reason == NOT_ACCEPTED:
            continue
        if not _is_same(found, submission):
            raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was used for another request; use a new one")
        return found.snapshot()
    raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was tried {_TRIES} times in vain; use a new one")


def _is_same(found: OpenRun, submission: Submission) -> bool:
    given = found.projection.input
    wanted = submission.input(found.execution.clock.now())
    return msgspec.structs.replace(wanted, submitted_at=given.submitted_at) == RunInput(**msgspec.structs.asdict(given))
