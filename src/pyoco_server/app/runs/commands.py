"""Commands from outside: the core's twelve are checked, appended to the log and answered here, for every caller.

They reach executions that a client drives and runs that our workers drive. What a worker must do afterwards (a resumed
node, a cancel) reaches it through the log, or through a wake-up job if no worker owns the run.
"""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pyoco_server.app.ports import GraphRegistry, UnavailableError
from pyoco_server.app.runs.job import check_params
from pyoco_server.app.runs.run_log import OpenRun, RunLog, RunNotFoundError
from pyoco_server.app.runs.submit import IdempotencyKeyError
from pyoco_server.app.runtime.outputs import STORED, VALUE
from pyoco_server.app.runtime.run_input import PLATFORM, RunInput
from pyoco_server.app.snapshots.status import TERMINAL_RUN
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
from pyoco_server.core.commands import (
    ArchiveExecution,
    CancelExecution,
    CreateExecution,
    PutNodeWaiting,
    ReportNodeProgress,
    RequestResumeNode,
    ResumeNode,
    StartExecution,
    StartNode,
    SucceedNode,
)
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.flows.limits import NO_LIMITS, RunLimits
from pyoco_server.values.codec import KIND, OutputKind, from_tagged, received
from pyoco_server.values.errors import ValueCodecError

KEY: Final = "idempotencyKey"
"""The field in which an event keeps the Idempotency-Key of the request that caused it."""
DIGEST: Final = "requestSha256"
"""The field that keeps the digest of that request: the key is refused for any other request."""

AT_ONCE: Final = 32
"""How many items :func:`for_each` handles at the same time."""

T = TypeVar("T")
R = TypeVar("R")

_ANY_ACTOR: Final = Actor(ActorKind.EXTERNAL)
_FOREIGN: Final = Actor(ActorKind.EXTERNAL, "snapshot")
_SHOWN_AS: Final = "external"
"""The tag under which lists show executions that clients drive; runs of a flow may have it, too."""
_NAMESPACE: Final = uuid.UUID("1d7a5a8e-5d0b-4f61-8f07-40a5d1e2c3b4")


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a command, and with which request."""

    actor: Actor
    key: str | None = None
    """The request's Idempotency-Key."""
    correlation_id: str | None = None
    tenant_id: str | None = None
    api_key_id: str | None = None


class CommandResult(NamedTuple):
    """The events of a command: none if the same request was handled before."""

    execution_id: str
    events: list[Event]
    run: OpenRun

    @property
    def version(self) -> int:
        """The number of events in the log now."""
        return self.run.execution.state.version

    def snapshot(self) -> JsonObject:
        """Return the run's snapshot as of now."""
        return self.run.snapshot()

    def snapshot_of_request(self) -> JsonObject:
        """Return the run's snapshot as of the command's first event, whatever has followed since."""
        return self.run.snapshot_at(self.events[0].event_id) if self.events else self.snapshot()


class RunCommands:
    """Handles commands from outside: the one way by which HTTP, the command lines and the tests command a run."""

    def __init__(self, run_log: RunLog, graphs: GraphRegistry, *, limits: RunLimits = NO_LIMITS) -> None:
        self._limits = limits
        self._run_log = run_log
        self._graphs = graphs

    async def create(self, command: CreateExecution, sender: Sender, *, is_id_chosen: bool) -> CommandResult:
        """Create an execution on a registered graph; InvalidInputError if there is no such graph.

        With an Idempotency-Key the same request again returns the execution that the first one created.
        ``is_id_chosen``: the sender named the id, so that other requests may create the same execution.
        """
        check_command(command)
        encoded = await self._graphs.get(command.graph_id)
        if encoded is None:
            raise InvalidInputError(f"graphId: no graph is registered as '{command.graph_id}'; PUT it to /graphs first")
        run = self._run_log.new(command.execution_id, graph_from_dict(encoded))
        created = _marked(_owned(command, sender, run.execution.clock.now().timestamp()), sender.key, of=command)
        try:
            events = await self._run_log.create(run, created, is_shared=is_id_chosen or sender.key is not None)
        except CommandRejected:  # the execution exists already
            if sender.key is None:
                raise
            found = await self._run_log.open(command.execution_id)
            if not _was_handled(found.events, sender.key, command):
                raise
            return CommandResult(command.execution_id, [], found)
        await self._run_log.update_snapshot(run)
        return CommandResult(command.execution_id, events, run)

    async def give(self, command: Command, sender: Sender) -> CommandResult:
        """Append the events of a command; RunNotFoundError, or CommandRejected if a guard refuses it."""
        run = await self._run_log.open(command.execution_id)
        check_command(command)
        marked = _marked(command, sender.key, of=command)
        cancel = await self._run_log.cancel_decision(run, marked) if isinstance(marked, CancelExecution) else None

        def decide(state: ExecutionState) -> Commit:
            _refuse_to_start_without_graph(state, command)
            if sender.key is not None and _was_handled(run.events, sender.key, command):
                return Commit([], state)
            if isinstance(command, _PROLONGING):
                self._limits.check_events(state.version)
            return run.execution.step(state, marked) if cancel is None else cancel(state)

        events = await run.execution.decide(decide)
        if isinstance(command, ResumeNode) and _awaits_worker(run, command.node_id):
            await self._run_log.wake_or_leave_to_reconciler(run)
        if isinstance(command, ArchiveExecution):
            await self._run_log.write_snapshot(run)
        elif events:
            await self._run_log.update_snapshot(run)
        return CommandResult(command.execution_id, events, run)

    async def cancel(self, run_id: str, sender: Sender, reason: str | None = None) -> JsonObject:
        """Cancel a run and return its snapshot as of the request, or as it ended if it had ended before.

        A run that no worker executes has ended when this returns; otherwise its worker is notified and has its grace
        period. A run that has a snapshot of another program and no log gets a log first.
        """
        command = CancelExecution(
            execution_id=run_id, actor=sender.actor, correlation_id=sender.correlation_id, reason=reason
        )
        try:
            return (await self.give(command, sender)).snapshot_of_request()
        except RunNotFoundError:
            stored = await self._run_log.stored_snapshot(run_id)
            if stored is None:
                raise
        if str(stored.get("status")) in TERMINAL_RUN:
            return stored
        await self._run_log.adopt(run_id, RunInput.of_snapshot(stored), _FOREIGN)
        return (await self.give(command, sender)).snapshot_of_request()

    async def resume(
        self,
        run_id: str,
        node_id: str,
        value: object,
        sender: Sender,
        *,
        value_kind: str | None = None,
        resume_key: str | None = None,
    ) -> CommandResult:
        """Resume a waiting node with a JSON value, which becomes its result; CommandRejected if it does not wait."""
        answer: JsonObject = {"input": value}
        if value_kind is not None:
            answer["input_kind"] = value_kind
        command = ResumeNode(
            execution_id=run_id,
            actor=sender.actor,
            correlation_id=sender.correlation_id,
            node_id=node_id,
            resume_key=resume_key,
            extra=answer,
        )
        return await self.give(command, sender)

    async def archive(self, run_id: str, sender: Sender) -> CommandResult:
        """Archive an ended run; CommandRejected if it has not ended, UnavailableError if its snapshot is not stored."""
        command = ArchiveExecution(execution_id=run_id, actor=sender.actor, correlation_id=sender.correlation_id)
        return await self.give(command, sender)

    async def create_from(self, fields: JsonObject, sender: Sender) -> CommandResult:
        """Decode and handle a CreateExecution; DecodeError names the field that is wrong."""
        chosen_id = fields.get("executionId")
        execution_id = _new_execution_id(sender) if chosen_id is None else chosen_id
        command = _decode({**fields, "executionId": execution_id, "type": CreateExecution.type.value}, sender)
        if not isinstance(command, CreateExecution):
            raise TypeError("a CreateExecution was expected")
        return await self.create(command, sender, is_id_chosen=chosen_id is not None)

    async def give_from(self, execution_id: str, fields: JsonObject, sender: Sender) -> CommandResult:
        """Decode and handle any other command; DecodeError names the field that is wrong."""
        return await self.give(_decode({**fields, "executionId": execution_id}, sender), sender)


def check_command(command: Command) -> None:
    """Refuse a command with a value that no worker may read; InvalidInputError.

    A value from outside may be plain JSON or tags of built-in types. Workers import what a class tag names, load
    pickles and read stored objects; none of these is accepted.
    """
    match command:
        case SucceedNode():
            _check_output("output", command.output)
        case ResumeNode():
            received("input", command.extra)
        case ReportNodeProgress():
            if isinstance((command.metrics or {}).get("decision"), dict):
                raise InvalidInputError("metrics.decision: this name is used by the platform; choose another")
        case CreateExecution():
            if "params_kind" in (command.input or {}):
                check_params(command.input or {})
        case _:  # no other command brings a value
            return


def _check_output(name: str, output: Any) -> None:  # noqa: ANN401 any JSON
    if not isinstance(output, dict):
        return
    if isinstance(output.get(STORED), dict) and VALUE not in output:
        raise InvalidInputError(f"{name}.{STORED}: only workers refer to stored outputs; give the '{VALUE}' itself")
    kind = output.get(KIND, OutputKind.JSON.value)
    if kind not in (OutputKind.JSON.value, OutputKind.TAGGED.value):
        raise InvalidInputError(f"{name}.{KIND}: {kind!r:.40} is not accepted; use 'json' or 'tagged', or leave it out")
    if kind == OutputKind.TAGGED.value:
        if VALUE not in output:
            raise InvalidInputError(f"{name}.{VALUE}: a tagged output needs one")
        try:
            from_tagged(output[VALUE], classes=False)
        except ValueCodecError as error:
            raise InvalidInputError(f"{name}.{VALUE}{error.at[1:]}: {error.problem}") from error


def _decode(fields: JsonObject, sender: Sender) -> Command:
    fields = {**fields, "actor": _actor(fields.get("actor"), sender.actor)}
    if sender.correlation_id is not None:
        fields["correlationId"] = sender.correlation_id
    return decode_command(fields)


def _actor(claimed: object, sender: Actor) -> object:
    """Return the actor that the fields name, or the sender; a sender that is known keeps its own id."""
    known = {"id": sender.id} if sender.id else {}
    if claimed is None:
        return {"kind": sender.kind.value} | known
    return {**claimed, **known} if isinstance(claimed, dict) else claimed


def _new_execution_id(sender: Sender) -> str:
    """Return the id of an execution that its creator did not name: the same one for the same Idempotency-Key."""
    if sender.key is None:
        return str(uuid.uuid4())
    return str(uuid.uuid5(_NAMESPACE, f"{sender.tenant_id or ''}\n{sender.key}"))


def _awaits_worker(run: OpenRun, node_id: str) -> bool:
    """Return whether a node was resumed and no worker has started it since.

    The process that resumed it may have died before it queued the wake-up.
    """
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


def _marked(command: Command, key: str | None, *, of: Command) -> Command:
    """Return the command with its Idempotency-Key and the digest of the request; its event keeps both."""
    if key is None:
        return command
    marked: Command = msgspec.structs.replace(command, extra={**command.extra, KEY: key, DIGEST: _digest(of)})
    return marked


_PROLONGING: Final = (StartNode, ReportNodeProgress, PutNodeWaiting, RequestResumeNode)
"""The commands that a client can repeat without end, unlike those that end a node or the execution."""


def _owned(command: CreateExecution, sender: Sender, now: float) -> Command:
    """Return the command with the fields that lists need, beside its input, which is not changed."""
    if PLATFORM in command.extra:
        raise InvalidInputError(f"{PLATFORM}: this name is used by the platform; choose another")
    about = {"flow_name": command.graph_id, "tag": _SHOWN_AS, "tags": [_SHOWN_AS], "submitted_at": now}
    owner = {"tenant_id": sender.tenant_id, "api_key_id": sender.api_key_id}
    about |= {name: value for name, value in owner.items() if value is not None}
    marked: Command = msgspec.structs.replace(command, extra={**command.extra, PLATFORM: about})
    return marked


def _was_handled(events: list[Event], key: str, command: Command) -> bool:
    """Return whether an event belongs to a request with this key; IdempotencyKeyError if that was another request."""
    found = next((event.payload.extra for event in events if event.payload.extra.get(KEY) == key), None)
    if found is None:
        return False
    if found.get(DIGEST) != _digest(command):
        raise IdempotencyKeyError(f"Idempotency-Key '{key:.80}' was used for another request; use a new one")
    return True


def _digest(command: Command) -> str:
    """Return the digest of a request; its sender and its correlation id do not count."""
    plain = msgspec.structs.replace(command, actor=_ANY_ACTOR, correlation_id=None, causation_id=None)
    written = msgspec.json.decode(encode_command(plain))
    return hashlib.sha256(msgspec.json.encode(written, order="sorted")).hexdigest()


async def for_each(items: Sequence[T], do: Callable[[T], Awaitable[R]]) -> list[R | PyocoServerError]:
    """Handle many items, each with a result of its own, in their order; UnavailableError if none could be handled.

    After the first UnavailableError the remaining items are not tried: each would only take long to fail.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    away: UnavailableError | None = None

    async def one(item: T) -> R | PyocoServerError:
        nonlocal away
        async with gate:
            if away is not None:
                return away
            try:
                return await do(item)
            except UnavailableError as error:
                away = error
                return error
            except PyocoServerError as error:
                return error

    results = await asyncio.gather(*(one(item) for item in items))
    if away is not None and all(isinstance(result, UnavailableError) for result in results):
        raise away
    return results
