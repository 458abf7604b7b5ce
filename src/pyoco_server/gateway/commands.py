"""Gives the commands of a request in the name of its sender, within the time limit of a change."""

from typing import Annotated, NamedTuple

from fastapi import Depends

from pyoco_server.app.runs.commands import CommandResult, RunCommands, Sender
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.gateway.principal import Principal, PrincipalDep
from pyoco_server.gateway.schemas.parameters import Correlation, IdempotencyKey
from pyoco_server.gateway.services import Services, ServicesDep
from pyoco_server.gateway.timeouts import in_time


class CommandContext(NamedTuple):
    """The services and the sender of one request."""

    services: Services
    principal: Principal
    key: str | None
    correlation_id: str | None

    @property
    def _commands(self) -> RunCommands:
        return self.services.commands

    @property
    def _sender(self) -> Sender:
        return Sender(
            actor=self.principal.actor,
            key=self.key,
            correlation_id=self.correlation_id,
            tenant_id=self.principal.tenant_id,
            api_key_id=self.principal.api_key_id,
        )

    async def cancel(self, run_id: str, reason: str | None) -> JsonObject:
        """Cancel a run, also one of which only a snapshot exists."""
        return await in_time(self._commands.cancel(run_id, self._sender, reason))

    async def resume(
        self, run_id: str, node_id: str, value: object, *, value_kind: str | None, resume_key: str | None
    ) -> CommandResult:
        """Resume a waiting node."""
        resuming = self._commands.resume(
            run_id, node_id, value, self._sender, value_kind=value_kind, resume_key=resume_key
        )
        return await in_time(resuming)

    async def archive(self, run_id: str) -> CommandResult:
        """Archive an ended run."""
        return await in_time(self._commands.archive(run_id, self._sender))

    async def create_from(self, fields: JsonObject) -> CommandResult:
        """Create the execution that a body describes."""
        return await in_time(self._commands.create_from(fields, self._sender))

    async def give_from(self, execution_id: str, fields: JsonObject) -> CommandResult:
        """Give the command that a body describes."""
        return await in_time(self._commands.give_from(execution_id, fields, self._sender))


async def _command_context(
    services: ServicesDep, principal: PrincipalDep, key: IdempotencyKey = None, correlation: Correlation = None
) -> CommandContext:
    return CommandContext(services, principal, key, correlation)


CommandDep = Annotated[CommandContext, Depends(_command_context)]
