"""Bugs planted in the real code, one method each, to see whether the simulator finds them.

Each is a context manager that replaces one method of a real class, and puts it back. None of them is far-fetched: each
is a line somebody could have forgotten. Those about commands from outside are in ``outside_mutations.py``.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.readmodel import SqliteRunIndex
from pyoco_server.app.auditing import SnapshotAudit
from pyoco_server.app.driver import Driver
from pyoco_server.app.fencing import Fence
from pyoco_server.app.held_runs import HeldRuns
from pyoco_server.app.idempotency import Once
from pyoco_server.app.ports import Delivery, LogConflictError, SnapshotChange, UnavailableError
from pyoco_server.app.run import Run
from pyoco_server.app.run_desk import OpenRun, RunDesk
from pyoco_server.app.starting import Starter
from pyoco_server.app.submitting import Submitter
from pyoco_server.app.work import Work
from pyoco_server.core import Actor, CommandRejected, Event
from pyoco_server.core.commands import FailNode
from pyoco_server.worker import job_handler, worker
from pyoco_server.worker.dispositions import Ack, Disposition
from pyoco_server.worker.driven_run import DrivenRun
from pyoco_server.worker.job_handler import JobHandler
from tests.sim.network import at_once
from tests.sim.outside_mutations import OUTSIDE
from tests.sim.planting import Mutation, kept_in, replaced

MUTATIONS: Final[dict[str, Mutation]] = {}
_mutation = kept_in(MUTATIONS)


# --- Code that changes -----------------------------------------------------------------------------------------------


@_mutation
def drive_on_the_flow_of_today() -> Iterator[None]:
    """A run that has started is driven on the graph that its flow has now."""
    with replaced(Run, "_drive_on_log", lambda *_: None):
        yield


@_mutation
def start_what_has_no_code() -> Iterator[None]:
    """A task whose function is missing is started all the same."""
    with replaced(Starter, "lacks", lambda *_: None):
        yield


@_mutation
def forget_held_runs() -> Iterator[None]:
    """A run that is held is not woken when its code is announced."""

    async def wake(_: HeldRuns) -> None:
        """Do nothing."""

    with replaced(HeldRuns, "wake", wake):
        yield


# --- The store -------------------------------------------------------------------------------------------------------


@_mutation
def drop_the_compare_and_set() -> Iterator[None]:
    """The log takes a commit wherever it ends."""
    original = MemoryEventLog.append

    async def append(
        log: MemoryEventLog, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False
    ) -> int:
        _, end = at_once(log.read(execution_id, after=after))
        return await original(log, execution_id, commit, after=end, quiet=quiet)

    with replaced(MemoryEventLog, "append", append):
        yield


@_mutation
def a_conflict_reported_as_success() -> Iterator[None]:
    """A commit the log refuses is said to be there."""
    original = MemoryEventLog.append

    async def append(
        log: MemoryEventLog, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False
    ) -> int:
        try:
            return await original(log, execution_id, commit, after=after, quiet=quiet)
        except LogConflictError:
            return at_once(log.read(execution_id))[1]

    with replaced(MemoryEventLog, "append", append):
        yield


@_mutation
def snapshot_without_position_check() -> Iterator[None]:
    """An old snapshot overwrites a newer one."""
    original = MemorySnapshots.write

    async def write(
        snapshots: MemorySnapshots,
        run_id: str,
        body: bytes,
        *,
        position: int,
        revision: int | None = None,
        is_urgent: bool = True,
    ) -> int | None:
        late = max(position, 1 << 40)
        return await original(snapshots, run_id, body, position=late, revision=revision, is_urgent=is_urgent)

    with replaced(MemorySnapshots, "write", write):
        yield


@_mutation
def index_takes_part_of_a_batch() -> Iterator[None]:
    """The index remembers that it has read all of a batch, and has not."""
    original = SqliteRunIndex.apply

    async def apply(index: SqliteRunIndex, changes: Sequence[SnapshotChange], position: int) -> None:
        await original(index, changes[: max(1, len(changes) - 1)], position)

    with replaced(SqliteRunIndex, "apply", apply):
        yield


# --- Submitting ------------------------------------------------------------------------------------------------------


@_mutation
def idempotency_key_ignored() -> Iterator[None]:
    """The same request again is another run."""
    original = Once.submit

    async def submit(once: Once, *args: Any, key: str | None, **options: Any) -> Any:
        del key
        return await original(once, *args, key=None, **options)

    with replaced(Once, "submit", submit):
        yield


@_mutation
def accepted_before_it_is_durable() -> Iterator[None]:
    """The log did not answer, and the run is accepted all the same."""
    original = Submitter.submit

    async def submit(submitter: Submitter, submission: Any, actor: Actor, **options: Any) -> Any:
        try:
            return await original(submitter, submission, actor, **options)
        except UnavailableError:
            return {"run_id": options.get("run_id"), "status": "PENDING"}

    with replaced(Submitter, "submit", submit):
        yield


@_mutation
def take_back_what_others_submitted() -> Iterator[None]:
    """Whoever was not answered cancels the run another has submitted under the same key."""
    original = Submitter.submit

    async def submit(submitter: Submitter, submission: Any, actor: Actor, **options: Any) -> Any:
        return await original(submitter, submission, actor, **{**options, "is_shared": False})

    with replaced(Submitter, "submit", submit):
        yield


# --- Asking of a run -------------------------------------------------------------------------------------------------


@_mutation
def cancel_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer, and the client is told CANCELLING."""
    original = RunDesk.cancel

    async def cancel(desk: RunDesk, run_id: str, actor: Actor, reason: str | None = None) -> Any:
        try:
            return await original(desk, run_id, actor, reason)
        except UnavailableError:
            return {"run_id": run_id, "status": "CANCELLING"}

    with replaced(RunDesk, "cancel", cancel):
        yield


@_mutation
def forget_the_wake_up_after_resume() -> Iterator[None]:
    """A wait is resumed, and no worker is told."""

    async def wake(_desk: RunDesk, _run: OpenRun, *, rescue: bool = False) -> None:
        del rescue

    with replaced(RunDesk, "wake", wake):
        yield


@_mutation
def sweep_without_rereading_the_log() -> Iterator[None]:
    """A wait past its deadline fails without a look whether somebody has resumed it meanwhile."""
    original = RunDesk.expire

    async def expire(desk: RunDesk, run_id: str, node_id: str, actor: Actor) -> Any:
        run = await desk.open(run_id)
        if "default" in (run.projection.deadline_of(node_id) or {}):
            return await original(desk, run_id, node_id, actor)
        error = {"code": "WAIT_DEADLINE", "message": "too late"}
        failing = FailNode(execution_id=run_id, actor=actor, node_id=node_id, error=error, retryable=False)
        await run.execution.do(failing)
        await desk.write(run)
        return run.snapshot()

    with replaced(RunDesk, "expire", expire):
        yield


@_mutation
def nobody_audits_snapshots() -> Iterator[None]:
    """A snapshot nobody wrote and nobody heard of stays behind its log."""

    async def audit(_audit: SnapshotAudit) -> None:
        return

    with replaced(SnapshotAudit, "audit", audit):
        yield


# --- The worker ------------------------------------------------------------------------------------------------------


@_mutation
def ack_before_the_terminal_commit() -> Iterator[None]:
    """The job is done with before the run is."""
    original = DrivenRun.drive

    async def drive(driven: DrivenRun, driven_by: str) -> Any:
        await driven.delivery.ack()
        return await original(driven, driven_by)

    with replaced(DrivenRun, "drive", drive):
        yield


@_mutation
def every_wake_up_is_needless() -> Iterator[None]:
    """A wake-up is done with as soon as it comes."""

    async def needless(_handler: JobHandler, _job: Any, _known: Any, _delivery: Delivery) -> Disposition | None:
        return Ack()

    with replaced(JobHandler, "_needless_wake_up", needless):
        yield


@_mutation
def ack_a_cancel_that_has_not_converged() -> Iterator[None]:
    """A run that is to be cancelled is let go of at once, and its job with it."""
    original = JobHandler._after

    def interrupt(driver: Driver, _node_id: str) -> None:
        driver._at_rest.set()

    def after(handler: JobHandler, rest: Any, job: Any, driven: DrivenRun) -> Disposition:
        return Ack() if driven.run.state.is_cancel_requested else original(handler, rest, job, driven)

    with replaced(Driver, "_interrupt", interrupt), replaced(JobHandler, "_after", after):
        yield


@_mutation
def take_over_without_fencing() -> Iterator[None]:
    """Whoever was away begins what they meant to begin, however late it is."""
    with replaced(Fence, "_is_late", lambda _fence: False):
        yield


@_mutation
def a_wait_begins_twice() -> Iterator[None]:
    """A node is put to wait although the commit that began it has done so, and somebody has resumed it since."""

    async def wait(work: Work, node_id: str, spec: Any) -> None:
        with contextlib.suppress(CommandRejected):
            await work._execution.do(work._starter.waiting(node_id, spec), observed=True)

    with replaced(Work, "_wait", wait):
        yield


@_mutation
def ignore_the_attempt() -> Iterator[None]:
    """What an old attempt led to is told as if it were the newest."""
    original = Work._report

    async def tell(work: Work, node_id: str, outcome: Any) -> None:
        await work._execution.load()
        await original(work, node_id, work._execution.state.nodes[node_id].attempt, outcome)

    async def report(work: Work, node_id: str, _attempt: int, outcome: Any) -> None:
        await asyncio.shield(asyncio.ensure_future(tell(work, node_id, outcome)))  # also by whoever is told to let go

    with replaced(Work, "_report", report):
        yield


@_mutation
def a_timeout_taken_for_a_failure() -> Iterator[None]:
    """The log did not answer when a success was told, so the node is said to have failed."""
    original = Work._report

    async def report(work: Work, node_id: str, attempt: int, outcome: Any) -> None:
        try:
            await original(work, node_id, attempt, outcome)
        except UnavailableError as error:
            await work._tell(FailNode, node_id, error={"code": "TIMEOUT", "message": str(error)}, retryable=False)

    with replaced(Work, "_report", report):
        yield


@_mutation
def the_second_delivery_counts_as_the_last() -> Iterator[None]:
    """A run whose job comes back once is given up on."""
    original = JobHandler._handle

    async def handle(handler: JobHandler, job: Any, delivery: Delivery) -> Any:
        known = await handler._known.of(job, delivery)
        if known is None or known.state.is_terminal or delivery.times_delivered < 2 or job.wake:
            return await original(handler, job, delivery)
        return job_handler.Handled(await handler._give_up(job, known, delivery), delivery)

    with replaced(JobHandler, "_handle", handle):
        yield


@_mutation
def a_stop_kills_the_worker() -> Iterator[None]:
    """Slots that are made to stop are taken for slots that died."""

    async def until_one_dies(tasks: Sequence[asyncio.Task[Any]], stopping: asyncio.Task[Any]) -> None:
        side = asyncio.gather(*tasks)
        try:
            await asyncio.wait({side, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if side.done():
                side.result()
        finally:
            side.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await side

    with replaced(worker, "_until_one_dies", until_one_dies):
        yield


MUTATIONS.update(OUTSIDE)
