"""One attempt at a task: call its function, and say what came of it."""

import asyncio
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from pyoco_server.app.calling import arguments, by_position, lost_arguments, refuse_unfit, shape_of
from pyoco_server.app.context import TaskContext
from pyoco_server.app.outputs import writable
from pyoco_server.app.ports import Workshop
from pyoco_server.app.ports.engine import CallOverdueError, Watch
from pyoco_server.core.wire import JsonObject
from pyoco_server.errors import TaskInterrupted
from pyoco_server.flows.model import Interrupt, Isolation, TaskSpec
from pyoco_server.values.errors import ResultLostError, lost_behind

Function = Callable[..., Any]


class Succeeded(msgspec.Struct, frozen=True):
    """The function returned."""

    value: Any


class Failed(msgspec.Struct, frozen=True):
    """The function raised, or took too long."""

    error: JsonObject
    is_final: bool = False
    """Is there no use in another attempt, whatever the task's retries?"""


class Stopped(msgspec.Struct, frozen=True):
    """The function was stopped because somebody asked for it."""


Outcome = Succeeded | Failed | Stopped
RESULT_LOST: Final = "RESULT_LOST"
"""The code of a node that failed because it needed a result that is lost."""


class Attempt:
    """A call in progress. It can be asked to stop, and it can be made to. Use once."""

    def __init__(self, task: TaskSpec, function: Function, context: TaskContext, workshop: Workshop) -> None:
        self._task = task
        self._function = function
        self._context = context
        self._workshop = workshop
        self._watch = Watch(context.shield(), task.interrupt)
        self._runner: asyncio.Task[Any] | None = None
        self._cancels = 0
        self._asked = False
        self._given_up = False

    async def run(self) -> Outcome:
        """Call the function; cancelling this coroutine abandons or kills the call, and raises as usual.

        The call has no task of its own: to give up on it, the task that runs this is cancelled, and what of that is our
        own doing is taken back here, as ``asyncio.timeout`` does it.
        """
        if self._given_up:
            return Stopped()
        runner = asyncio.current_task()
        if runner is None:
            raise RuntimeError("an attempt runs in an asyncio task")
        self._runner, cancels_before = runner, runner.cancelling()
        try:
            return Succeeded(await self._call())
        except asyncio.CancelledError as error:
            if runner.cancelling() > cancels_before + self._cancels:
                raise
            return Stopped() if self._asked else Failed(describe(error))
        except CallOverdueError:
            message = f"task '{self._task.name}' exceeded its timeout of {self._task.timeout_sec} s"
            return Failed({"code": "TIMEOUT", "message": message})
        except ResultLostError as error:
            return Failed(describe(error), is_final=True)
        except TaskInterrupted as error:
            return Stopped() if self._asked else Failed(describe(error))
        except BaseException as error:  # noqa: BLE001 whatever the user's code raises is its failure, not ours
            return Failed(describe(error))
        finally:
            self._runner = None
            self._context.fall_silent()
            for _ in range(self._cancels):
                runner.uncancel()

    def ask_to_stop(self) -> None:
        """Interrupt the function: it may still clean up. One that only wants the flag sees no more than that.

        A function that waits for a place is given up on. A process is told, given a moment, and killed.
        """
        self._asked = True
        self._context.ask_to_stop()
        is_killed = self._task.isolation is Isolation.PROCESS and self._task.interrupt is Interrupt.RAISE
        if is_killed or not (self._watch.begun or self._watch.interrupt):
            self.make_stop()
        else:
            self._watch.ask_to_stop()

    def make_stop(self) -> None:
        """Give up on the call, whatever it is doing; one that has not begun never does."""
        self._asked = self._given_up = True
        if self._runner is not None:
            self._cancels += 1
            self._runner.cancel()

    @property
    def takes_context(self) -> bool:
        """Does the function take ``ctx``, through which it can read any result?"""
        return shape_of(self._function).wants_context

    def arguments(self) -> dict[str, Any]:
        """What is known for the function, by name; ResultLostError if a result among it is lost."""
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
        return [error.node_id for error in lost if error.node_id is not None]

    async def _call(self) -> Any:  # noqa: ANN401 whatever the function returns
        refuse_unfit(self._task, self._function)
        args, kwargs = by_position(self._function, self.arguments())
        return await self._workshop.call(
            self._function,
            kwargs,
            isolation=self._task.isolation,
            args=args,
            timeout_sec=self._task.timeout_sec,
            watch=self._watch,
        )


_OURS = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent), str(Path(threading.__file__)))
"""Where the frames above the user's code are."""


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    """Where the user's own code begins; our frames above it tell them nothing."""
    inner = frames
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OURS):
        inner = inner.tb_next
    return inner or frames


def describe(error: BaseException) -> JsonObject:
    """What the log keeps of an exception. A lost result is our own error, and says all there is to say by itself."""
    if isinstance(error, ResultLostError):
        detail = {"task": error.task, "nodeId": error.node_id}
        return {"code": RESULT_LOST, "message": _text_of(error), "detail": detail}
    remote = getattr(error, "remote_traceback", None)
    told = remote or "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    return {"code": type(error).__name__, "message": _text_of(error), "detail": {"traceback": writable(told)}}


def internal_error(error: BaseException) -> JsonObject:
    """What the log keeps of an error of this package."""
    said = describe(error)
    message = f"pyoco-server failed at this node, not the function of its task: {said['code']}: {said['message']}"
    return {**said, "code": "INTERNAL_ERROR", "message": message}


def _text_of(error: BaseException) -> str:
    try:
        return writable(str(error))
    except Exception:  # noqa: BLE001 an error that cannot be shown is still an error
        return f"a {type(error).__name__} that cannot be shown"
