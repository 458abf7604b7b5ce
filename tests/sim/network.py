"""The network between processes and store: it delays calls, loses them or their answers, or delivers them late.

A call that was made can arrive after its caller has died.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from enum import StrEnum, unique
from typing import Any, Final, NamedTuple, TypeVar

from typing_extensions import override

from pyoco_server.app.ports import UnavailableError
from tests.sim.loop import Process, SimLoop

R = TypeVar("R")
Call = Callable[[], Coroutine[Any, Any, R]]

QUICK_SEC: Final = 0.004
TIMEOUT_SEC: Final = 1.0


@unique
class Fate(StrEnum):
    """What happens to a call."""

    DONE = "done"
    LOST = "lost"
    """It does not arrive, and has no answer."""
    UNANSWERED = "lost ack"
    """It takes effect, and has no answer."""
    ERRED = "stored but errored"
    """It takes effect, and the answer is an error."""
    GHOST = "ghost"
    """It has no answer in time, and takes effect afterwards."""
    SLOW = "slow"
    """It takes effect late, and its answer comes late."""


READS: Final = frozenset(
    {
        "exhausted.get",
        "exhausted.look",
        "feed.read",
        "feed.state",
        "graphs.get",
        "log.read",
        "outputs.get",
        "queue.backlog",
        "queue.prepare",
        "queue.stalled",
        "snapshots.read",
    }
)
"""Calls that change nothing: it makes no difference whether they arrived."""

DIRECT: Final = frozenset({"log.subscribe", "snapshots.sync"})
"""Calls that the network does not carry: what they do is no message to the store, or is done with every message."""

FAULTS: Final = (Fate.LOST, Fate.UNANSWERED, Fate.ERRED, Fate.GHOST, Fate.SLOW)
READ_FAULTS: Final = (Fate.LOST, Fate.SLOW)


class Line(NamedTuple):
    """A line of the trace."""

    at: float
    process: str
    what: str

    @override
    def __str__(self) -> str:
        return f"{self.at:9.4f}  {self.process:10} {self.what}"


class Network:
    """Carries calls; ``rates`` has the probability of each fault."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self.rates: dict[Fate, float] = {}
        self.hint_loss = 0.0
        """The share of notifications that are lost."""
        self.cut_off: set[str] = set()
        """Processes whose calls do not get through."""
        self.trace: list[Line] = []
        self.is_over = False
        self._loop = loop
        self._chance = chance

    def note(self, what: str, process: Process | None = None) -> None:
        """Add a line to the trace."""
        self.trace.append(Line(self._loop.time(), (process or self._loop.current()).name, what))

    async def call(self, name: str, call: Call[R], about: str = "", *, fate: Fate | None = None) -> R:
        """Make a call to the store; raise UnavailableError if no answer comes, whether it took effect or not.

        ``fate`` replaces the random choice.
        """
        if name in DIRECT:
            return await call()
        if self.is_over:
            raise asyncio.CancelledError
        fate = fate or self._fate(is_read=name in READS)
        name = f"{name} {about}"
        answer: asyncio.Future[R] = self._loop.create_future()
        process, later = self._loop.current(), self._loop.server_later
        chance = self._chance.random
        self.trace.append(Line(self._loop.time(), process.name, name if fate is Fate.DONE else f"{name} [{fate}]"))
        match fate:
            case Fate.DONE:
                later(QUICK_SEC * chance(), self._arrive, name, call, answer, QUICK_SEC * chance())
            case Fate.SLOW:
                later(TIMEOUT_SEC * chance(), self._arrive, name, call, answer, TIMEOUT_SEC * chance())
            case Fate.LOST:
                later(TIMEOUT_SEC * chance(), _refuse, answer, name)
            case Fate.UNANSWERED:
                later(QUICK_SEC * chance(), self._arrive, name, call, None, 0.0)
                later(TIMEOUT_SEC * chance() + QUICK_SEC, _refuse, answer, name)
            case Fate.ERRED:
                later(QUICK_SEC * chance(), self._arrive, name, call, None, 0.0)
                later(QUICK_SEC, _refuse, answer, name)
            case Fate.GHOST:
                timed_out = TIMEOUT_SEC * chance()
                later(timed_out, _refuse, answer, name)
                later(timed_out + 3 * TIMEOUT_SEC * chance(), self._arrive, name, call, None, 0.0)
        return await answer

    def relayed(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return what notifies the listener in the process that runs now, unless the notification is lost."""
        process = self._loop.current()
        return lambda *args: self.notify(process, listener, *args)

    def notify(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Schedule a callback in a process, unless the notification is lost."""
        if self.is_over or self._chance.random() < self.hint_loss or process.name in self.cut_off:
            return
        self._loop.later(process, QUICK_SEC * self._chance.random(), callback, *args)

    def _fate(self, *, is_read: bool) -> Fate:
        if self._loop.current().name in self.cut_off:
            return Fate.LOST if is_read or self._chance.random() < 0.8 else Fate.GHOST
        if not self.rates:
            return Fate.DONE
        draw = self._chance.random()
        for fate in READ_FAULTS if is_read else FAULTS:
            draw -= self.rates.get(fate, 0.0)
            if draw < 0:
                return fate
        return Fate.DONE

    def _arrive(self, name: str, call: Call[R], answer: "asyncio.Future[R] | None", back_sec: float) -> None:
        if self.is_over:
            return
        try:
            found = at_once(call())
        except Exception as error:  # noqa: BLE001 the caller receives every error of the store
            self.note(f"    {name}: {type(error).__name__}")
            if answer is not None:
                self._loop.server_later(back_sec, _raise, answer, error)
            return
        if answer is not None:
            self._loop.server_later(back_sec, _answer, answer, found)


def at_once(call: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        found: R = end.value
        return found
    call.close()
    raise RuntimeError("the store in memory was expected to answer at once")


def _answer(answer: "asyncio.Future[R]", found: R) -> None:
    if not answer.done():
        answer.set_result(found)


def _raise(answer: "asyncio.Future[R]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _refuse(answer: "asyncio.Future[R]", name: str) -> None:
    if not answer.done():
        answer.set_exception(UnavailableError(f"{name}: no answer"))
