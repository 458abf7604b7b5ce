"""A process that was away must not begin what it meant to begin before it was.

Between the commit that begins an attempt and the first line of its function a process can be stopped for any time: by a
signal, a debugger, the lid of a laptop. Meanwhile the job goes to another worker, and the node may succeed there. So a
function is called only shortly after the commit; whoever comes late reads the log first, and calls the function only if
the attempt is still the newest. This is asked where the function is called, in its thread or process: a look before it
is handed over would leave a gap of its own. And a look is as old as anything else by the time the function is called:
whoever was away since looks again.

Whoever takes over does their part: they wait, after the commit that says so, until those who looked before it have
called the function or are late. So nobody calls it when another has succeeded already. What is left is a process that
is stopped just between its look at the clock and the function's first line: nobody but the function could notice that.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from typing_extensions import override

from pyoco_server.app.calling import shape_of
from pyoco_server.app.execution import Execution
from pyoco_server.app.ports import UnavailableError, Workshop
from pyoco_server.app.ports.engine import Watch
from pyoco_server.core import Event, ExecutionState
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import Isolation

_PATIENCE_SEC: Final = 60.0
"""How long a thread waits for the event loop to have read the log."""

_PAUSE: Final = 2.5
"""Times what is late: where everything is slow, whoever is in time may take a moment to come from there to the call."""

_STRICT_LOOKS: Final = 5
"""Where everything is slow, even those who hurry are late: after so many looks they may be a little later each time."""

_LENIENCE: Final = timedelta(seconds=0.1)
"""How much later at first; then twice as much with every look, so that a look is young enough in the end."""


class TooLateError(PyocoServerError):
    """The attempt is over before its function was called."""


class Deadline:
    """When it is too late, as far as is known; in seconds since the epoch, by the clock all processes here share."""

    def __init__(self, latest: float) -> None:
        self.latest = latest


class InTime(functools.partial[Any]):
    """A function that refuses to be called too late; it can be sent to another process."""

    deadline: Deadline

    @override
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or raise TooLateError."""
        if time.time() > self.deadline.latest:
            raise TooLateError("it is too late to begin")
        return super().__call__(*args, **kwargs)

    @classmethod
    def make(cls, function: Callable[..., Any], deadline: Deadline) -> "InTime":
        """One that keeps to the deadline as it is when it is sent."""
        made = cls(function)
        made.deadline = deadline
        return made


class Begun(NamedTuple):
    """An attempt this process has begun."""

    attempt: int
    at: datetime


class Fencing:
    """Takes note of which attempts this process began when, and of when it last looked at the log.

    A look tells of all attempts: when a thousand come late at once, one of them looks for all.
    """

    def __init__(self, execution: Execution, worker_id: str, *, late_sec: float) -> None:
        """``late_sec``: less than anybody waits before they take over."""
        self.execution = execution
        self.late = timedelta(seconds=late_sec)
        self.begun: dict[str, Begun] = {}
        self.looked_at: datetime | None = None
        self._looking: asyncio.Task[None] | None = None
        self._worker_id = worker_id
        execution.subscribe(self._listen)

    async def until_others_are_late(self) -> None:
        """Wait, behind our commit, until nobody can act any more on what they read before it."""
        await self.execution.clock.sleep(_PAUSE * self.late.total_seconds())

    async def look(self) -> None:
        """Read what is new in the log; those who want to at the same time share it."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name=f"{self.execution.execution_id} fence")
            self._looking.add_done_callback(_seen)
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        asked_at = self.execution.clock.now()
        await self.execution.load()
        self.looked_at = asked_at

    def _listen(self, events: Sequence[Event], _state: ExecutionState) -> None:
        for event in events:
            payload = event.payload
            if type(payload) is NodeStarted and payload.worker_id == self._worker_id:
                self.begun[payload.node_id] = Begun(payload.attempt, event.occurred_at)  # worked out before it was sent


class Fence:
    """A workshop for one attempt, which calls the function in time or not at all."""

    def __init__(self, workshop: Workshop, fencing: Fencing, node_id: str, *, needing: str | None = None) -> None:
        """``needing``: the node for which the result of ``node_id``, which has succeeded, is computed again."""
        self.problem: PyocoServerError | None = None
        """Why the function was not called, if it was not."""
        self.attempt = fencing.begun[node_id].attempt
        self._workshop = workshop
        self._fencing = fencing
        self._execution = fencing.execution
        self._node_id = node_id
        self._known_at = fencing.begun[node_id].at
        self._needing = None if needing is None else self._execution.state.nodes[needing]
        self._looks = 0

    async def call(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: Watch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs, if it is not too late."""
        call = functools.partial(
            self._workshop.call, kwargs=kwargs, isolation=isolation, args=args, timeout_sec=timeout_sec
        )
        if isolation is not Isolation.PROCESS:
            return await call(self._in_time(function), watch=watch)
        deadline, watch = Deadline(0.0), watch or Watch()
        while True:  # a process is not stopped when we are, and has no log to look at: it comes back to us
            watch.at_place = functools.partial(self._look_and_set, deadline)
            try:
                return await call(InTime.make(function, deadline), watch=watch)
            except TooLateError:
                if self.problem is not None:
                    raise
                watch = Watch()  # the other one has seen a beginning

    async def close(self) -> None:
        """Nothing to let go of: the places are another's."""

    def _in_time(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._awaited(function) if shape_of(function).is_async else self._called(function)

    def _awaited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 as the function
            await self._look_if_late()
            return await function(*args, **kwargs)

        return awaited

    def _called(self, function: Callable[..., Any]) -> Callable[..., Any]:
        loop = asyncio.get_running_loop()

        def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 as the function
            while self._is_late():  # also after a look: the whole process may have been away before we heard of it
                self._look_from_thread(loop)
            return function(*args, **kwargs)

        return called

    async def _look_and_set(self, deadline: Deadline) -> None:
        await self._look_if_late()
        now = time.time()  # before anything else: should we be stopped here, it is late there
        deadline.latest = now + (self._allowed() - self._age()).total_seconds()

    def _is_late(self) -> bool:
        return self._age() > self._allowed()

    def _age(self) -> timedelta:
        """How long ago the attempt was known to be the newest."""
        return self._execution.clock.now() - self._known_at

    def _allowed(self) -> timedelta:
        """How old what we know may be when the function is called."""
        if self._looks < _STRICT_LOOKS:
            return self._fencing.late
        return self._fencing.late + _LENIENCE * (1 << self._looks - _STRICT_LOOKS)

    def _look_from_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        looking = asyncio.run_coroutine_threadsafe(self._look_if_late(), loop)
        try:
            looking.result(_PATIENCE_SEC)
        except TimeoutError as error:
            looking.cancel()
            self.problem = UnavailableError(f"the log was not read for {_PATIENCE_SEC} s")
            raise self.problem from error

    async def _look_if_late(self) -> None:
        """Make sure that the attempt is the newest; raises if it is not, or if nobody can say."""
        try:
            while self._is_late():  # one can be away while one looks, too
                if not self._has_been_looked():
                    await self._fencing.look()
                self._looks += 1
                self._check_is_newest()
        except PyocoServerError as error:
            self.problem = error
            raise

    def _has_been_looked(self) -> bool:
        """Has somebody looked at the log lately, for another attempt of the run?"""
        looked_at = self._fencing.looked_at
        return looked_at is not None and self._execution.clock.now() - looked_at <= self._allowed()

    def _check_is_newest(self) -> None:
        self._known_at = self._fencing.looked_at or self._known_at
        node, needing = self._execution.state.nodes[self._node_id], self._needing
        is_over = node.is_terminal
        if needing is not None:  # the node itself has succeeded: it is the other that must still be ours
            now = self._execution.state.nodes[needing.node_id]
            is_over = now.attempt != needing.attempt or now.is_terminal
        if node.attempt != self.attempt or is_over:
            raise TooLateError(f"attempt {self.attempt} of '{self._node_id}' is over")


def _seen(task: asyncio.Task[None]) -> None:
    """Those who shared it were told how it ended; there may be none left of them."""
    if not task.cancelled():
        task.exception()
