"""The client of a pyoco-server, ours or the public one: they have the same HTTP contract."""

import asyncio
import sys
import time
from collections import deque

from bench.peers.programs.client_loop import Client, many, serve
from bench.peers.programs.http import Http

LAST = 32
"""Workers take runs in order, but several at a time: when the last so many have ended, all have."""
PAUSE_SEC = 0.001
PATIENCE_SEC = 15.0
BACKLOG_SEC = 40.0
"""So long a worker may need for what was submitted when the time was up."""
AT_A_TIME = 200


class Pyoco:
    """Submits over HTTP, and looks at a run until it has ended."""

    def __init__(self, port: int, *, waits: bool = False) -> None:
        """``waits``: the gateway answers when the run has ended, if it is asked to. The public one does not."""
        self._http = Http(port)
        self._waits = waits
        self._submitted: list[str] = []

    async def run_one(self) -> None:
        """Submit and wait for the answer, or look again and again."""
        if self._waits:
            answer = await self._http.ask("POST", f"/runs?wait_sec={PATIENCE_SEC:g}", {"flow_name": "three"})
            if answer["status"] != "COMPLETED":
                raise RuntimeError(f"run {answer['run_id']} is {answer['status']}")
            return
        await self._ended(await self._submit(), ends_at=time.perf_counter() + PATIENCE_SEC)

    async def run_many(self, count: int, in_flight: int, ends_at: float) -> int:
        """Submit on so many connections; the worker has as many slots. Over when the last have ended."""
        self._submitted = []
        done = await many(self._remember, count, in_flight, ends_at)
        for run_id in deque(self._submitted, LAST):
            await self._ended(run_id, ends_at=ends_at + BACKLOG_SEC)
        return done

    async def fill(self, count: int, in_flight: int, ends_at: float) -> int:
        """Some at a time: what was submitted has ended when the time is up."""
        done = 0
        while done < count and time.perf_counter() < ends_at:
            done += await self.run_many(min(AT_A_TIME, count - done), in_flight, ends_at)
        return done

    async def verify(self) -> int:
        """Look at all of them."""
        statuses = [await self._status(run_id) for run_id in self._submitted]
        return sum(status != "COMPLETED" for status in statuses)

    async def page(self) -> int:
        """The list."""
        found = await self._http.ask("GET", "/runs?limit=50")
        return len(found if isinstance(found, list) else found["items"])

    async def _submit(self) -> str:
        answer = await self._http.ask("POST", "/runs", {"flow_name": "three"})
        return str(answer["run_id"])

    async def _remember(self) -> None:
        self._submitted.append(await self._submit())

    async def _status(self, run_id: str, query: str = "") -> str:
        found = await self._http.ask("GET", f"/runs/{run_id}{query}")
        return str(found.get("status") or found["snapshot"]["status"])

    async def _ended(self, run_id: str, ends_at: float) -> None:
        query = f"?wait_sec={PATIENCE_SEC:g}" if self._waits else ""
        while (status := await self._status(run_id, query)) in ("PENDING", "RUNNING"):
            if time.perf_counter() > ends_at:
                raise TimeoutError(f"run {run_id} is still {status}")
            await asyncio.sleep(PAUSE_SEC)
        if status != "COMPLETED":
            raise RuntimeError(f"run {run_id} is {status}")


if __name__ == "__main__":
    pyoco = Pyoco(int(sys.argv[1]), waits="waits" in sys.argv)
    asyncio.run(serve(Client(pyoco.run_one, pyoco.page, pyoco.run_many, pyoco.verify, pyoco.fill)))
