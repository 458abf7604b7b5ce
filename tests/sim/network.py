"""Between the processes and the store: calls that take time, get lost, are done unheard, or are done long after.

A call is on its way by itself once it was made: it arrives although whoever made it has died meanwhile.
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
    """What becomes of a call."""

    DONE = "done"
    LOST = "lost"
    """It does not arrive; nobody answers."""
    UNANSWERED = "lost ack"
    """It is done; nobody answers."""
    ERRED = "stored but errored"
    """It is done; the answer is an error."""
    GHOST = "ghost"
    """Nobody answers in time, and after that it is done."""
    SLOW = "slow"
    """It is done and answered, late."""


FAULTS: Final = (Fate.LOST, Fate.UNANSWERED, Fate.ERRED, Fate.GHOST, Fate.SLOW)
READ_FAULTS: Final = (Fate.LOST, Fate.SLOW)


class Line(NamedTuple):
    """Something that happened."""

    at: float
    process: str
    what: str

    @override
    def __str__(self) -> str:
        return f"{self.at:9.4f}  {self.process:10} {self.what}"


class Network:
    """Carries calls; ``rates`` says how often which fault befalls one."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self.rates: dict[Fate, float] = {}
        self.hint_loss = 0.0
        """How many announcements get lost."""
        self.cut_off: set[str] = set()
        """Processes whose calls do not get through."""
        self.trace: list[Line] = []
        self.is_over = False
        self._loop = loop
        self._chance = chance

    def note(self, what: str, process: Process | None = None) -> None:
        """Write something into the trace."""
        self.trace.append(Line(self._loop.time(), (process or self._loop.current()).name, what))

    async def call(self, name: str, call: Call[R], *, reads: bool = False, fate: Fate | None = None) -> R:
        """Have ``call`` done at the store; UnavailableError if no answer comes, whatever became of it.

        ``fate`` is for whoever has decided what becomes of it.
        """
        if self.is_over:
            raise asyncio.CancelledError
        fate = fate or self._fate(reads=reads)
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
                given_up = TIMEOUT_SEC * chance()
                later(given_up, _refuse, answer, name)
                later(given_up + 3 * TIMEOUT_SEC * chance(), self._arrive, name, call, None, 0.0)
        return await answer

    def tell(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Announce something to a process, if it is not lost on the way."""
        if self.is_over or self._chance.random() < self.hint_loss or process.name in self.cut_off:
            return
        self._loop.later(process, QUICK_SEC * self._chance.random(), callback, *args)

    def _fate(self, *, reads: bool) -> Fate:
        if self._loop.current().name in self.cut_off:
            return Fate.LOST if reads or self._chance.random() < 0.8 else Fate.GHOST
        if not self.rates:
            return Fate.DONE
        draw = self._chance.random()
        for fate in READ_FAULTS if reads else FAULTS:
            draw -= self.rates.get(fate, 0.0)
            if draw < 0:
                return fate
        return Fate.DONE

    def _arrive(self, name: str, call: Call[R], answer: "asyncio.Future[R] | None", back_sec: float) -> None:
        if self.is_over:
            return
        try:
            found = at_once(call())
        except Exception as error:  # noqa: BLE001 whatever the store says is for whoever asked
            self.note(f"    {name}: {type(error).__name__}")
            if answer is not None:
                self._loop.server_later(back_sec, _raise, answer, error)
            return
        if answer is not None:
            self._loop.server_later(back_sec, _answer, answer, found)


def at_once(call: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that has nothing to wait for."""
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
