"""What may be asked of a run from outside: how it stands, to cancel it, to resume a wait.

Nobody here has the flow's code: the log tells the graph, and that is enough to handle a command with all that follows
from it. Work that becomes possible is left to a worker, who is told by a job.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from pyoco_server.app.execution import Decision, Execution
from pyoco_server.app.foreign_snapshots import cancelling, foreign_snapshot
from pyoco_server.app.jobs import Job
from pyoco_server.app.ports import (
    Clock,
    EventLog,
    ForeignSnapshotError,
    LogConflictError,
    NewId,
    NotStoredError,
    Snapshots,
    StoredSnapshot,
    TooLargeError,
    UnavailableError,
    WorkQueue,
)
from pyoco_server.app.projection import HELD, LET_GO_AT, RunProjection, read_hold
from pyoco_server.app.retracting import NOT_ACCEPTED, Attempt, Retraction, was_taken_back
from pyoco_server.app.run_input import RunInput
from pyoco_server.app.snapshot_reading import json_object, number, readable
from pyoco_server.app.snapshot_size import fitted
from pyoco_server.app.statuses import cancel_mode
from pyoco_server.app.waking import WakeUps
from pyoco_server.core import (
    Actor,
    CancelMode,
    Command,
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    Graph,
    fold,
    graph_from_log,
    handle,
    initial_state,
)
from pyoco_server.core.commands import ArchiveExecution, CancelExecution, CreateExecution, FailNode, ResumeNode
from pyoco_server.core.payloads import ExecutionCancelRequested
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import PyocoServerError
from pyoco_server.values.codec import carried

_log = logging.getLogger(__name__)

IN_HANDS_SEC: Final = 3.0
"""A heartbeat no older than that is a sign of life."""

_MOST_TRIES: Final = 20


class RunNotFoundError(PyocoServerError, KeyError):
    """There is no such run."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0005"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0005"

    @override
    def __str__(self) -> str:
        return f"run not found: '{self.args[0]}'" if self.args else "run not found"


class OpenRun(msgspec.Struct, frozen=True):
    """A run as it is read from its log."""

    events: list[Event]
    execution: Execution
    projection: RunProjection

    def snapshot(self) -> JsonObject:
        """How it stands."""
        return self.projection.snapshot(position=self.execution.position)

    def snapshot_after(self, count: int) -> JsonObject:
        """How it stood after so many events."""
        known = self.events[:count]
        past = RunProjection(self.execution.execution_id)
        past.listen(known, fold(known))
        return past.snapshot(position=self.execution.position)

    def snapshot_at(self, event_id: str) -> JsonObject:
        """How it stood when this had happened, whatever has followed from it since."""
        return self.snapshot_after([event.event_id for event in self.events].index(event_id) + 1)


class RunDesk:
    """Handles what is asked of runs; any number of them may work on one log."""

    def __init__(
        self,
        *,
        log: EventLog,
        snapshots: Snapshots,
        queue: WorkQueue,
        clock: Clock,
        new_id: NewId,
        max_snapshot_bytes: int,
        in_hands_sec: float = IN_HANDS_SEC,
    ) -> None:
        """``in_hands_sec``: a worker that executes a run writes a heartbeat more often than that."""
        self._log = log
        self._snapshots = snapshots
        self._wake_ups = WakeUps(queue, clock)
        self._clock = clock
        self._new_id = new_id
        self._max_snapshot_bytes = max_snapshot_bytes
        self._in_hands_sec = in_hands_sec
        self._retraction = Retraction(log=log, snapshots=snapshots, clock=clock, new_id=new_id)

    async def open(self, run_id: str) -> OpenRun:
        """Read a run; RunNotFoundError if there is none."""
        events, position = await self._log.read(run_id)
        if not events:
            raise RunNotFoundError(run_id)
        run = self.new(run_id, graph_from_log(events))
        run.execution.begin_at(events, position)
        return run

    def new(self, run_id: str, graph: Graph) -> OpenRun:
        """A run on a graph, of which nothing has been read."""
        execution = Execution(run_id, graph, log=self._log, clock=self._clock, new_id=self._new_id)
        run = OpenRun([], execution, RunProjection(run_id))
        execution.subscribe(run.projection.listen)
        execution.subscribe(lambda more, _: run.events.extend(more))
        return run

    async def create(self, run: OpenRun, create: Command, *, is_shared: bool) -> list[Event]:
        """Give the command that creates the run; CommandRejected if it exists.

        Whatever else is raised, the run does not exist, or is retracted. Not so where other requests may create the
        same one (``is_shared``) and the log did not answer: the same request again finds out.
        """
        try:
            return await run.execution.do(create)
        except (CommandRejected, NotStoredError, TooLargeError):
            raise
        except (Exception, asyncio.CancelledError):
            if not is_shared:
                await asyncio.shield(self._retraction.retract(self._attempt(run, create)))
            raise

    def _attempt(self, run: OpenRun, create: Command) -> Attempt:
        state, now = initial_state(run.execution.execution_id), self._clock.now()
        created = run.execution.step(state, create, now=now).events[0]
        return Attempt(created, is_shared=False, graph=run.execution.graph)

    async def shown(self, run_id: str) -> JsonObject | None:
        """The run's snapshot, whoever wrote it; None if there is none. SnapshotUnreadableError if it is not one."""
        stored = await self._snapshots.read(run_id)
        return None if stored is None else readable(stored)

    async def adopt(self, run_id: str, given: RunInput, actor: Actor) -> None:
        """Begin the log of a run that somebody else made; if it has begun meanwhile, that is as good."""
        create = CreateExecution(execution_id=run_id, actor=actor, graph_id=given.flow_name, input=given.to_json())
        now, graphs = self._clock.now(), {given.flow_name}
        made = handle(initial_state(run_id), create, now=now, new_id=self._new_id, graph_ids=graphs)
        try:
            await self._log.append(run_id, made, after=0)
        except LogConflictError:
            _log.debug("somebody else created the run", extra={"action": "run_created_elsewhere", "run_id": run_id})

    async def cancel(self, run_id: str, actor: Actor, reason: str | None = None) -> JsonObject:
        """Cancel a run; the answer is its snapshot as of the request, or as it ended if it has.

        A run nobody is at work on has ended when this returns; otherwise its worker is told, and has its grace.
        """
        run = await self.open(run_id)
        asked = CancelExecution(execution_id=run_id, actor=actor, reason=reason)
        events = await run.execution.decide(await self.cancel_decision(run, asked))
        if not events:
            return run.snapshot()
        await self.write(run)
        return self._as_of_request(run, events)

    async def cancel_decision(self, run: OpenRun, command: CancelExecution) -> Decision:
        """Return what a cancel of the run leads to.

        Like a parked run, one that is held has no worker to wait for, even if a node was at work in one that died. A
        worker without a log that executes the run is waited for.
        """
        is_elsewhere = await self.is_executed_elsewhere(run, is_cancel_next=True)
        judged = run.execution.state
        waits = cancel_mode(judged) is CancelMode.WAIT_FOR_WORKERS
        is_held = waits and not judged.is_terminal and await self.is_held(run)

        def decision(state: ExecutionState) -> Commit:
            mode = CancelMode.IMMEDIATE if is_held and state is judged else cancel_mode(state)
            return cancelling(run.execution, state, command, mode=mode, is_executed_elsewhere=is_elsewhere)

        return decision

    async def resume(
        self, run_id: str, node_id: str, value: object, actor: Actor, *, key: str | None = None
    ) -> JsonObject:
        """Resume a waiting node with ``value``; CommandRejected if it does not wait."""
        brought = carried("input", value)
        resume = ResumeNode(execution_id=run_id, actor=actor, node_id=node_id, resume_key=key, extra=brought)
        run = await self.open(run_id)
        return await self._decide_and_wake(run, lambda state: run.execution.step(state, resume))

    async def expire(self, run_id: str, node_id: str, actor: Actor) -> JsonObject:
        """A wait is past its deadline: its default is taken, or it fails. CommandRejected if it waits no longer."""
        run = await self.open(run_id)
        said = run.projection.deadline_of(node_id)
        if said is not None and "default" in said:
            brought = carried("input", said["default"])
            answered = ResumeNode(execution_id=run_id, actor=actor, node_id=node_id, extra=brought)
            return await self._decide_and_wake(run, lambda state: run.execution.step(state, answered))
        error = {"code": "WAIT_DEADLINE", "message": f"nobody resumed '{node_id}' in time"}
        failing = FailNode(execution_id=run_id, actor=actor, node_id=node_id, error=error, retryable=False)
        resume = ResumeNode(execution_id=run_id, actor=actor, node_id=node_id)

        def expiring(state: ExecutionState) -> Commit:
            run.execution.step(state, resume)  # refused unless it could still be resumed: who was in time has won
            return run.execution.step(state, failing)

        return await self._decide_and_wake(run, expiring)

    async def archive(self, run_id: str, actor: Actor) -> JsonObject:
        """Put an ended run away; CommandRejected if it has not ended, UnavailableError if it may not be seen to be."""
        run = await self.open(run_id)
        await run.execution.do(ArchiveExecution(execution_id=run_id, actor=actor))
        await self.show(run)
        return run.snapshot()

    async def end_cancel(self, run_id: str) -> bool:
        """Bring a cancel to its end, without those who are still at work; False if there is none to be ended."""
        run = await self.open(run_id)
        if not run.execution.state.is_cancel_requested or run.execution.state.is_terminal:
            return False
        await run.execution.decide(run.execution.ended_now)
        await self.write(run)
        return True

    async def take_back(self, run_id: str, actor: Actor) -> None:
        """Close the log of a run that was never accepted, so that it never runs."""
        run = await self.open(run_id)
        asked = CancelExecution(execution_id=run_id, actor=actor, reason=NOT_ACCEPTED)
        await run.execution.do(asked, cancel_mode=CancelMode.IMMEDIATE)

    async def rescue(self, run_id: str) -> None:
        """Queue a job for a run nobody seems to take care of; if none is to, its snapshot is to say so."""
        run = await self.open(run_id)
        if await self.is_executed_elsewhere(run):
            return
        if run.execution.state.is_terminal or run.projection.is_driven_outside:
            await self.write(run)
        else:
            await self.wake(run, rescue=True)

    async def is_held(self, run: OpenRun) -> bool:
        """Did a worker that lacks code leave the run where its log now ends, and has none taken it since?"""
        stored = await self._snapshots.read(run.execution.execution_id)
        said = (json_object(stored.body) if stored is not None else None) or {}
        at_log = stored is not None and stored.position == run.execution.position
        return at_log and isinstance(said.get(HELD), dict) and said.get("driven_by") is None

    async def wake_held(self, run_id: str, since: float) -> None:
        """Queue a job for a run that is held since then, if it still is."""
        run = await self.open(run_id)
        if not run.execution.state.is_terminal and await self.is_held(run):
            await self.wake(run, held_since=since)

    async def wake(self, run: OpenRun, *, rescue: bool = False, held_since: float | None = None) -> None:
        """Queue a job for a run that was put aside, or left alone, unless it is driven from outside.

        UnavailableError if nobody knows whether it is in the queue. Then a wake-up is tried again in the background; a
        rescue is not, whoever finds the run left alone does so again.
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
        is_tried_once = rescue or held_since is not None  # a sweep finds the run again
        await (self._wake_ups.send_once(job) if is_tried_once else self._wake_ups.send(job))

    async def _decide_and_wake(self, run: OpenRun, decision: Decision) -> JsonObject:
        await run.execution.decide(decision)
        if not run.execution.state.is_terminal:
            with _made_up_for_later(run.execution.execution_id, "wake_failed"):
                await self.wake(run)
        await self.write(run)
        return run.snapshot()

    async def write(self, run: OpenRun) -> None:
        """Bring the snapshot up to date; if that does not succeed, it is made up for."""
        with _made_up_for_later(run.execution.execution_id, "snapshot_not_written"):
            await self.show(run)

    async def show(self, run: OpenRun) -> None:
        """Bring the snapshot up to date, keeping what it says of who drives the run; UnavailableError: unknown.

        This is for what is done to a run that has ended: nothing follows, and nobody looks at its snapshot again to
        find that it is behind. What another program wrote is put into the log first, and stays where it must
        (:mod:`.foreign_snapshots`).
        """
        run_id = run.execution.execution_id
        stored = await self._snapshots.read(run_id)
        for _ in range(_MOST_TRIES):
            if stored is not None and stored.position > run.execution.position:  # its worker was quicker
                return
            await self._adopt_claims(run, stored)
            foreign = foreign_snapshot(stored)
            if foreign is not None and foreign.stays(run.execution.state):
                return
            try:
                await self._replace(run, stored)
            except ForeignSnapshotError as error:
                stored = error.stored
            else:
                return
        raise UnavailableError(f"other programs changed the snapshot of '{run_id}' {_MOST_TRIES} times")

    async def reconcile(self, run_id: str, written: Sequence[StoredSnapshot] = ()) -> None:
        """Bring log and snapshot together after other programs wrote the snapshot; a run without a log is not ours.

        ``written`` is what they wrote, in its order; it may have been overwritten since.
        """
        try:
            run = await self.open(run_id)
        except RunNotFoundError:
            return
        if was_taken_back(run.execution.state):
            await self._snapshots.delete(run_id)
            return
        for stored in written:
            await self._adopt_claims(run, stored)
        await self.show(run)

    async def is_executed_elsewhere(self, run: OpenRun, *, is_cancel_next: bool = False) -> bool:
        """Put into the log what another program said of the run; does a worker without a log execute it now?

        Where the log says that a task is at work, a worker of ours has the run, and its snapshot is not looked at.
        ``is_cancel_next``: the caller cancels the run, so only an end that was recorded before matters.
        """
        if run.execution.state.is_terminal or cancel_mode(run.execution.state) is CancelMode.WAIT_FOR_WORKERS:
            return False
        stored = await self._snapshots.read(run.execution.execution_id)
        return await self._adopt_claims(run, stored, only_ends=is_cancel_next)

    async def _adopt_claims(self, run: OpenRun, stored: StoredSnapshot | None, *, only_ends: bool = False) -> bool:
        """Append what a foreign snapshot claims; does its writer execute the run, which has not ended?"""
        foreign = foreign_snapshot(stored)
        if foreign is None:
            return False
        is_alive = foreign.shows_life(self._clock.now().timestamp(), self._in_hands_sec)
        decision = foreign.decision(run.execution, is_alive=is_alive)
        is_wanted = foreign.is_terminal or not only_ends
        if decision is not None and is_wanted and not run.execution.state.is_terminal:
            events = await run.execution.decide(decision)
            if events:
                told = [event.type.value for event in events]
                _log.info(
                    "the log takes over what another program wrote as the run's snapshot",
                    extra={"action": "snapshot_adopted", "run_id": run.execution.execution_id, "events": told},
                )
        return is_alive and not run.execution.state.is_terminal

    async def _replace(self, run: OpenRun, stored: StoredSnapshot | None) -> None:
        """Write the snapshot of the log over ``stored``, which was read."""
        position, said = run.execution.position, (json_object(stored.body) if stored is not None else None) or {}
        snapshot = run.projection.snapshot(
            position=position,
            heartbeat_at=number(said.get("heartbeat_at")),
            driven_by=said.get("driven_by"),
            let_go_at=position if said.get(LET_GO_AT) == position else None,
            held=read_hold(said),
        )
        body = fitted(snapshot, self._max_snapshot_bytes)
        revision = stored.revision if stored is not None else 0
        await self._snapshots.write(run.execution.execution_id, body, position=position, revision=revision)

    @staticmethod
    def _as_of_request(run: OpenRun, written: list[Event]) -> JsonObject:
        """The answer to a cancel tells of the request, not of how far it has come since."""
        request = next((event for event in written if isinstance(event.payload, ExecutionCancelRequested)), None)
        if request is None:
            return run.snapshot()
        return run.snapshot_at(request.event_id)


@contextlib.contextmanager
def _made_up_for_later(run_id: str, action: str) -> Iterator[None]:
    """What the log has is done; what is only derived from it is made up for by whoever looks after runs."""
    try:
        yield
    except (UnavailableError, TooLargeError):
        _log.warning("the log has it, but not everybody was told", extra={"action": action, "run_id": run_id})
