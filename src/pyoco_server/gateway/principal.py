"""Who is asking, and what they may see."""

from typing import Annotated

import msgspec
from fastapi import Depends, Request

from pyoco_server.core import Actor, ActorKind


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever sent the request; without authentication, nobody in particular."""

    tenant_id: str | None = None
    """Only this tenant's runs exist for them; None: all do."""
    api_key_id: str | None = None

    @property
    def actor(self) -> Actor:
        """As the log names them."""
        return Actor(ActorKind.USER, self.api_key_id)

    def may_see(self, tenant_id: str | None) -> bool:
        """May they know of a run of this tenant?"""
        return self.tenant_id is None or self.tenant_id == tenant_id


def principal(request: Request) -> Principal:
    """Who sent the request."""
    found: Principal = getattr(request.state, "principal", None) or Principal()
    return found


Asking = Annotated[Principal, Depends(principal)]
