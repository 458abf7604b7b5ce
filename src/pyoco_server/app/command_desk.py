"""Commands from outside: the core's twelve, checked, written, answered.

They are given to executions somebody outside drives, and to runs of ours: then whatever a worker must do about it is
left to one, who is told by a job.
"""

import hashlib
import logging
import uuid
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.idempotency import IdempotencyKeyError
from pyoco_server.app.outside_values import check_command
from pyoco_server.app.ports import GraphRegistry, TooLargeError, UnavailableError
from pyoco_server.app.run_desk import OpenRun, RunDesk, RunNotFoundError
from pyoco_server.app.run_input import PLATFORM, RunInput
from pyoco_server.app.run_queries import may_see, visible_run
from pyoco_server.app.snapshot_reading import tenant_of
from pyoco_server.app.statuses import TERMINAL_RUN
from pyoco_server.core import (
    Actor,
    ActorKind,
    Command,
    CommandRejected,
    Commit,
    Event,
    ExecutionState,
    RejectionCode,
    decode_command,
    encode_command,
    graph_from_dict,
)
from pyoco_server.core.commands import ArchiveExecution, CancelExecution, CreateExecution, ResumeNode, StartExecution
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError

_log = logging.getLogger(__name__)

KEY: Final = "idempotencyKey"
"""Under this name an event keeps the key of the request that caused it."""
DIGEST: Final = "requestSha256"
"""Under this one, what the request was: the key of another one is refused."""

_NOBODY: Final = Actor(ActorKind.EXTERNAL)
_FOREIGN: Final = Actor(ActorKind.EXTERNAL, "snapshot")
_SHOWN_AS: Final = "external"
"""The tag under which executions of others are listed; it means nothing else, and runs of ours may have it as well."""
_NAMESPACE: Final = uuid.UUID("1d7a5a8e-5d0b-4f61-8f07-40a5d1e2c3b4")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it came in, and on whose behalf."""

    fields: JsonObject
    key: str | None = None
    tenant_id: str | None = None
    api_key_id: str | None = None


class Answer(NamedTuple):
    """What a command led to; no events, if it was given before."""

    execution_id: str
    events: list[Event]
    run: OpenRun

    @property
    def version(self) -> int:
        """How many events there are now."""
        return self.run.execution.state.version

    def snapshot(self) -> JsonObject:
        """How the run stands now."""
        return self.run.snapshot()

    def snapshot_as_asked(self) -> JsonObject:
        """How the run stood when the command was taken, whatever has followed from it since."""
        if not self.events:
            return self.snapshot()
        return self.run.snapshot_at(self.events[0].event_id)


class CommandDesk:
    """Takes commands."""

    def __init__(self, desk: RunDesk, graphs: GraphRegistry) -> None:
        self._desk = desk
        self._graphs = graphs

    async def create(self, asked: Asked) -> Answer:
        """Create an execution on a registered graph; InvalidInputError if there is no such graph."""
        given = dict(asked.fields)
        check_command({**given, "type": "CreateExecution"})
        is_shared = asked.key is not None or given.get("executionId") is not None
        if given.get("executionId") is None:
            seed = f"{asked.tenant_id or ''}\n{asked.key}"
            given["executionId"] = str(uuid.uuid5(_NAMESPACE, seed) if asked.key is not None else uuid.uuid4())
        command = decode_command({**given, "type": "CreateExecution"})
        if not isinstance(command, CreateExecution):
            raise TypeError("a CreateExecution was expected")
        encoded = await self._graphs.get(command.graph_id)
        if encoded is None:
            raise InvalidInputError(f"graphId: no graph is registered as '{command.graph_id}'; PUT it to /graphs first")
        run = self._desk.new(command.execution_id, graph_from_dict(encoded))
        created = _stamped(_owned(command, asked, run.execution.clock.now().timestamp()), asked.key, of=command)
        try:
            events = await self._desk.create(run, created, is_shared=is_shared)
        except CommandRejected:  # it exists already
            if asked.key is None:
                raise
            found = await visible_run(self._desk, command.execution_id, tenant_id=asked.tenant_id)
            if not _was_given(found.events, asked.key, command):
                raise
            return Answer(command.execution_id, [], found)
        await self._desk.write(run)
        return Answer(command.execution_id, events, run)

    async def give(self, execution_id: str, asked: Asked) -> Answer:
        """Give a command to an execution; RunNotFoundError, or CommandRejected if a guard refuses."""
        run = await visible_run(self._desk, execution_id, tenant_id=asked.tenant_id)
        command = decode_command({**asked.fields, "executionId": execution_id})
        check_command(asked.fields)
        stamped = _stamped(command, asked.key, of=command)
        cancels = await self._desk.cancel_decision(run, stamped) if isinstance(stamped, CancelExecution) else None

        def decision(state: ExecutionState) -> Commit:
            _refuse_to_start_without_graph(state, command)
            if asked.key is not None and _was_given(run.events, asked.key, command):
                return Commit([], state)
            return run.execution.step(state, stamped) if cancels is None else cancels(state)

        events = await run.execution.decide(decision)
        if isinstance(command, ResumeNode) and _is_to_go_on(run, command.node_id):
            await self._wake(run)
        if isinstance(command, ArchiveExecution):
            await self._desk.show(run)
        elif events:
            await self._desk.write(run)
        return Answer(execution_id, events, run)

    async def cancel(self, run_id: str, asked: Asked) -> JsonObject:
        """Cancel a run; the answer is its snapshot as of the request, or as it ended if it has.

        A run may be there as a snapshot only, which somebody else has written: if it has not ended, it becomes ours.
        """
        try:
            return (await self.give(run_id, asked)).snapshot_as_asked()
        except RunNotFoundError:
            shown = await self._desk.shown(run_id)
            if shown is None or not may_see(asked.tenant_id, tenant_of(shown)):
                raise
        if str(shown.get("status")) in TERMINAL_RUN:
            return shown
        await self._desk.adopt(run_id, RunInput.of_snapshot(shown), _FOREIGN)
        return (await self.give(run_id, asked)).snapshot_as_asked()

    async def _wake(self, run: OpenRun) -> None:
        """A run of ours goes on by a worker's hands; the log has the resume, so a job that is lost is made up for."""
        try:
            await self._desk.wake(run)
        except (UnavailableError, TooLargeError):
            extra = {"action": "wake_failed", "run_id": run.execution.execution_id}
            _log.warning("the log has it, but no worker was told", extra=extra)


def _is_to_go_on(run: OpenRun, node_id: str) -> bool:
    """Was the node resumed, and has nobody gone on with it? Whoever resumed it may not have got as far as a wake-up."""
    state = run.execution.state
    node = state.nodes[node_id]
    return not state.is_terminal and node.is_at_work and node.resumption is not None


def _refuse_to_start_without_graph(state: ExecutionState, command: Command) -> None:
    """Refuse to start a run whose log has no graph yet: only a worker that has its flow can, by a job.

    Started without one, the run would be COMPLETED at once, and none of its tasks called.
    """
    if isinstance(command, StartExecution) and not state.nodes and not state.is_terminal:
        message = "the run has no graph yet; a worker that has its flow starts it"
        fact = {"executionId": state.execution_id, "graphId": state.graph_id}
        raise CommandRejected(RejectionCode.GRAPH_NOT_FOUND, command, message, fact)


def _stamped(command: Command, key: str | None, *, of: Command) -> Command:
    """The command with its key, and what it was when it came in; its event will keep both."""
    if key is None:
        return command
    marked: Command = msgspec.structs.replace(command, extra={**command.extra, KEY: key, DIGEST: _digest(of)})
    return marked


def _owned(command: CreateExecution, asked: Asked, now: float) -> Command:
    """The creation with what the platform needs to show it among its runs, beside the input, which is left alone."""
    if PLATFORM in command.extra:
        raise InvalidInputError(f"{PLATFORM}: this name is used by the platform; choose another")
    about = {"flow_name": command.graph_id, "tag": _SHOWN_AS, "tags": [_SHOWN_AS], "submitted_at": now}
    owner = {"tenant_id": asked.tenant_id, "api_key_id": asked.api_key_id}
    about |= {name: value for name, value in owner.items() if value is not None}
    marked: Command = msgspec.structs.replace(command, extra={**command.extra, PLATFORM: about})
    return marked


def _was_given(events: list[Event], key: str, command: Command) -> bool:
    """Is there an event of a request with this key? IdempotencyKeyError if that was another request."""
    found = next((event.payload.extra for event in events if event.payload.extra.get(KEY) == key), None)
    if found is None:
        return False
    if found.get(DIGEST) != _digest(command):
        raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was used for another request; use a new one")
    return True


def _digest(command: Command) -> str:
    """The same for the same request; who asked and as part of what does not matter."""
    plain = msgspec.structs.replace(command, actor=_NOBODY, correlation_id=None, causation_id=None)
    written = msgspec.json.decode(encode_command(plain))
    return hashlib.sha256(msgspec.json.encode(written, order="sorted")).hexdigest()
