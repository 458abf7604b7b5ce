"""Bugs planted in the real code, one method each, to see whether the simulator finds them.

Each is a context manager that replaces one method of a real class, and puts it back. None of them is far-fetched: each
is a line that a programmer could forget. Those about commands from outside are in ``outside_mutations.py``.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.adapters.sqlite_index import SqliteRunIndex
from pyoco_server.app.ports import Delivery, LogConflictError, SnapshotChange, UnavailableError
from pyoco_server.app.recovery.held_runs import HeldRuns
from pyoco_server.app.recovery.rebuild import Rebuild
from pyoco_server.app.recovery.snapshot_audit import SnapshotAudit
from pyoco_server.app.runs import commands as run_commands
from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.runs.run_log import OpenRun, RunLog
from pyoco_server.app.runs.submit import IdempotentSubmitter, Submitter
from pyoco_server.app.runtime.attempt import Outcome, Succeeded
from pyoco_server.app.runtime.driver import RunDriver
from pyoco_server.app.runtime.node_commands import NodeCommands
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.recompute import Recomputer
from pyoco_server.app.runtime.run import Run
from pyoco_server.app.runtime.start_fence import FencedExecutor
from pyoco_server.core import Actor, CommandRejected, Event
from pyoco_server.core.commands import FailNode
from pyoco_server.flows.model import TaskSpec
from pyoco_server.worker import job_handler, worker
from pyoco_server.worker.active_run import ActiveRun
from pyoco_server.worker.job_handler import JobHandler
from pyoco_server.worker.settlement import Ack, Settlement
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
    with replaced(NodeCommands, "lacks", lambda *_: None):
        yield


@_mutation
def compute_again_without_an_attempt() -> Iterator[None]:
    """A lost result is computed again by a call that the log does not have."""

    async def attempt(
        self: Recomputer, _needing: str, _chain: tuple[str, ...], node_id: str, task: TaskSpec
    ) -> Outcome:
        """Call the task and keep what it returns."""
        call = self._caller.begin(node_id, task, self._executor)
        try:
            outcome = await call.run()
        finally:
            self._caller.finished(node_id)
        if isinstance(outcome, Succeeded):
            self._keeper.hand_over(self._keeper.owner(node_id), outcome.value)
        return outcome

    with replaced(Recomputer, "_attempt", attempt):
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
    """The log accepts a commit at any position."""
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
    """A commit that the log refuses is reported as appended."""
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
    original = IdempotentSubmitter.submit

    async def submit(once: IdempotentSubmitter, *args: Any, key: str | None, **options: Any) -> Any:
        del key
        return await original(once, *args, key=None, **options)

    with replaced(IdempotentSubmitter, "submit", submit):
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
def retract_what_others_submitted() -> Iterator[None]:
    """A submission without an answer cancels the run that another client submitted under the same key."""
    original = Submitter.submit

    async def submit(submitter: Submitter, submission: Any, actor: Actor, **options: Any) -> Any:
        return await original(submitter, submission, actor, **{**options, "is_shared": False})

    with replaced(Submitter, "submit", submit):
        yield


# --- Asking of a run -------------------------------------------------------------------------------------------------


@_mutation
def cancel_answered_before_it_is_durable() -> Iterator[None]:
    """The log did not answer, and the client gets the answer CANCELLING."""
    original = RunCommands.cancel

    async def cancel(commands: RunCommands, run_id: str, sender: Sender, reason: str | None = None) -> Any:
        try:
            return await original(commands, run_id, sender, reason)
        except UnavailableError:
            return {"run_id": run_id, "status": "CANCELLING"}

    with replaced(RunCommands, "cancel", cancel):
        yield


@_mutation
def cancel_answered_from_the_snapshot() -> Iterator[None]:
    """A cancel of a run whose snapshot says RUNNING is answered CANCELLING, and nothing is appended."""
    original = RunCommands.cancel

    async def cancel(commands: RunCommands, run_id: str, sender: Sender, reason: str | None = None) -> Any:
        stored = await commands._run_log.stored_snapshot(run_id)
        if stored is not None and stored.get("status") == "RUNNING":
            return {**stored, "status": "CANCELLING"}
        return await original(commands, run_id, sender, reason)

    with replaced(RunCommands, "cancel", cancel):
        yield


@_mutation
def resumed_node_awaits_no_worker() -> Iterator[None]:
    """A command that resumes a node does not see that the node needs a worker, and queues no wake-up."""
    with replaced(run_commands, "_awaits_worker", lambda _run, _node_id: False):
        yield


@_mutation
def every_request_with_a_key_creates_an_execution() -> Iterator[None]:
    """The id of an execution does not come from the Idempotency-Key of the request that creates it."""
    with replaced(run_commands, "_new_execution_id", lambda _sender: str(uuid.uuid4())):
        yield


@_mutation
def forget_the_wake_up_after_resume() -> Iterator[None]:
    """A wait is resumed, and no wake-up is queued."""

    async def wake(_desk: RunLog, _run: OpenRun, *, rescue: bool = False) -> None:
        del rescue

    with replaced(RunLog, "wake", wake):
        yield


@_mutation
def sweep_without_rereading_the_log() -> Iterator[None]:
    """A wait past its deadline fails, although the log may say that it was resumed meanwhile."""
    original = RunLog.expire

    async def expire(run_log: RunLog, run_id: str, node_id: str, actor: Actor) -> Any:
        run = await run_log.open(run_id)
        if "default" in (run.projection.deadline_of(node_id) or {}):
            return await original(run_log, run_id, node_id, actor)
        error = {"code": "WAIT_DEADLINE", "message": "too late"}
        failing = FailNode(execution_id=run_id, actor=actor, node_id=node_id, error=error, retryable=False)
        await run.execution.do(failing)
        await run_log.update_snapshot(run)
        return run.snapshot()

    with replaced(RunLog, "expire", expire):
        yield


@_mutation
def snapshots_are_not_audited() -> Iterator[None]:
    """A snapshot that was not written stays behind its log if no process was notified of the append."""

    async def audit(_audit: SnapshotAudit) -> None:
        return

    async def restore_open(_rebuild: Rebuild, _queued: Collection[str]) -> list[str]:
        return []

    with replaced(SnapshotAudit, "audit", audit), replaced(Rebuild, "_restore_open", restore_open):
        yield


# --- The worker ------------------------------------------------------------------------------------------------------


@_mutation
def ack_before_the_terminal_commit() -> Iterator[None]:
    """The job is acknowledged before the run has ended."""
    original = ActiveRun.drive

    async def drive(driven: ActiveRun, driven_by: str) -> Any:
        await driven.delivery.ack()
        return await original(driven, driven_by)

    with replaced(ActiveRun, "drive", drive):
        yield


@_mutation
def every_wake_up_is_needless() -> Iterator[None]:
    """Every wake-up is acknowledged without effect."""

    async def needless(_handler: JobHandler, _job: Any, _known: Any, _delivery: Delivery) -> Settlement | None:
        return Ack()

    with replaced(JobHandler, "_needless_wake_up", needless):
        yield


@_mutation
def ack_a_cancel_that_has_not_converged() -> Iterator[None]:
    """A run that is to be cancelled is released at once, and its job is acknowledged."""
    original = JobHandler._after

    def interrupt(driver: RunDriver, _node_id: str) -> None:
        driver._at_rest.set()

    def after(handler: JobHandler, rest: Any, job: Any, driven: ActiveRun) -> Settlement:
        return Ack() if driven.run.state.is_cancel_requested else original(handler, rest, job, driven)

    with replaced(RunDriver, "_interrupt", interrupt), replaced(JobHandler, "_after", after):
        yield


@_mutation
def take_over_without_fencing() -> Iterator[None]:
    """A worker that was paused calls the function, however late it is."""
    with replaced(FencedExecutor, "_is_late", lambda _fence: False):
        yield


@_mutation
def a_wait_begins_twice() -> Iterator[None]:
    """A node is put to wait although the commit that started it did so, and it was resumed since."""

    async def wait(nodes: NodeExecutor, node_id: str, spec: Any, _children: Any, _attempt: int) -> None:
        with contextlib.suppress(CommandRejected):
            await nodes._execution.do(nodes._commands.waiting(node_id, spec), observed=True)

    with replaced(NodeExecutor, "_wait", wait):
        yield


@_mutation
def ignore_the_attempt() -> Iterator[None]:
    """The outcome of an old attempt is reported as that of the newest."""
    original = NodeExecutor._report

    async def late(work: NodeExecutor, node_id: str, outcome: Any) -> None:
        await work._execution.load()
        await original(work, node_id, work._execution.state.nodes[node_id].attempt, outcome)

    async def report(work: NodeExecutor, node_id: str, _attempt: int, outcome: Any) -> None:
        await asyncio.shield(asyncio.ensure_future(late(work, node_id, outcome)))  # also when the driver abandons it

    with replaced(NodeExecutor, "_report", report):
        yield


@_mutation
def a_timeout_taken_for_a_failure() -> Iterator[None]:
    """The log did not answer when a success was reported, so the node is reported as failed."""
    original = NodeExecutor._report

    async def report(work: NodeExecutor, node_id: str, attempt: int, outcome: Any) -> None:
        try:
            await original(work, node_id, attempt, outcome)
        except UnavailableError as error:
            await work._recorder.fail(node_id, {"code": "TIMEOUT", "message": str(error)}, attempt=attempt)

    with replaced(NodeExecutor, "_report", report):
        yield


@_mutation
def the_second_delivery_counts_as_the_last() -> Iterator[None]:
    """A run whose job is delivered a second time is ended as failed."""
    original = JobHandler._handle

    async def handle(handler: JobHandler, job: Any, delivery: Delivery) -> Any:
        known = await handler._lookup.of(job, delivery)
        if known is None or known.state.is_terminal or delivery.times_delivered < 2 or job.wake:
            return await original(handler, job, delivery)
        return job_handler.Handled(await handler._give_up(job, known, delivery), delivery)

    with replaced(JobHandler, "_handle", handle):
        yield


@_mutation
def a_stop_kills_the_worker() -> Iterator[None]:
    """Slots that are stopped are taken for slots that died."""

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
