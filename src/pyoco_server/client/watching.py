"""Watching a run and waiting for its end, whatever happens to the connection on the way.

Snapshots come as server-sent events. A connection that breaks is opened again, and begins with the newest snapshot, so
nothing final can be missed. Where events do not come through (a proxy that holds them back, a limit that is reached)
the run is looked at again and again instead.
"""

import dataclasses
import math
from collections.abc import Generator
from typing import Any, Final

import httpx
import msgspec

from pyoco_server.app.statuses import TERMINAL_RUN
from pyoco_server.client.call import refusal
from pyoco_server.client.calls import snapshot as snapshot_call
from pyoco_server.client.calls import watch_stream
from pyoco_server.client.errors import WaitTimeoutError
from pyoco_server.client.event_reader import EventReader, ServerEvent
from pyoco_server.client.steps import (
    TEMPORARY,
    Exchange,
    Flow,
    HangUp,
    Hear,
    Item,
    Listen,
    Manner,
    Pause,
    Reply,
    Step,
    Walk,
    backoff,
    intercepted,
    received,
    unreachable,
)
from pyoco_server.core.wire import JsonObject

SILENCE_SEC: Final = 20.0
"""The gateway sends heartbeats; a connection on which nothing comes for so long is dead."""
LONGEST_SEC: Final = 600.0
SHORTEST_SEC: Final = 1.0
"""How long a gateway lets one connection watch; who watches longer connects again."""
_DEAF: Final = 2
"""After so many connections without a single event there is no use in a further one."""
_LASTING_SEC: Final = 5.0
"""A connection that broke sooner is one that may break again."""

Watching = Generator[Step | Item[JsonObject], Any, None]


def has_ended(snapshot: JsonObject) -> bool:
    """Is the run over?"""
    return snapshot.get("status") in TERMINAL_RUN


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Which run to watch, and for how long."""

    run_id: str
    records: bool = False
    since: float | None = None
    timeout_sec: float | None = None
    until_terminal: bool = True

    def walk(self, manner: Manner) -> Walk[JsonObject]:
        """The run's snapshots."""
        return _Watcher(self, manner).walk()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Which run to wait for, and for how long."""

    run_id: str
    records: bool = True
    timeout_sec: float | None = None

    def flow(self, manner: Manner) -> Flow[JsonObject]:
        """Watch until it has ended; WaitTimeoutError if it has not by then."""
        newest: JsonObject | None = None

        def take(snapshot: JsonObject) -> Flow[None]:
            nonlocal newest
            newest = snapshot
            yield from ()

        watch = Watch(run_id=self.run_id, records=self.records, timeout_sec=self.timeout_sec)
        yield from intercepted(watch.walk(manner), take)
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
) -> Watch:
    """The run's snapshots as it changes: first how it stands now, last how it ended.

    Only those updated after ``since`` (Unix seconds), and no longer than ``timeout`` seconds. Without
    ``until_terminal`` it goes on after the end, for example to see the run archived.
    """
    return Watch(run_id=run_id, records=records, since=since, timeout_sec=timeout, until_terminal=until_terminal)


def wait(run_id: str, timeout: float | None = None, *, records: bool = True) -> Wait:
    """The last snapshot of a run, once it has ended; WaitTimeoutError if that takes longer than ``timeout`` seconds."""
    return Wait(run_id=run_id, records=records, timeout_sec=timeout)


class _Watcher:
    def __init__(self, asked: Watch, manner: Manner) -> None:
        self._asked = asked
        self._manner = manner
        self._ends_at = math.inf if asked.timeout_sec is None else manner.clock() + asked.timeout_sec
        self._newest: JsonObject | None = None
        self._deaf = 0
        self._broken = 0
        self._failures = 0
        self._away_since: float | None = None
        self._reached = False

    def walk(self) -> Watching:
        while not self._is_over():
            yield from self._poll() if self._deaf >= _DEAF else self._listen()

    def _is_over(self) -> bool:
        ended = self._newest is not None and has_ended(self._newest)
        return self._left() <= 0 or (ended and self._asked.until_terminal)

    def _left(self) -> float:
        return self._ends_at - self._manner.clock()

    # --- Server-sent events ------------------------------------------------------------------------------------------

    def _listen(self) -> Watching:
        left = self._left()
        call = watch_stream(
            self._asked.run_id,
            records=self._asked.records,
            timeout_sec=min(max(left, SHORTEST_SEC), LONGEST_SEC),
            silence_sec=max(min(left, SILENCE_SEC), 0.001),
        )
        reply: Reply = yield Listen(call)
        if isinstance(reply, httpx.RequestError) or reply.status_code in TEMPORARY:
            yield HangUp()
            yield from self._bear_with(reply)
        elif reply.is_success and reply.headers.get("content-type", "").startswith("text/event-stream"):
            opened_at = self._manner.clock()
            heard = yield from self._hear()
            yield HangUp()
            self._deaf = 0 if heard else self._deaf + 1
            lasted = heard and self._manner.clock() - opened_at > _LASTING_SEC
            self._broken = 1 if lasted else self._broken + 1
            if not self._is_over():
                yield Pause(self._at_most(backoff(self._broken)))
        else:  # looking at the run tells whether that is an error, or whether only watching does not work
            yield HangUp()
            self._deaf = _DEAF

    def _hear(self) -> "Generator[Step | Item[JsonObject], Any, bool]":
        """Read events until they end or are enough; was there any?"""
        reader = EventReader()
        heard = False
        while not self._is_over():
            chunk: bytes | httpx.RequestError = yield Hear()
            if isinstance(chunk, httpx.RequestError) or not chunk:
                return heard or self._left() <= 0
            try:
                events = list(reader.feed(chunk))
            except ValueError:
                return heard
            for event in events:
                found = _snapshot_in(event)
                if found is None and event.name != "heartbeat":
                    continue
                heard = True
                self._is_back()
                if found is not None:
                    yield from self._show(found)
                if self._is_over():
                    return True
        return True

    # --- Looking again and again -------------------------------------------------------------------------------------

    def _poll(self) -> Watching:
        call = snapshot_call(self._asked.run_id, "records" if self._asked.records else ())
        reply: Reply = yield Exchange(call)
        if isinstance(reply, httpx.RequestError) or reply.status_code in TEMPORARY:
            yield from self._bear_with(reply)
            return
        found = received(call, reply, self._manner)
        self._is_back()
        yield from self._show(found)
        if not self._is_over():
            yield Pause(self._at_most(self._manner.poll_sec))

    # --- What both share ---------------------------------------------------------------------------------------------

    def _show(self, found: JsonObject) -> Watching:
        """Hand it on if it is news: each connection begins with what may have been seen, and gateways may lag."""
        if self._newest is not None and (found == self._newest or _age(found) < _age(self._newest)):
            return
        self._newest = found
        since, updated_at = self._asked.since, found.get("updated_at")
        if since is None or not isinstance(updated_at, int | float) or updated_at > since:
            yield Item(found)

    def _is_back(self) -> None:
        self._reached, self._failures, self._away_since = True, 0, None

    def _bear_with(self, reply: Reply) -> Flow[None]:
        """Wait a little; raise what came if there is no use in it."""
        now = self._manner.clock()
        self._failures += 1
        self._away_since = now if self._away_since is None else self._away_since
        spent = now - self._away_since > self._manner.reconnect_sec
        if spent if self._reached else self._failures > self._manner.retries:
            if isinstance(reply, httpx.RequestError):
                raise unreachable(reply, self._manner) from reply
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
    """Grows with what happens to the run."""
    value: Any = snapshot.get("version", snapshot.get("updated_at"))
    return value if isinstance(value, int | float) else math.inf
