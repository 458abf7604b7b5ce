"""Everything that was stored of runs, in its order: also the snapshots that others overwrote a moment later.

The bucket keeps only the newest revision of a key. Its stream announces each one when it is stored, as the logs do.
"""

import asyncio
import threading
import time
from collections import defaultdict
from typing import Any, Final, NamedTuple

import msgspec
import nats

from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.app.ports import head_of

_NAMES: Final = Names()
_SHOWN: Final = ("status", "log_status", "log_position", "driven_by", "worker_id", "cancel_requested_at", "tasks")
_START_SEC: Final = 10.0


class Revision(NamedTuple):
    """A snapshot that was stored."""

    number: int
    at: float
    said: dict[str, Any]
    is_foreign: bool
    """Did another program write it, or change one of ours?"""

    @property
    def writer(self) -> str:
        return "another program" if self.is_foreign else "ours"

    @property
    def shown(self) -> str:
        """The part of it that shows the state of the run."""
        return str({name: self.said[name] for name in _SHOWN if self.said.get(name) is not None})


class History:
    """Records from its start to its end, in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._revisions: defaultdict[str, list[Revision]] = defaultdict(list)
        self._lines: defaultdict[str, list[str]] = defaultdict(list)
        self._is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._record(),), daemon=True)
        self._thread.start()
        assert self._is_ready.wait(_START_SEC), "the history cannot reach NATS"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    def note(self, run_id: str, what: str) -> None:
        """Record what a test did to the run."""
        self._lines[run_id].append(f"{time.time():.4f} {what}")

    def account(self, run_id: str) -> str:
        """All that was stored of the run, for a person to read."""
        lines, last = [*self._lines[run_id]], ""
        for revision in self._revisions[run_id]:
            if revision.shown != last:  # not only a sign of life
                lines.append(f"{revision.at:.4f} snapshot {revision.number} by {revision.writer}: {revision.shown}")
            last = revision.shown
        return "\n".join(sorted(lines))  # each begins with its time

    async def _record(self) -> None:
        connection = await nats.connect(self._url)
        await connection.subscribe(f"{_NAMES.live_snapshots_prefix}.>", cb=self._stored)
        await connection.subscribe(f"{_NAMES.live_prefix}.>", cb=self._appended)
        await connection.flush()
        self._is_ready.set()
        await self._end.wait()
        await connection.close()

    async def _stored(self, message: Any) -> None:
        run_id, number = message.subject.rpartition(".")[2], int(message.headers["Nats-Sequence"])
        if not message.data:  # it was removed
            return
        said, is_foreign = msgspec.json.decode(message.data), head_of(message.data).is_foreign
        self._revisions[run_id].append(Revision(number, time.time(), said, is_foreign))

    async def _appended(self, message: Any) -> None:
        run_id, number = message.subject.rpartition(".")[2], message.headers["Nats-Sequence"]
        self.note(run_id, f"log: a commit, number {number} in its stream")
