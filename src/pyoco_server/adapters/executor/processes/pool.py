"""User functions in a bounded number of child processes, which can be killed.

A child runs one call at a time and is kept for the next ones. When the task that waits for a call is cancelled, the
function is asked to stop (``child_control().is_cancelled``). If it does not stop in time, its process is killed. The
task gets its cancellation only when the process is gone.

Each child that is not idle holds a slot until it is idle again or gone.
"""

import asyncio
import contextlib
import functools
import pickle
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from pyoco_server.adapters.executor.errors import (
    MessageTooLargeError,
    ProcessDiedError,
    RemoteError,
    RemoteTraceback,
    SlotsClosedError,
    fit_to_raise,
)
from pyoco_server.adapters.executor.messages import OnMessage, load_plain
from pyoco_server.adapters.executor.processes.child import Setup
from pyoco_server.adapters.executor.processes.child_handle import Answer, ChildHandle, start_child
from pyoco_server.adapters.executor.processes.errors_in_transit import load_error
from pyoco_server.adapters.executor.processes.frames import Kind
from pyoco_server.adapters.executor.processes.main_module import describe_main
from pyoco_server.adapters.executor.processes.packing import load_result, pack_call, refused
from pyoco_server.adapters.executor.slots import FairSlots
from pyoco_server.adapters.executor.threads import ThreadSlots

T = TypeVar("T")

_SMALL = 65_536
"""Bytes of a result of Python's own types that is loaded at once."""

_PLAIN = frozenset({type(None), bool, int, float})
_TEXTS = frozenset({str, bytes})

MAX_MESSAGE_BYTES = 256 * 1024 * 1024


class ProcessSlots:
    """Runs functions in at most ``limit`` child processes. Belongs to one event loop; must be closed.

    Children are started when needed and reused; up to ``keep_warm`` (default: all) stay when there is no work.
    Nothing larger than ``max_message_bytes`` is sent in either direction.
    """

    def __init__(self, limit: int, *, keep_warm: int | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        if keep_warm is not None and keep_warm < 0:
            raise ValueError(f"keep_warm must be at least 0, not {keep_warm}")
        self._slots = FairSlots(limit)
        self._aside = ThreadSlots(2 * limit, name="pyoco-task-pickle")
        """Calls and results are pickled and loaded here, not on the event loop: that runs code of users."""
        self._keep_warm = limit if keep_warm is None else keep_warm
        self._max_message_bytes = max_message_bytes
        self._idle: list[ChildHandle] = []
        self._busy: set[ChildHandle] = set()
        self._finisher: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> frozenset[int]:
        """The process ids of the children that run or are warm."""
        return frozenset(child.pid for child in (*self._idle, *self._busy))

    @property
    def running(self) -> int:
        """How many slots are taken."""
        return self._slots.in_use

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return self._slots.waiting

    async def run(
        self,
        function: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        on_message: OnMessage | None = None,
        at_place: Callable[[], Awaitable[None]] | None = None,
        on_begin: Callable[[], None] | None = None,
        on_sent: Callable[[Callable[[], None]], None] | None = None,
        grace_sec: float = 0.0,
        shield_sec: float = 0.0,
    ) -> T:
        """Call the function in a child process as soon as a slot is free; returns its result.

        ``on_message``, a plain function or a coroutine function, gets each object the function passes to
        ``child_control().send``, in order, in the event loop and before this returns; none after a cancel.
        ``at_place`` is awaited when there is a slot, before the call is pickled. What it raises ends the call.
        ``on_begin`` is called in the event loop when all is loaded and the function begins, or after
        ``child_handle.LOADING_SEC``. ``on_sent`` is called when the call is sent, with a function that only sets the
        flag ``child_control().is_cancelled``. After a cancel the function has ``grace_sec`` to stop before its process
        is killed; a shielded section first has ``shield_sec`` to end. A second cancel ends the shielded section's time.

        Raises what the function raised, with ``remote_traceback``; ``RemoteError`` in place of what cannot travel,
        ``ControlFlowError`` in place of what must not reach the event loop; ``NotPicklableError``,
        ``MessageTooLargeError``, ``ProcessDiedError``, ``SlotsClosedError``.
        """
        pack = functools.partial(self._packed, function, args, kwargs or {})
        payload = b"" if at_place is not None else await self._pack(pack, args, kwargs)
        await self._slots.acquire()
        child = await self._take_child()
        if at_place is not None:
            try:
                await at_place()
                payload = await self._pack(pack, args, kwargs)
            except BaseException:  # also a cancel: nothing has been sent to the child yet
                self._give_back(child)
                raise
        try:
            if on_sent is not None:
                on_sent(child.set_flag)
            answer = await child.call(payload, on_message, on_begin)
        except asyncio.CancelledError:
            ending = self._in_background(child, child.stop(grace_sec, shield_sec))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                child.end_shield()
                raise
            raise
        except ProcessDiedError as error:
            self._give_back(child)
            if self._slots.closed:
                raise SlotsClosedError("The slots were closed while the call ran.") from error
            raise
        self._give_back(child)
        result: T = await self._result(answer)
        return result

    async def _pack(self, pack: Callable[[], bytes], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bytes:
        """Pickle a call: in a thread if its arguments may run code of users."""
        given = [*args, *(kwargs or {}).values()]
        is_plain = all(type(value) in _PLAIN or (type(value) in _TEXTS and len(value) <= _SMALL) for value in given)
        return pack() if is_plain else await self._aside.run(pack)

    def _packed(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        payload = pack_call(function, args, kwargs)
        if len(payload) > self._max_message_bytes:
            raise MessageTooLargeError("the call", len(payload), self._max_message_bytes)
        return payload

    async def close(self, timeout_sec: float = 0.0) -> None:
        """Refuse new calls, wait at most ``timeout_sec`` for running ones, and end all children.

        Calls that have not ended by then raise ``SlotsClosedError``.
        """
        self._slots.close()
        await self._slots.drained(timeout_sec)
        idle, self._idle = self._idle, []
        async with asyncio.TaskGroup() as group:
            for child in idle:
                group.create_task(child.retire(), name=f"retire child {child.pid}")
            for child in self._busy:
                group.create_task(child.kill(), name=f"kill child {child.pid}")
        await self._slots.drained()
        await self._aside.close(0)

    async def _take_child(self) -> ChildHandle:
        """Return an idle child or a new one. Releases the slot if no child can be started."""
        child = self._idle_child()
        if child is None:
            try:
                child = await start_child(Setup(self._max_message_bytes, sys.argv, describe_main()))
            except BaseException:
                self._slots.release()
                raise
        self._busy.add(child)
        if self._slots.closed:  # while this child was starting, so that close did not see it
            await self._in_background(child, child.retire())
            raise SlotsClosedError("The slots were closed before the call could start.")
        return child

    def _idle_child(self) -> ChildHandle | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:  # it may have died while it was idle
                return child
        return None

    def _give_back(self, child: ChildHandle) -> None:
        """Keep the child for the next call, or retire it if there are enough; then free its slot."""
        wanted = self._slots.waiting > 0 or len(self._idle) < self._keep_warm
        if child.is_alive and (self._slots.closed or not wanted):
            _ = self._in_background(child, child.retire())
            return
        self._busy.discard(child)
        if child.is_alive:
            self._idle.append(child)
        self._slots.release()

    def _in_background(self, child: ChildHandle, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """End a call or a child even if the caller is cancelled; then give the child back."""
        task = asyncio.create_task(ending, name=f"end child process {child.pid}")
        self._finisher.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self._finisher.discard(task)
            if task.cancelled():  # by a loop that is being closed; perhaps before its first step
                child.kill_now()
            self._give_back(child)

        task.add_done_callback(done)
        return task

    async def _result(self, answer: Answer) -> Any:  # noqa: ANN401 (a result can be anything)
        kind, payload = answer
        if kind is Kind.RETURNED:
            if len(payload) <= _SMALL:
                with contextlib.suppress(pickle.UnpicklingError):
                    return load_plain(payload)
            return await self._aside.run(functools.partial(load_result, payload))
        if kind is Kind.RAISED:
            raise await self._aside.run(functools.partial(_carried_error, payload))
        if kind is Kind.REFUSED:
            raise refused(*load_plain(payload))
        size: int = load_plain(payload)
        raise MessageTooLargeError("the answer", size, self._max_message_bytes)


def _carried_error(payload: bytes) -> BaseException:
    error, type_name, message, trace = load_error(payload)
    error = fit_to_raise(error) if error is not None else RemoteError(type_name, message)
    # Past the class's own __setattr__, which a frozen dataclass uses to forbid this.
    BaseException.__setattr__(error, "remote_traceback", trace)
    if error.__cause__ is None:
        BaseException.__setattr__(error, "__cause__", RemoteTraceback(trace))
    return error
