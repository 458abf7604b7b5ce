"""Commands from outside, for executions nobody here drives: the core's twelve, checked, written, answered."""

import uuid
from typing import Final, NamedTuple

import msgspec

from pyoco_server.app.ports import GraphRegistry
from pyoco_server.app.run_desk import RunDesk, RunNotFoundError, cancel_mode
from pyoco_server.core import (
    Command,
    CommandRejected,
    Event,
    RejectionCode,
    decode_command,
    graph_from_dict,
)
from pyoco_server.core.commands import CancelExecution, CreateExecution
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import InvalidInputError

KEY: Final = "idempotencyKey"
"""Under this name an event keeps the key of the request that caused it."""

_NAMESPACE: Final = uuid.UUID("1d7a5a8e-5d0b-4f61-8f07-40a5d1e2c3b4")


class Answer(NamedTuple):
    """What a command led to; nothing, if it was given before."""

    execution_id: str
    events: list[Event]
    version: int


class CommandDesk:
    """Takes commands."""

    def __init__(self, desk: RunDesk, graphs: GraphRegistry) -> None:
        self._desk = desk
        self._graphs = graphs

    async def create(self, fields: JsonObject, *, key: str | None, tenant_id: str | None) -> Answer:
        """Create an execution on a registered graph; InvalidInputError if there is no such graph."""
        given = dict(fields)
        if not given.get("executionId"):
            given["executionId"] = str(uuid.uuid5(_NAMESPACE, f"{tenant_id or ''}\n{key}") if key else uuid.uuid4())
        command = decode_command({**given, "type": "CreateExecution"})
        if not isinstance(command, CreateExecution):
            raise TypeError("a CreateExecution was expected")
        encoded = await self._graphs.get(command.graph_id)
        if encoded is None:
            raise InvalidInputError(f"graphId: no graph is registered as '{command.graph_id}'; PUT it to /graphs first")
        execution = self._desk.execution(command.execution_id, graph_from_dict(encoded))
        try:
            events = await execution.do(_stamped(command, key, tenant_id))
        except CommandRejected as error:
            if key is not None and error.code is RejectionCode.EXECUTION_EXISTS:
                found = await self._desk.open(command.execution_id)
                if _has(found.events, key):
                    return Answer(command.execution_id, [], found.execution.state.version)
            raise
        await self._desk.write(await self._desk.open(command.execution_id))
        return Answer(command.execution_id, events, execution.state.version)

    async def give(self, execution_id: str, fields: JsonObject, *, key: str | None, tenant_id: str | None) -> Answer:
        """Give a command to an execution; RunNotFoundError, or CommandRejected if a guard refuses."""
        run = await self._desk.open(execution_id)
        if tenant_id is not None and run.projection.input.tenant_id != tenant_id:
            raise RunNotFoundError(execution_id)
        command = decode_command({**fields, "executionId": execution_id})
        if key is not None and _has(run.events, key):
            return Answer(execution_id, [], run.execution.state.version)
        stamped = _stamped(command, key, None)
        if isinstance(command, CancelExecution):
            events = await run.execution.decide(
                lambda state: run.execution.step(state, stamped, cancel_mode=cancel_mode(state))
            )
        else:
            events = await run.execution.do(stamped)
        if events:
            await self._desk.write(run)
        return Answer(execution_id, events, run.execution.state.version)


def _stamped(command: Command, key: str | None, tenant_id: str | None) -> Command:
    extra = dict(command.extra)
    if key is not None:
        extra[KEY] = key
    changed: Command = msgspec.structs.replace(command, extra=extra)
    if tenant_id is not None and isinstance(changed, CreateExecution):
        run = {"flow_name": changed.graph_id, "tenant_id": tenant_id}
        changed = msgspec.structs.replace(changed, input={**(changed.input or {}), "run": run})
    return changed


def _has(events: list[Event], key: str) -> bool:
    return any(event.payload.extra.get(KEY) == key for event in events)
