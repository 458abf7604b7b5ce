"""Deadlines of waits: when one passes, the node gets its default or fails. Here, while a process drives the run.

A parked run has no process; a gateway expires its waits (``app/recovery/reconciler.py``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from pyoco_server.app.ports import Clock
from pyoco_server.core import Event, ExecutionState, NodeStatus
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import NodeWaiting

Expire = Callable[[str, JsonObject], Awaitable[None]]
"""Called with the node and the extra fields of its NODE_WAITING."""


def deadline_error(node_id: str) -> JsonObject:
    """Return the error of a wait without a default whose deadline has passed."""
    return {"code": "WAIT_DEADLINE", "message": f"nobody resumed '{node_id}' in time"}


class WaitDeadlines:
    """Listens to a log and keeps a timer for each node that waits with a deadline."""

    def __init__(self, clock: Clock, expire: Expire) -> None:
        self._clock = clock
        self._expire = expire
        self._timers: dict[str, asyncio.Task[None]] = {}

    def listen(self, events: Sequence[Event], state: ExecutionState) -> None:
        """Start timers for new waits, and cancel those of waits that have ended."""
        for event in events:
            payload = event.payload
            if type(payload) is NodeWaiting and "deadline" in payload.extra:
                self._begin(payload.node_id, payload.extra)
        for node_id in [*self._timers]:
            if state.nodes[node_id].status is not NodeStatus.WAITING:
                self._timers.pop(node_id).cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _begin(self, node_id: str, said: JsonObject) -> None:
        earlier = self._timers.pop(node_id, None)
        if earlier is not None:  # it waits again: the later deadline counts
            earlier.cancel()
        self._timers[node_id] = asyncio.create_task(self._wait_for(node_id, said), name=f"deadline of {node_id}")

    async def _wait_for(self, node_id: str, said: JsonObject) -> None:
        moment = msgspec.convert(said["deadline"], datetime)
        await self._clock.sleep(max((moment - self._clock.now()).total_seconds(), 0.0))
        del self._timers[node_id]
        await self._expire(node_id, said)
