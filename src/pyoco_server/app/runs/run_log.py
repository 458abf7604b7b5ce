"""Opens logs of runs, appends what processes without the flow's code decide, and brings snapshots up to date.

The graph in the log is enough to handle a command with all its consequences. Work that becomes possible is left to a
worker, which is notified by a job. What clients command is in :mod:`.commands`; how runs begin, in :mod:`.creation`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Container, Iterator, Sequence
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from pyoco_server.app.ports import (
    Clock,
    EventLog,
    NewId,
    NotStoredError,
    SnapshotReader,
    Snapshots,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.runs.creation import Creation, RunCreator
from pyoco_server.app.runs.job import Job, WakeUpQueue, new_job, queue_job
from pyoco_server.app.runs.redrive_plan import is_half_copied
from pyoco_server.app.runtime.execution import Decision, Execution
from pyoco_server.app.runtime.run_input import RunInput
from pyoco_server.app.runtime.wait_deadlines import deadline_error
from pyoco_server.app.snapshots.codec import json_object, readable
from pyoco_server.app.snapshots.foreign import adopt_claim, cancelled_outside, cancelling, foreign_snapshot
from pyoco_server.app.snapshots.projection import HELD, RunProjection
from pyoco_server.app.snapshots.status import NOT_ACCEPTED, cancel_mode, has_owner, is_parked, was_retracted
from pyoco_server.app.snapshots.writer import Ownership, SnapshotWriter
from pyoco_server.core import (
    Actor,
    ActorKind,
    CancelMode,
    Command,
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    Graph,
    fold,
    graph_from_log,
    initial_state,
)
from pyoco_server.core.commands import CancelExecution, FailNode, ResumeNode
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import PyocoServerError
from pyoco_server.values.codec import carried

_log = logging.getLogger(__name__)

_OUTSIDE: Final = Actor(ActorKind.EXTERNAL, "snapshot")
_RESTORER: Final = Actor(ActorKind.SYSTEM, "restore")

COPY_SEC: Final = 60.0
"""After so long, the process that copied a part of a run has died."""

FRESH_SEC: Final = 3.0
"""A heartbeat that is no older is a sign of life."""


class RunNotFoundError(PyocoServerError, KeyError):
    """There is no such run."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0005"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0005"

    @override
    def __str__(self) -> str:
        return f"run not found: '{self.args[0]}'" if self.args else "run not found"


class OpenRun(msgspec.Struct, frozen=True):
    """A run as read from its log; commits of this process are added to it."""

    events: list[Event]
    execution: Execution
    projection: RunProjection

    def snapshot(self) -> JsonObject:
        """Return the run's snapshot as of now."""
        return self.projection.snapshot(position=self.execution.position)

    def snapshot_after(self, count: int) -> JsonObject:
        """Return the run's snapshot as of its first ``count`` events."""
        known = self.events[:count]
        past = RunProjection(self.execution.execution_id)
        past.listen(known, fold(known))
        return past.snapshot(position=self.execution.position)

    def snapshot_at(self, event_id: str) -> JsonObject:
        """Return the run's snapshot as of an event, whatever has followed since."""
        return self.snapshot_after([event.event_id for event in self.events].index(event_id) + 1)


class RunLog:
    """Reads and changes runs through their logs; any number of processes may do so at the same time."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        queue: WorkQueue,
        clock: Clock,
        new_id: NewId,
        max_snapshot_bytes: int,
        fresh_sec: float = FRESH_SEC,
    ) -> None:
        """``fresh_sec``: a worker that owns a run writes a heartbeat more often than that."""
        self._log = log
        self._snapshots: SnapshotReader = snapshots
        self._writer = SnapshotWriter(snapshots, max_bytes=max_snapshot_bytes)
        self._queue = queue
        self._wake_ups = WakeUpQueue(queue, clock)
        self._clock = clock
        self._new_id = new_id
        self._fresh_sec = fresh_sec
        self._creator = RunCreator(log=log, writer=self._writer, clock=clock, new_id=new_id)

    async def open(self, run_id: str) -> OpenRun:
        """Read a run; RunNotFoundError if there is none."""
        events, position = await self._log.read(run_id)
        if not events:
            raise RunNotFoundError(run_id)
        run = self.new(run_id, graph_from_log(events))
        run.execution.begin_at(events, position)
        return run

    def new(self, run_id: str, graph: Graph) -> OpenRun:
        """Return a run on a graph, with nothing read from its log yet."""
        execution = Execution(run_id, graph, log=self._log, clock=self._clock, new_id=self._new_id)
        run = OpenRun([], execution, RunProjection(run_id))
        execution.subscribe(run.projection.listen)
        execution.subscribe(lambda more, _: run.events.extend(more))
        return run

    async def create(self, run: OpenRun, create: Command, *, is_shared: bool) -> list[Event]:
        """Handle the command that creates the run; CommandRejected if it exists.

        After any other error, the run does not exist or is retracted. The exception: other requests may create the same
        run (``is_shared``) and the log did not answer. Then the same request again finds the outcome.
        """
        try:
            return await run.execution.do(create)
        except (CommandRejected, NotStoredError, TooLargeError):
            raise
        except (Exception, asyncio.CancelledError):
            if not is_shared:
                created = run.execution.step(initial_state(run.execution.execution_id), create).events[0]
                await asyncio.shield(self.retract_creation(created, run.execution.graph))
            raise

    async def retract_creation(self, created: Event, graph: Graph) -> bool:
        """Retract a run that no other request may create; False if it has run to its end meanwhile."""
        return await self._creator.retract(Creation(created, is_shared=False, graph=graph)) is None

    async def stored_snapshot(self, run_id: str) -> JsonObject | None:
        """Return the run's snapshot, of any writer; None if there is none, SnapshotUnreadableError if it is damaged."""
        stored = await self._snapshots.read(run_id)
        return None if stored is None else readable(stored)

    async def adopt(self, run_id: str, given: RunInput, actor: Actor) -> None:
        """Begin the log of a run that another program made, unless it has begun."""
        await self._creator.adopt(run_id, given, actor)

    async def cancel_decision(self, run: OpenRun, command: CancelExecution) -> Decision:
        """Return what a cancel of the run leads to.

        A parked or held run has no worker to wait for, even if a worker died while it executed a node. A worker that
        executes the run without a log is waited for.
        """
        is_elsewhere = await self.adopt_stored_claims(run, is_cancel_next=True)
        judged = run.execution.state
        waits = cancel_mode(judged) is CancelMode.WAIT_FOR_WORKERS
        is_held = waits and not judged.is_terminal and await self.look_whether_held(run)

        def decision(state: ExecutionState) -> Commit:
            mode = CancelMode.IMMEDIATE if is_held and state is judged else cancel_mode(state)
            return cancelling(run.execution, state, command, mode=mode, is_executed_elsewhere=is_elsewhere)

        return decision

    async def expire(self, run_id: str, node_id: str, actor: Actor) -> OpenRun:
        """End a wait past its deadline: with its default, or it fails. CommandRejected if it waits no longer."""
        run = await self.open(run_id)
        said = run.projection.deadline_of(node_id)
        if said is not None and "default" in said:
            brought = carried("input", said["default"])
            answered = ResumeNode(execution_id=run_id, actor=actor, node_id=node_id, extra=brought)
            return await self._decide_and_wake(run, lambda state: run.execution.step(state, answered))
        error = deadline_error(node_id)
        failing = FailNode(execution_id=run_id, actor=actor, node_id=node_id, error=error, retryable=False)
        resume = ResumeNode(execution_id=run_id, actor=actor, node_id=node_id)

        def expiring(state: ExecutionState) -> Commit:
            run.execution.step(state, resume)  # rejected unless it can still be resumed: a resume in time wins
            return run.execution.step(state, failing)

        return await self._decide_and_wake(run, expiring)

    async def end_cancel(self, run_id: str) -> bool:
        """End a cancel although nodes are still at work; False if no cancel was requested, or it has ended."""
        run = await self.open(run_id)
        if not run.execution.state.is_cancel_requested or run.execution.state.is_terminal:
            return False
        await run.execution.decide(run.execution.ended_now)
        await self.update_snapshot(run)
        return True

    async def retract(self, run_id: str, actor: Actor) -> None:
        """Close the log of a run that was never accepted, so that it never runs."""
        run = await self.open(run_id)
        asked = CancelExecution(execution_id=run_id, actor=actor, reason=NOT_ACCEPTED)
        await run.execution.do(asked, cancel_mode=CancelMode.IMMEDIATE)

    async def restore(self, run_id: str, *, queued: Container[str] | None = None) -> OpenRun | None:
        """Recreate what a run lacks, its snapshot and its job, from its log; None if it was retracted.

        ``queued``: the runs that have a job. If that is unknown, a run that has started gets none: a worker may own it.
        RunNotFoundError if it has no log; UnavailableError: unknown, call it again. It is safe at any time, also while
        the run is being submitted (see :mod:`.creation`): a second job is recognised by its id.
        """
        run = await self.open(run_id)
        if was_retracted(run.execution.state):
            await self._writer.remove(run_id)
            return None
        if is_half_copied(run.events):
            await self._retract_half_copy(run)
            return None
        stored, position = await self._snapshots.read(run_id), run.execution.position
        if len(run.events) > 1:
            is_untouched = run.events[-1].occurred_at == run.events[0].occurred_at  # by any worker: a redrive began it
            if stored is None and is_untouched and not run.execution.state.is_terminal:
                await self.wake(run)
            if stored is None or stored.position < position:
                await self.write_snapshot(run)
            if queued is not None and run_id not in queued and self._lacks_worker(run, stored):
                await self.rescue(run_id)
            return run
        if not run.projection.is_driven_outside and run_id not in (queued or ()):
            job = new_job(run_id, run.projection.input, created=run.events[0], position=position)
            await queue_job(self._queue, job)
        if stored is not None:
            await self._writer.sync()  # the process that wrote it may not have waited for that
        elif await self._writer.write_first(run.snapshot()) is None and await self._snapshots.read(run_id) is None:
            await self.retract(run_id, _RESTORER)  # its submitter left its mark, and could not close the log
            return None
        return run

    async def _retract_half_copy(self, run: OpenRun) -> None:
        """Close the log of a redrive whose process died; UnavailableError while it may still be at work."""
        if (self._clock.now() - run.events[0].occurred_at).total_seconds() < COPY_SEC:
            raise UnavailableError(f"run '{run.execution.execution_id}' is being copied")
        await self.retract(run.execution.execution_id, _RESTORER)

    async def rescue(self, run_id: str) -> None:
        """Queue a job for a run that no process seems to own; if it needs no worker, update its snapshot instead."""
        run = await self.open(run_id)
        if await self.adopt_stored_claims(run):
            return
        if run.execution.state.is_terminal or run.projection.is_driven_outside:
            await self.update_snapshot(run)
        else:
            await self.wake(run, rescue=True)

    def _lacks_worker(self, run: OpenRun, stored: StoredSnapshot | None) -> bool:
        """Return whether the run wants a worker, and neither its owner nor what it is held for explains the wait."""
        if run.execution.state.is_terminal or is_parked(run.execution.state) or _is_held(run, stored):
            return False
        said = (json_object(stored.body) if stored is not None else None) or {}
        return not has_owner(said, now=self._clock.now().timestamp(), fresh_sec=self._fresh_sec)

    async def look_whether_held(self, run: OpenRun) -> bool:
        """Return whether a worker that lacks code left the run where its log ends now, and no worker owns it since."""
        return _is_held(run, await self._snapshots.read(run.execution.execution_id))

    async def wake_held(self, run_id: str, since: float) -> None:
        """Queue a job for a run that is held since then, if it is still held."""
        run = await self.open(run_id)
        if not run.execution.state.is_terminal and await self.look_whether_held(run):
            await self.wake(run, held_since=since)

    async def wake(self, run: OpenRun, *, rescue: bool = False, held_since: float | None = None) -> None:
        """Queue a job for a run that was parked or abandoned, unless a client drives it.

        UnavailableError if it is unknown whether the queue has it. Then a wake-up is tried again in the background. A
        rescue is not: the reconciler finds the run again.
        """
        if run.projection.is_driven_outside:
            return
        given = run.projection.input
        job = Job(
            run_id=run.execution.execution_id,
            flow_name=given.flow_name,
            tag=given.tag,
            tags=given.tags,
            params=given.params,
            submitted_at=given.submitted_at,
            log_position=run.execution.position,
            wake=True,
            rescue=rescue,
            held_since=held_since,
            workflow_yaml=given.workflow_yaml,
            workflow_yaml_sha256=given.workflow_yaml_sha256,
            tenant_id=given.tenant_id,
            api_key_id=given.api_key_id,
        )
        is_tried_once = rescue or held_since is not None  # the reconciler finds the run again
        await (self._wake_ups.send_once(job) if is_tried_once else self._wake_ups.send(job))

    async def wake_or_leave_to_reconciler(self, run: OpenRun) -> None:
        """Queue a wake-up for a run; one that cannot be queued is left to the reconciler."""
        with _left_to_reconciler(run.execution.execution_id, "wake_failed", "the wake-up job was not queued"):
            await self.wake(run)

    async def _decide_and_wake(self, run: OpenRun, decision: Decision) -> OpenRun:
        await run.execution.decide(decision)
        if not run.execution.state.is_terminal:
            await self.wake_or_leave_to_reconciler(run)
        await self.update_snapshot(run)
        return run

    async def update_snapshot(self, run: OpenRun) -> None:
        """Bring the snapshot up to date; if that fails, the reconciler does it later."""
        missing = "the snapshot was not written"
        with _left_to_reconciler(run.execution.execution_id, "snapshot_not_written", missing):
            await self.write_snapshot(run)

    async def write_snapshot(self, run: OpenRun) -> bool:
        """Bring the snapshot up to date and keep what it says about the run's owner; UnavailableError: unknown.

        False: the worker that has just ended the run must see what another program wrote, so the write is left to it.

        Call this rather than :meth:`update_snapshot` for changes of a run that has ended: no later write repairs its
        snapshot. What another program wrote is appended to the log first, and is not overwritten where it must stay
        (:mod:`pyoco_server.app.snapshots.foreign`).
        """
        source = _OpenRunSource(run, self._clock, fresh_sec=self._fresh_sec)
        await self._writer.refresh(source)
        return not source.is_left_to_worker

    async def reconcile(self, run_id: str, written: Sequence[StoredSnapshot] = ()) -> bool:
        """Bring log and snapshot together after other programs wrote the snapshot.

        ``written`` is what they wrote, in its order; it may have been overwritten since. A run without a log is another
        program's, unless one of them accepted a cancel of it. False: call it again later.
        """
        try:
            run = await self.open(run_id)
        except RunNotFoundError:
            newest = await self._snapshots.read(run_id)
            given = cancelled_outside([*written, newest]) if newest is not None else None
            if given is None:
                return True
            await self.adopt(run_id, given, _OUTSIDE)
            run = await self.open(run_id)
        for stored in written:
            await self._adopt_claims(run, stored)
        return await self.write_snapshot(run)

    async def adopt_stored_claims(self, run: OpenRun, *, is_cancel_next: bool = False) -> bool:
        """Append what another program's snapshot claims; return whether a worker without a log executes the run now.

        If the log has a task at work, a worker of ours owns the run, and the snapshot is not read. ``is_cancel_next``:
        the caller cancels the run, so only an end that was recorded before matters.
        """
        if run.execution.state.is_terminal or cancel_mode(run.execution.state) is CancelMode.WAIT_FOR_WORKERS:
            return False
        stored = await self._snapshots.read(run.execution.execution_id)
        return await self._adopt_claims(run, stored, only_ends=is_cancel_next)

    async def _adopt_claims(self, run: OpenRun, stored: StoredSnapshot | None, *, only_ends: bool = False) -> bool:
        """Append what a foreign snapshot claims; return whether the run has not ended and its writer executes it."""
        now = self._clock.now().timestamp()
        return await adopt_claim(run.execution, stored, now=now, fresh_sec=self._fresh_sec, only_ends=only_ends)


def _is_held(run: OpenRun, stored: StoredSnapshot | None) -> bool:
    said = (json_object(stored.body) if stored is not None else None) or {}
    at_log = stored is not None and stored.position == run.execution.position
    return at_log and isinstance(said.get(HELD), dict) and said.get("driven_by") is None


class _OpenRunSource:
    """A run that this process does not own: its snapshot keeps what it says about the owner."""

    def __init__(self, run: OpenRun, clock: Clock, *, fresh_sec: float) -> None:
        self.projection = run.projection
        self.is_left_to_worker = False
        """Whether the worker that has just ended the run must see the foreign snapshot."""
        self._run = run
        self._clock = clock
        self._fresh_sec = fresh_sec

    @property
    def position(self) -> int:
        """Where the log ends."""
        return self._run.execution.position

    def ownership(self, stored: StoredSnapshot | None) -> Ownership:
        """Return what the stored snapshot says."""
        return Ownership.of(stored, self.position)

    async def make_replaceable(self, stored: StoredSnapshot) -> bool:
        """Append what the snapshot claims; it stays while its writer executes the run."""
        now = self._clock.now().timestamp()
        await adopt_claim(self._run.execution, stored, now=now, fresh_sec=self._fresh_sec)
        foreign, state = foreign_snapshot(stored), self._run.execution.state
        if foreign is None:
            return True
        if foreign.stays(state):
            return False
        self.is_left_to_worker = foreign.is_left_to_worker(state, self._run.events[-1], now)
        return not self.is_left_to_worker


@contextlib.contextmanager
def _left_to_reconciler(run_id: str, action: str, missing: str) -> Iterator[None]:
    """Log that something could not be derived from a commit; the reconciler derives it later."""
    try:
        yield
    except (UnavailableError, TooLargeError):
        _log.warning("committed, but %s; the reconciler will", missing, extra={"action": action, "run_id": run_id})
