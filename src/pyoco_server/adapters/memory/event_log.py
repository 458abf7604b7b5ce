"""Event logs in memory, stored as the bytes that would be on disk: an event that cannot be encoded is refused."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pyoco_server.app.ports import LogConflictError, OnAppend, Unsubscribe
from pyoco_server.core import Event, decode_event, encode_event


class MemoryEventLog:
    """Commits by execution; a position is a number of events."""

    def __init__(self) -> None:
        self._lines: dict[str, list[bytes]] = {}
        self._listeners: dict[str, list[OnAppend]] = {}
        self._listeners_to_all: list[Callable[[str, int], None]] = []

    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        """Add a commit if the log still ends at ``after``."""
        lines = self._lines.setdefault(execution_id, [])
        if len(lines) != after:
            raise LogConflictError(execution_id, after)
        lines.extend([encode_event(event) for event in commit])
        for listener in [] if quiet else [*self._listeners.get(execution_id, ())]:
            listener(len(lines))
        for listener_to_all in [*self._listeners_to_all]:
            listener_to_all(execution_id, len(lines))
        return len(lines)

    async def read(self, execution_id: str, *, after: int = 0) -> tuple[Sequence[Event], int]:
        """Return the events after ``after``, and where the log ends."""
        lines = self._lines.get(execution_id, [])
        return [decode_event(line) for line in lines[after:]], len(lines)

    async def subscribe(self, execution_id: str, on_append: OnAppend) -> Unsubscribe:
        """Call ``on_append`` for commits to the log."""
        self._listeners.setdefault(execution_id, []).append(on_append)

        def unsubscribe() -> None:
            listeners = self._listeners.get(execution_id, [])
            if on_append in listeners:
                listeners.remove(on_append)
            if not listeners:
                self._listeners.pop(execution_id, None)

        return unsubscribe

    async def subscribe_all(self, on_append: Callable[[str, int], None]) -> Unsubscribe:
        """Call ``on_append`` for commits to any log."""
        self._listeners_to_all.append(on_append)
        return lambda: self._listeners_to_all.remove(on_append)

    def counts(self) -> Mapping[str, int]:
        """Return all executions that have a log, each with the number of its events."""
        return {execution_id: len(lines) for execution_id, lines in self._lines.items() if lines}

    def dump(self) -> bytes:
        """Return all logs as bytes, so that another process can resume their runs."""
        return msgspec.msgpack.encode(self._lines)

    @classmethod
    def load(cls, dumped: bytes) -> "MemoryEventLog":
        """Return the logs that another process dumped."""
        log = cls()
        log._lines = msgspec.msgpack.decode(dumped, type=dict[str, list[bytes]])
        return log
