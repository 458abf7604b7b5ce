"""The client of Restate: its HTTP ingress answers when the run has ended."""

import asyncio
import sys

from bench.peers.programs.client_loop import Client, serve
from bench.peers.programs.http import Http

NEWEST = (
    "select id, target, status, created_at, completion_result from sys_invocation order by created_at desc limit 50"
)


class Restate:
    """Calls the service through the ingress; lists with the query engine of the admin port."""

    def __init__(self, ingress: int, admin: int) -> None:
        self._ingress = Http(ingress)
        self._admin = Http(admin)

    async def run_one(self) -> None:
        """One request, answered at the end."""
        if await self._ingress.ask("POST", "/three/run") != 3:
            raise RuntimeError("the run did not return what it should")

    async def page(self) -> int:
        """A query."""
        found = await self._admin.ask("POST", "/query", {"query": NEWEST})
        return len(found["rows"])


if __name__ == "__main__":
    restate = Restate(int(sys.argv[1]), int(sys.argv[2]))
    asyncio.run(serve(Client(restate.run_one, restate.page)))
