"""A process that was paused must not start a task on a decision it made before the pause.

Between the commit that starts an attempt and the first line of its function a process can be paused for any time: by a
signal, a debugger, a closed laptop. Meanwhile the queue gives the job to another worker, and the node may succeed
there. So a function is called only shortly after the commit. A late call reads the log first, and happens only if the
attempt is still the newest. The check is made where the function is called, in its thread or process, since a check
before it is sent there would leave a gap. A check is made again if it is too old by the time of the call.

The process that takes over does its part: after the commit that starts its attempt, it waits until a process that read
the log before that commit has called the function or is late. So no process calls the function when another has
succeeded already. What remains is a process that is paused between its look at the clock and the function's first line:
only the function itself could notice that.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from pyoco_server.app.ports import TaskExecutor, UnavailableError
from pyoco_server.app.ports.task_executor import CallWatch
from pyoco_server.app.runtime.argument_binding import shape_of
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.core import Event, ExecutionState
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.errors import PyocoServerError
from pyoco_server.flows.model import Isolation

_PATIENCE_SEC: Final = 60.0
"""How long a thread waits for the event loop to have read the log."""

_PAUSE: Final = 2.5
"""How long a takeover waits, in multiples of ``late``: on a slow machine, a call in time may still take a moment."""

_STRICT_LOOKS: Final = 5
"""After so many checks that were too old by the time of the call, a check may be a little older each time."""

_LENIENCE: Final = timedelta(seconds=0.1)
"""How much older at first, then twice as much with every check: where a read takes seconds, few checks are enough."""

T = TypeVar("T")


class TooLateError(PyocoServerError):
    """The attempt is over before its function was called."""


class StartDeadline:
    """The latest time for the call, in seconds since the epoch by the clock that all processes here share."""

    def __init__(self, latest: float) -> None:
        self.latest = latest


class DeadlineCall(functools.partial[Any]):
    """A function that refuses to be called too late; it can be sent to another process."""

    deadline: StartDeadline

    @override
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or raise TooLateError."""
        if time.time() > self.deadline.latest:
            raise TooLateError("it is too late to begin")
        return super().__call__(*args, **kwargs)

    @classmethod
    def make(cls, function: Callable[..., Any], deadline: StartDeadline) -> "DeadlineCall":
        """Make a call that keeps to the deadline as it is when the call is sent."""
        made = cls(function)
        made.deadline = deadline
        return made


class StartedAttempt(NamedTuple):
    """An attempt that this process has started."""

    attempt: int
    at: datetime


class StartFence:
    """Remembers which attempts this process started when, and when it last read the log.

    One read serves all attempts: when a thousand calls are late at once, one of them reads for all.
    """

    def __init__(self, execution: Execution, worker_mark: str, *, late_sec: float) -> None:
        """``late_sec``: less than any process waits before it takes over a run."""
        self.execution = execution
        self.late = timedelta(seconds=late_sec)
        self.begun: dict[str, StartedAttempt] = {}
        self.looked_at: datetime | None = None
        self._looking: asyncio.Task[None] | None = None
        self._worker_mark = worker_mark
        execution.subscribe(self._listen)

    async def until_others_are_late(self) -> None:
        """Wait, after our commit, until no process can act any more on what it read before the commit."""
        await self.execution.clock.sleep(_PAUSE * self.late.total_seconds())

    async def look(self) -> None:
        """Read what is new in the log; calls at the same time share one read."""
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
            if type(payload) is NodeStarted and payload.worker_id == self._worker_mark:
                # The event's time: the decision was made then, before the event was sent.
                self.begun[payload.node_id] = StartedAttempt(payload.attempt, event.occurred_at)


class FencedExecutor:
    """An executor for one attempt, which calls the function in time or not at all."""

    def __init__(
        self, executor: TaskExecutor, fencing: StartFence, node_id: str, *, needing: str | None = None
    ) -> None:
        """``needing``: the node for which the result of ``node_id``, which has succeeded, is computed again."""
        self.problem: PyocoServerError | None = None
        """Why the function was not called, if it was not."""
        self.attempt = fencing.begun[node_id].attempt
        self._executor = executor
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
        watch: CallWatch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function where it belongs, if it is not too late."""
        call = functools.partial(
            self._executor.call, kwargs=kwargs, isolation=isolation, args=args, timeout_sec=timeout_sec
        )
        if isolation is not Isolation.PROCESS:
            return await call(self._in_time(function), watch=watch)
        deadline, watch = StartDeadline(0.0), watch or CallWatch()
        while True:  # a task process runs on while we are paused, and cannot read the log: it returns the call to us
            watch.at_place = functools.partial(self._look_and_set, deadline)
            try:
                return await call(DeadlineCall.make(function, deadline), watch=watch)
            except TooLateError:
                if self.problem is not None:
                    raise
                watch = CallWatch()  # the other one was used by the refused call

    async def aside(self, call: Callable[[], T]) -> T:
        """Make a call that is no task's."""
        return await self._executor.aside(call)

    async def close(self) -> None:
        """Do nothing: the executor behind this one is closed by its owner."""

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
            while self._is_late():  # also after a read: the whole process may have been paused before its answer came
                self._look_from_thread(loop)
            return function(*args, **kwargs)

        return called

    async def _look_and_set(self, deadline: StartDeadline) -> None:
        await self._look_if_late()
        now = time.time()  # first of all: should we be paused here, the call is late in the task process
        deadline.latest = now + (self._allowed() - self._age()).total_seconds()

    def _is_late(self) -> bool:
        return self._age() > self._allowed()

    def _age(self) -> timedelta:
        """How long ago the attempt was known to be the newest."""
        return self._execution.clock.now() - self._known_at

    def _allowed(self) -> timedelta:
        """How old our knowledge may be when the function is called."""
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
        """Make sure that the attempt is the newest; raises if it is not, or if the log cannot be read."""
        try:
            while self._is_late():  # the process can be paused during the read, too
                if not self._was_read_lately():
                    await self._fencing.look()
                self._looks += 1
                self._check_is_newest()
        except PyocoServerError as error:
            self.problem = error
            raise

    def _was_read_lately(self) -> bool:
        """Was the log read lately, for another attempt of the run?"""
        looked_at = self._fencing.looked_at
        return looked_at is not None and self._execution.clock.now() - looked_at <= self._allowed()

    def _check_is_newest(self) -> None:
        self._known_at = self._fencing.looked_at or self._known_at
        node, needing = self._execution.state.nodes[self._node_id], self._needing
        is_over = node.is_terminal
        if needing is not None:  # the node itself has succeeded: the other one must still be ours
            now = self._execution.state.nodes[needing.node_id]
            is_over = now.attempt != needing.attempt or now.is_terminal
        if node.attempt != self.attempt or is_over:
            raise TooLateError(f"attempt {self.attempt} of '{self._node_id}' is over")


def _seen(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a shared read: its callers got it, and all of them may have been cancelled."""
    if not task.cancelled():
        task.exception()
