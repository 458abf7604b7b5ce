"""One attempt at a task: call its function, and say what came of it."""

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from pyoco_server.app.calling import arguments
from pyoco_server.app.context import TaskContext
from pyoco_server.app.outputs import writable
from pyoco_server.app.ports import Workshop
from pyoco_server.core.wire import JsonObject
from pyoco_server.flows.model import Isolation, TaskSpec

Function = Callable[..., Any]


class Succeeded(msgspec.Struct, frozen=True):
    """The function returned."""

    value: Any


class Failed(msgspec.Struct, frozen=True):
    """The function raised, or took too long."""

    error: JsonObject


class Stopped(msgspec.Struct, frozen=True):
    """The function was stopped because somebody asked for it."""


Outcome = Succeeded | Failed | Stopped


class Attempt:
    """A call in progress. It can be asked to stop, and it can be made to."""

    def __init__(self, task: TaskSpec, function: Function, context: TaskContext, workshop: Workshop) -> None:
        self._task = task
        self._function = function
        self._context = context
        self._workshop = workshop
        self._call: asyncio.Task[Any] | None = None
        self._asked = False

    async def run(self) -> Outcome:
        """Call the function; cancelling this coroutine abandons or kills the call, and raises as usual."""
        try:
            return Succeeded(await self._within_time())
        except asyncio.CancelledError as error:
            if self._is_cancelling_me():
                raise
            return Stopped() if self._asked else Failed(describe(error))
        except TimeoutError as error:
            if self._call is not None and self._call.cancelled():
                message = f"task '{self._task.name}' exceeded its timeout of {self._task.timeout_sec} s"
                return Failed({"code": "TIMEOUT", "message": message})
            return Failed(describe(error))
        except BaseException as error:  # noqa: BLE001 whatever the user's code raises is its failure, not ours
            return Failed(describe(error))

    def ask_to_stop(self) -> None:
        """Let the function see that it should end; a coroutine is cancelled, which it may still clean up after."""
        self._asked = True
        self._context.ask_to_stop()
        if inspect.iscoroutinefunction(self._function) or self._task.isolation is Isolation.PROCESS:
            self.make_stop()  # a process is told, given a moment, and killed

    def make_stop(self) -> None:
        """Give up on the call, whatever it is doing."""
        self._asked = True
        if self._call is not None:
            self._call.cancel()

    async def _within_time(self) -> Any:  # noqa: ANN401 whatever the function returns
        bound = arguments(self._task, self._function, self._context)
        call = self._workshop.call(self._function, bound, isolation=self._task.isolation)
        self._call = asyncio.ensure_future(call)
        return await asyncio.wait_for(self._call, self._task.timeout_sec)

    @staticmethod
    def _is_cancelling_me() -> bool:
        """Is it we who are cancelled, rather than only the call we await?"""
        current = asyncio.current_task()
        return current is not None and current.cancelling() > 0


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    """Where the user's own code begins; our frames above it tell them nothing."""
    ours = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent), str(Path(threading.__file__)))
    inner = frames
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(ours):
        inner = inner.tb_next
    return inner or frames


def describe(error: BaseException) -> JsonObject:
    """What the log keeps of an exception."""
    remote = getattr(error, "remote_traceback", None)
    told = remote or "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    return {"code": type(error).__name__, "message": _text_of(error), "detail": {"traceback": writable(told)}}


def _text_of(error: BaseException) -> str:
    try:
        return writable(str(error))
    except Exception:  # noqa: BLE001 an error that cannot be shown is still an error
        return f"a {type(error).__name__} that cannot be shown"
