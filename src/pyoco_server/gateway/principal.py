"""Who sent a request, and which runs exist for them."""

from typing import Annotated, Final

import msgspec
from fastapi import Depends, Request

from pyoco_server.app.api_keys.errors import ApiKeyRequiredError
from pyoco_server.app.api_keys.format import KeyScope
from pyoco_server.core import Actor, ActorKind

ALL_SCOPES: Final = frozenset(KeyScope)
UNUSED_TENANT: Final = ""
"""A tenant that no key can have: no run belongs to it."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request; without authentication, every client is the same one."""

    tenant_id: str | None = None
    """Only this tenant's runs exist for them; None: all do."""
    api_key_id: str | None = None
    scopes: frozenset[str] = ALL_SCOPES

    @property
    def actor(self) -> Actor:
        """The sender as events name it."""
        return Actor(ActorKind.USER, self.api_key_id)

    def counted_as(self, request: Request) -> str:
        """Return what the sender's limits are counted by: the API key, or the address without one."""
        return self.api_key_id or (request.client.host if request.client else "")


STRANGER: Final = Principal(tenant_id=UNUSED_TENANT, scopes=frozenset())
"""A client without a key where keys are required: no run exists for it."""


async def principal_of(request: Request) -> Principal:
    """Return the sender; ApiKeyRequiredError if keys are required and no middleware has checked one."""
    found: Principal | None = getattr(request.state, "principal", None)
    if found is not None:
        return found
    if request.app.state.services.settings.auth.mode != "none":
        raise ApiKeyRequiredError("the request was not authenticated")
    return Principal()


PrincipalDep = Annotated[Principal, Depends(principal_of)]
