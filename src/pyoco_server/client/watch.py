"""Watches a run and waits for its end, also when connections break.

Snapshots arrive as server-sent events. A connection that breaks is opened again, and begins with the newest snapshot,
so that the end is never missed. Where events do not arrive (a proxy that buffers them, a limit that is reached), the
client polls instead.
"""

import dataclasses
import math
from collections.abc import Generator
from typing import Any, Final

import httpx
import msgspec

from pyoco_server.app.snapshots.status import TERMINAL_RUN
from pyoco_server.client.errors import WaitTimeoutError
from pyoco_server.client.requests import snapshot as snapshot_call
from pyoco_server.client.requests import watch_stream
from pyoco_server.client.sans_io import (
    TEMPORARY,
    CloseStream,
    Exchange,
    Item,
    OpenStream,
    Pause,
    ReadStream,
    Reply,
    RequestSteps,
    RetryPolicy,
    SingleRequestSteps,
    Step,
    backoff,
    intercepted,
    received,
    refusal,
    unreachable,
)
from pyoco_server.client.sse import EventReader, ServerEvent
from pyoco_server.core.json_codec import JsonObject

SILENCE_SEC: Final = 20.0
"""The gateway sends heartbeats; a connection on which nothing comes for so long is dead."""
LONGEST_SEC: Final = 600.0
SHORTEST_SEC: Final = 1.0
"""The shortest and the longest time of one connection; a longer watch connects again."""
_MOST_SILENT: Final = 2
"""After so many connections without a single event, the client polls."""
_LASTING_SEC: Final = 5.0
"""A connection that broke sooner counts as broken again."""

Watching = Generator[Step | Item[JsonObject], Any, None]


def has_ended(snapshot: JsonObject) -> bool:
    """Whether the run has ended."""
    return snapshot.get("status") in TERMINAL_RUN


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunWatch:
    """Which run to watch, and for how long."""

    run_id: str
    records: bool = False
    since: float | None = None
    timeout_sec: float | None = None
    until_terminal: bool = True

    def steps(self, policy: RetryPolicy) -> RequestSteps[JsonObject]:
        """Return the steps, with the run's snapshots among them."""
        return _WatchSteps(self, policy).steps()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Which run to wait for, and for how long."""

    run_id: str
    records: bool = True
    timeout_sec: float | None = None

    def steps(self, policy: RetryPolicy) -> SingleRequestSteps[JsonObject]:
        """Watch until the run has ended; WaitTimeoutError if it has not in time."""
        newest: JsonObject | None = None

        def take(snapshot: JsonObject) -> SingleRequestSteps[None]:
            nonlocal newest
            newest = snapshot
            yield from ()

        watch = RunWatch(run_id=self.run_id, records=self.records, timeout_sec=self.timeout_sec)
        yield from intercepted(watch.steps(policy), take)
        if newest is None or not has_ended(newest):
            stands = f", it is {newest.get('status')}" if newest is not None else ""
            raise WaitTimeoutError(f"run {self.run_id} has not ended within {self.timeout_sec:g} s{stands}", newest)
        return newest


def watch(
    run_id: str,
    *,
    records: bool = False,
    since: float | None = None,
    timeout: float | None = None,
    until_terminal: bool = True,
) -> RunWatch:
    """The run's snapshots as it changes: first the newest one, last the one of its end.

    Only those updated after ``since`` (Unix seconds), and no longer than ``timeout`` seconds. Without
    ``until_terminal``, it continues after the end, for example to see the run archived.
    """
    return RunWatch(run_id=run_id, records=records, since=since, timeout_sec=timeout, until_terminal=until_terminal)


def wait(run_id: str, timeout: float | None = None, *, records: bool = True) -> Wait:
    """The last snapshot of a run, once it has ended; WaitTimeoutError if that takes longer than ``timeout`` seconds."""
    return Wait(run_id=run_id, records=records, timeout_sec=timeout)


class _WatchSteps:
    def __init__(self, asked: RunWatch, policy: RetryPolicy) -> None:
        self._asked = asked
        self._policy = policy
        self._ends_at = math.inf if asked.timeout_sec is None else policy.clock() + asked.timeout_sec
        self._newest: JsonObject | None = None
        self._silent = 0
        self._broken = 0
        self._failures = 0
        self._away_since: float | None = None
        self._reached = False

    def steps(self) -> Watching:
        while not self._is_over():
            yield from self._poll() if self._silent >= _MOST_SILENT else self._stream()

    def _is_over(self) -> bool:
        ended = self._newest is not None and has_ended(self._newest)
        return self._left() <= 0 or (ended and self._asked.until_terminal)

    def _left(self) -> float:
        return self._ends_at - self._policy.clock()

    # --- Server-sent events ------------------------------------------------------------------------------------------

    def _stream(self) -> Watching:
        left = self._left()
        call = watch_stream(
            self._asked.run_id,
            records=self._asked.records,
            timeout_sec=min(max(left, SHORTEST_SEC), LONGEST_SEC),
            silence_sec=max(min(left, SILENCE_SEC), 0.001),
        )
        reply: Reply = yield OpenStream(call)
        if isinstance(reply, httpx.RequestError) or reply.status_code in TEMPORARY:
            yield CloseStream()
            yield from self._wait_or_raise(reply)
        elif reply.is_success and reply.headers.get("content-type", "").startswith("text/event-stream"):
            opened_at = self._policy.clock()
            has_events = yield from self._read_events()
            yield CloseStream()
            self._silent = 0 if has_events else self._silent + 1
            lasted = has_events and self._policy.clock() - opened_at > _LASTING_SEC
            self._broken = 1 if lasted else self._broken + 1
            if not self._is_over():
                yield Pause(self._at_most(backoff(self._broken)))
        else:  # a poll shows whether that is an error, or whether only watching does not work
            yield CloseStream()
            self._silent = _MOST_SILENT

    def _read_events(self) -> "Generator[Step | Item[JsonObject], Any, bool]":
        """Read events until the stream ends or the watch is over; return whether there were any."""
        reader = EventReader()
        has_events = False
        while not self._is_over():
            chunk: bytes | httpx.RequestError = yield ReadStream()
            if isinstance(chunk, httpx.RequestError) or not chunk:
                return has_events or self._left() <= 0
            try:
                events = list(reader.feed(chunk))
            except ValueError:
                return has_events
            for event in events:
                found = _snapshot_in(event)
                if found is None and event.name != "heartbeat":
                    continue
                has_events = True
                self._note_answer()
                if found is not None:
                    yield from self._show(found)
                if self._is_over():
                    return True
        return True

    # --- Polling -----------------------------------------------------------------------------------------------------

    def _poll(self) -> Watching:
        call = snapshot_call(self._asked.run_id, "records" if self._asked.records else ())
        reply: Reply = yield Exchange(call)
        if isinstance(reply, httpx.RequestError) or reply.status_code in TEMPORARY:
            yield from self._wait_or_raise(reply)
            return
        found = received(call, reply, self._policy)
        self._note_answer()
        yield from self._show(found)
        if not self._is_over():
            yield Pause(self._at_most(self._policy.poll_sec))

    # --- Both ---------------------------------------------------------------------------------------------------------

    def _show(self, found: JsonObject) -> Watching:
        """Yield a snapshot if it is newer: a connection begins with one that may be known, and gateways may lag."""
        if self._newest is not None and (found == self._newest or _age(found) < _age(self._newest)):
            return
        self._newest = found
        since, updated_at = self._asked.since, found.get("updated_at")
        if since is None or not isinstance(updated_at, int | float) or updated_at > since:
            yield Item(found)

    def _note_answer(self) -> None:
        self._reached, self._failures, self._away_since = True, 0, None

    def _wait_or_raise(self, reply: Reply) -> SingleRequestSteps[None]:
        """Wait before the next attempt; raise the error of this one if the gateway has failed for too long."""
        now = self._policy.clock()
        self._failures += 1
        self._away_since = now if self._away_since is None else self._away_since
        is_late = now - self._away_since > self._policy.reconnect_sec
        if is_late if self._reached else self._failures > self._policy.retries:
            if isinstance(reply, httpx.RequestError):
                raise unreachable(reply, self._policy) from reply
            raise refusal(reply)
        yield Pause(self._at_most(backoff(self._failures, reply)))

    def _at_most(self, seconds: float) -> float:
        return max(min(seconds, self._left()), 0.0)


def _snapshot_in(event: ServerEvent) -> JsonObject | None:
    if event.name != "snapshot":
        return None
    try:
        data = msgspec.json.decode(event.data)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = data.get("snapshot") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else None


def _age(snapshot: JsonObject) -> float:
    """Return what grows with every change of the run."""
    value: Any = snapshot.get("version", snapshot.get("updated_at"))
    return value if isinstance(value, int | float) else math.inf
