"""What an operator of a NATS cluster does by hand."""

import asyncio
import json
import time
from collections.abc import Collection
from typing import Final

from tests.cluster.documented import Address

from pyoco_server.adapters.jetstream.connection import connect
from pyoco_server.adapters.jetstream.translation import NATS_ERRORS
from pyoco_server.app.ports import UnavailableError

_PATIENCE_SEC: Final = 60.0
_ADMIN: Final = "admin:change-me"
"""The user of the system account in docs/production.md."""


async def remove_peer(nodes: Collection[Address], lost: str) -> None:
    """What ``nats server cluster peer-remove`` does: the cluster forgets a node, and gives its replicas to others."""
    url = ",".join(f"nats://{_ADMIN}@{node.host}:{node.port}" for node in nodes)
    deadline, answer = time.monotonic() + _PATIENCE_SEC, ""
    while time.monotonic() < deadline:
        try:
            async with await connect(url, name="operator") as connection:
                body = json.dumps({"peer": lost}).encode()
                answer = (await connection.nc.request("$JS.API.SERVER.REMOVE", body, timeout=5)).data.decode()
                if json.loads(answer).get("success"):
                    return
        except (UnavailableError, *NATS_ERRORS) as error:
            answer = str(error)
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the cluster did not forget {lost}: {answer}")
