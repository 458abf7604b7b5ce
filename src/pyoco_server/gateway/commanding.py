"""Giving commands on behalf of whoever sent the request."""

from typing import Annotated, Any, NamedTuple

from fastapi import Depends

from pyoco_server.app.command_desk import Answer, Asked
from pyoco_server.core.wire import JsonObject
from pyoco_server.gateway.headers import Correlation, IdempotencyKey
from pyoco_server.gateway.outages import in_time
from pyoco_server.gateway.principal import Asking, Principal
from pyoco_server.gateway.services import Given, Services


class Asker(NamedTuple):
    """Who asks, under which key, and as part of what."""

    given: Services
    principal: Principal
    key: str | None
    correlation: str | None

    async def give(self, execution_id: str, fields: JsonObject) -> Answer:
        """Give a command to an execution."""
        return await in_time(self.given.commands.give(execution_id, self._asked(fields)))

    async def cancel(self, run_id: str, reason: str | None) -> JsonObject:
        """Cancel a run, also one that is there as a snapshot only."""
        fields = {"type": "CancelExecution"} | ({"reason": reason} if reason is not None else {})
        return await in_time(self.given.commands.cancel(run_id, self._asked(fields)))

    async def create(self, fields: JsonObject) -> Answer:
        """Create an execution."""
        return await in_time(self.given.commands.create(self._asked(fields)))

    def _asked(self, fields: JsonObject) -> Asked:
        said: dict[str, Any] = {**fields, "actor": self._actor(fields.get("actor"))}
        if self.correlation is not None:
            said["correlationId"] = self.correlation
        return Asked(
            fields=said, key=self.key, tenant_id=self.principal.tenant_id, api_key_id=self.principal.api_key_id
        )

    def _actor(self, claimed: object) -> object:
        """Who acts, as the body says or as the request shows; behind a key, it is the key's owner whatever is said."""
        sender = self.principal.actor
        known = {"id": sender.id} if sender.id else {}
        if claimed is None:
            return {"kind": sender.kind.value} | known
        return {**claimed, **known} if isinstance(claimed, dict) else claimed


async def _asker(given: Given, asking: Asking, key: IdempotencyKey = None, correlation: Correlation = None) -> Asker:
    return Asker(given, asking, key, correlation)


Commanding = Annotated[Asker, Depends(_asker)]
