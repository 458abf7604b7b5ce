"""One attempt at a task: call its function, and return the outcome.

How long to wait before another attempt: a pure function of the policy, the failures so far, and chance.
"""

import asyncio
import functools
import random
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from pyoco_server.app.ports import TaskExecutor
from pyoco_server.app.ports.task_executor import CallOverdueError, CallWatch
from pyoco_server.app.runtime.argument_binding import arguments, by_position, lost_arguments, refuse_unfit, shape_of
from pyoco_server.app.runtime.argument_loading import ArgumentLostError, LoadingCall, loaded, read_all
from pyoco_server.app.runtime.context import TaskContext
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.errors import TaskInterrupted
from pyoco_server.flows.limits import RUN_TOO_LARGE, RunTooLargeError
from pyoco_server.flows.model import Backoff, BackoffKind, Interrupt, Isolation, TaskSpec
from pyoco_server.texts import LONGEST_TRACE, shortened
from pyoco_server.values.errors import ResultLostError, lost_behind, text_of
from pyoco_server.values.lazy import is_deferred, unread_in

Function = Callable[..., Any]


class Succeeded(msgspec.Struct, frozen=True):
    """The function returned."""

    value: Any


class Failed(msgspec.Struct, frozen=True):
    """The function raised, or took too long."""

    error: JsonObject
    is_final: bool = False
    """Is there no use in another attempt, whatever the task's retries?"""
    unloaded: ResultLostError | None = None
    """The result that could not be loaded for an argument, so that the function was not called."""


class Stopped(msgspec.Struct, frozen=True):
    """The function was stopped because a cancel asked for it."""


Outcome = Succeeded | Failed | Stopped
LONGEST_CODE: Final = 200
"""Characters that are kept of the name of an exception's class."""
RESULT_LOST: Final = "RESULT_LOST"
"""The code of a node that failed because it needed a result that is lost."""


Aside = Callable[[Callable[[], JsonObject]], Awaitable[JsonObject]]


async def here(call: Callable[[], JsonObject]) -> JsonObject:
    """Make a call where it is awaited."""
    return call()


class TaskCall:
    """A call in progress. It can be asked to stop, and it can be made to.

    Use once; ``run`` may be repeated while an argument cannot be loaded, since the function was not called.
    """

    def __init__(
        self, task: TaskSpec, function: Function, context: TaskContext, executor: TaskExecutor, aside: Aside = here
    ) -> None:
        """``aside`` runs code of users that is not the task's function, such as the one that writes an error's text."""
        self._task = task
        self._function = function
        self._context = context
        self._executor = executor
        self._aside = aside
        self._watch = CallWatch(context.shield(), task.interrupt)
        """Of the newest use of the executor."""
        self._runner: asyncio.Task[Any] | None = None
        self._cancels = 0
        self._asked = False
        self._abandoned = False

    async def run(self) -> Outcome:
        """Call the function; cancelling this coroutine abandons or kills the call, and raises as usual.

        The call has no task of its own: to abandon it, the task that runs this is cancelled, and our own cancels are
        retracted here, as ``asyncio.timeout`` does it.
        """
        if self._abandoned:
            return Stopped()
        runner = asyncio.current_task()
        if runner is None:
            raise RuntimeError("an attempt runs in an asyncio task")
        self._runner, cancels_before = runner, runner.cancelling()
        try:
            return await self._outcome()
        except asyncio.CancelledError as error:
            if runner.cancelling() > cancels_before + self._cancels:
                raise
            return Stopped() if self._asked else Failed(describe(error))
        finally:
            self._runner = None
            self._context.fall_silent()
            for _ in range(self._cancels):
                runner.uncancel()

    async def _outcome(self) -> Outcome:
        try:
            return Succeeded(await self._call())
        except asyncio.CancelledError:
            raise
        except CallOverdueError:
            message = f"task '{self._task.name}' exceeded its timeout of {self._task.timeout_sec} s"
            return Failed({"code": "TIMEOUT", "message": message})
        except ArgumentLostError as error:
            return Stopped() if self._asked else Failed(describe(error), is_final=True, unloaded=error)
        except ResultLostError as error:
            return Failed(describe(error), is_final=True)
        except TaskInterrupted as error:
            return Stopped() if self._asked else Failed(describe(error))
        except BaseException as error:  # noqa: BLE001 whatever the user's code raises is its failure, not ours
            return Failed(await self._aside(functools.partial(describe, error)))

    def ask_to_stop(self) -> None:
        """Interrupt the function: it may still clean up. One that only wants the flag sees no more than that.

        A function that waits for a slot is abandoned. A process is asked, given a moment, and killed.
        """
        self._asked = True
        self._context.ask_to_stop()
        is_killed = self._task.isolation is Isolation.PROCESS and self._task.interrupt is Interrupt.RAISE
        if is_killed or not (self._watch.begun or self._watch.interrupt):
            self.make_stop()
        else:
            self._watch.ask_to_stop()

    def make_stop(self) -> None:
        """Abandon the call, whatever it is doing; one that has not begun never does."""
        self._asked = self._abandoned = True
        if self._runner is not None:
            self._cancels += 1
            self._runner.cancel()

    @property
    def takes_context(self) -> bool:
        """Does the function take ``ctx``, through which it can read any result?"""
        return shape_of(self._function).wants_context

    def arguments(self) -> dict[str, Any]:
        """What is known for the function, by name, deferred values unread; ResultLostError if one is lost."""
        try:
            return arguments(self._task, self._function, self._context)
        except Exception as error:
            lost = lost_behind(error)
            if lost is None:
                raise
            raise lost from None

    def lost_arguments(self) -> list[str]:
        """Return the nodes whose lost results are among the arguments."""
        lost = lost_arguments(self._task, self._function, self._context)
        return [value.node_id for value in lost if value.node_id is not None]

    async def _call(self) -> Any:  # noqa: ANN401 whatever the function returns
        refuse_unfit(self._task, self._function)
        args, kwargs = by_position(self._function, self.arguments())
        is_deferring = any(is_deferred(value) for value in (*args, *kwargs.values()))
        is_in_process = self._task.isolation is Isolation.PROCESS
        if is_in_process or not shape_of(self._function).is_async:
            call = LoadingCall(self._function) if is_deferring else self._function
            return await self._execute(call, args, kwargs, self._task.isolation)
        if is_deferring:  # a coroutine function is called on the event loop
            load = functools.partial(loaded, args, kwargs, LoadingCall.load)
            args, kwargs = await self._execute(load, (), {}, Isolation.THREAD)
        if self.takes_context and (unread := [*unread_in(self._context.shared())]):
            await self._execute(functools.partial(read_all, unread), (), {}, Isolation.THREAD)
        return await self._execute(self._function, args, kwargs, self._task.isolation)

    async def _execute(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], isolation: Isolation
    ) -> Any:  # noqa: ANN401 whatever the function returns
        if self._asked and self._watch.begun:  # while the arguments were loaded
            raise asyncio.CancelledError
        self._watch = CallWatch(self._context.shield(), self._task.interrupt)
        return await self._executor.call(
            function,
            kwargs,
            isolation=isolation,
            args=args,
            timeout_sec=self._task.timeout_sec,
            watch=self._watch,
        )


_OURS = (str(Path(__file__).parents[2]), str(Path(asyncio.__file__).parent), str(Path(threading.__file__)))
"""The files of the frames above the user's code."""


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames from the user's own code on; ours above it say nothing to the user."""
    inner = frames
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OURS):
        inner = inner.tb_next
    return inner or frames


def describe(error: BaseException) -> JsonObject:
    """Return what the log keeps of an exception; of errors of our own that users cause, it needs no traceback.

    Runs code of users, which writes the text.
    """
    if isinstance(error, ResultLostError):
        detail = {"task": error.task, "nodeId": error.node_id}
        return {"code": RESULT_LOST, "message": text_of(error), "detail": detail}
    if isinstance(error, RunTooLargeError):
        return {"code": RUN_TOO_LARGE, "message": text_of(error), "detail": {}}
    remote = getattr(error, "remote_traceback", None)
    text = remote or "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    code = shortened(type(error).__name__, LONGEST_CODE)
    return {"code": code, "message": text_of(error), "detail": {"traceback": shortened(text, LONGEST_TRACE)}}


def internal_error(error: BaseException) -> JsonObject:
    """Return what the log keeps of an error of this package."""
    said = describe(error)
    message = f"pyoco-server failed at this node, not the function of its task: {said['code']}: {said['message']}"
    return {**said, "code": "INTERNAL_ERROR", "message": message}


def pause(backoff: Backoff, failures: int, chance: random.Random) -> float:
    """Seconds until the next attempt, after ``failures`` of them."""
    grown = backoff.delay_sec
    if backoff.kind is BackoffKind.EXPONENTIAL:
        # The exponent is bounded so that a very patient flow does not overflow a float on its way to the cap.
        grown *= backoff.factor ** min(failures - 1, 1_000 if backoff.factor <= 1 else 200)
    capped = min(grown, backoff.cap_sec)
    return capped * (1 - backoff.jitter * chance.random())
