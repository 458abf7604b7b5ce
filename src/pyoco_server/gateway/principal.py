"""Who is asking, and what they may see."""

from typing import Annotated, Final

import msgspec
from fastapi import Depends, Request

from pyoco_server.app.key_errors import ApiKeyRequiredError
from pyoco_server.app.key_texts import Scope
from pyoco_server.core import Actor, ActorKind

ALL_SCOPES: Final = frozenset(Scope)
NOBODYS_TENANT: Final = ""
"""A tenant no key can be made for: nothing belongs to it."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever sent the request; without authentication, nobody in particular."""

    tenant_id: str | None = None
    """Only this tenant's runs exist for them; None: all do."""
    api_key_id: str | None = None
    scopes: frozenset[str] = ALL_SCOPES

    @property
    def actor(self) -> Actor:
        """As the log names them."""
        return Actor(ActorKind.USER, self.api_key_id)

    def may_see(self, tenant_id: str | None) -> bool:
        """May they know of a run of this tenant?"""
        return self.tenant_id is None or self.tenant_id == tenant_id

    def counted_as(self, request: Request) -> str:
        """Under what those are counted who have a limit together: by their key, or by where they come from."""
        return self.api_key_id or (request.client.host if request.client else "")


STRANGER: Final = Principal(tenant_id=NOBODYS_TENANT, scopes=frozenset())
"""Somebody without a key, where keys are asked for: nothing exists for them."""


async def principal(request: Request) -> Principal:
    """Who sent the request; ApiKeyRequiredError if nobody found out, although somebody should have."""
    found: Principal | None = getattr(request.state, "principal", None)
    if found is not None:
        return found
    if request.app.state.services.settings.auth.mode != "none":
        raise ApiKeyRequiredError("the request was not authenticated")
    return Principal()


Asking = Annotated[Principal, Depends(principal)]
