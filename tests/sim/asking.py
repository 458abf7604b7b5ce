"""Sends requests to gateways over a faulty network, and records the answers in the history."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.app.runs.run_log import RunNotFoundError
from pyoco_server.app.runs.submit import IdempotencyKeyError
from pyoco_server.core import CommandRejected
from tests.sim.actors import Gateway
from tests.sim.history import ABSENT, REFUSED, History, Kind, Operation
from tests.sim.loop import Process, SimLoop
from tests.sim.network import QUICK_SEC, Network

if TYPE_CHECKING:
    from tests.sim.world import World

R = TypeVar("R")
Request = Callable[[Gateway], Coroutine[Any, Any, R]]

PATIENCE_SEC: Final = 12.0
EXPECTED: Final = (UnavailableError, CommandRejected, RunNotFoundError, IdempotencyKeyError)


class NoAnswerError(Exception):
    """The gateway did not answer: it may have processed the request, or may not."""


class Caller:
    """A program that calls gateways."""

    def __init__(self, world: "World", name: str, chance: random.Random) -> None:
        self.process: Process = world.loop.process(name)
        self._world = world
        self._loop: SimLoop = world.loop
        self._network: Network = world.network
        self._history: History = world.history
        self._chance = chance

    async def _asking_about(self, kind: Kind, run_id: str, request: Request[R], answer_of: Callable[[R], str]) -> None:
        operation = Operation(kind, run_id, self._loop.steps, client=self.process.name)
        with self._history.asking(operation):
            try:
                operation.answer = answer_of(await self._ask(f"{kind} {run_id}", request))
            except RunNotFoundError:
                operation.answer = ABSENT
            except CommandRejected:
                operation.answer = REFUSED
            except (NoAnswerError, UnavailableError):
                return
            operation.answered = self._loop.steps

    async def _look(self, run_id: str) -> None:
        """Look at a run's snapshot."""
        operation = Operation(Kind.LOOK, run_id, self._loop.steps, client=self.process.name)
        with self._history.asking(operation):
            try:
                stored = await self._ask(
                    f"look {run_id}", lambda gate: snapshot_of(gate.snapshots, gate.run_log, run_id)
                )
                operation.answer = str(msgspec.json.decode(stored.body)["status"])
                operation.position = stored.position
            except RunNotFoundError:
                operation.answer = ABSENT
            except (NoAnswerError, UnavailableError):
                return
            operation.answered = self._loop.steps

    async def _ask(self, name: str, request: Request[R]) -> R:
        """Send a request to a gateway and return its answer; raise NoAnswerError if none comes in time."""
        gates = self._world.gateways
        place = gates[int(self._chance.random() * len(gates))]
        self._network.note(f"asks {place.name}: {name}")
        answer: asyncio.Future[R] = self._loop.create_future()
        self._loop.server_later(QUICK_SEC * self._chance.random(), self._begin, place, request, answer)
        try:
            async with asyncio.timeout(PATIENCE_SEC):
                found = await answer
        except TimeoutError as error:
            self._network.note(f"has no answer to: {name}")
            raise NoAnswerError from error
        except EXPECTED as error:
            self._network.note(f"receives {type(error).__name__}: {name}")
            raise
        self._network.note(f"receives the answer to: {name}{_shown(found)}")
        return found

    def _begin(self, place: Any, request: Request[R], answer: "asyncio.Future[R]") -> None:
        if place.gateway is not None and place.gateway.is_open and place.process.alive:
            self._loop.start(place.process, self._serve(place.gateway, request, answer))

    async def _serve(self, gateway: Gateway, request: Request[R], answer: "asyncio.Future[R]") -> None:
        """Process a request in the gateway, and set the answer or its error."""
        try:
            found = await request(gateway)
        except EXPECTED as error:
            if not answer.done():
                answer.set_exception(error)
        except Exception as error:  # noqa: BLE001 a gateway answers 500, and that is a finding
            self._world.violation("no request crashes", repr(error))
        else:
            if not answer.done():
                answer.set_result(found)


def _shown(found: object) -> str:
    return f" → {found.get('run_id')} {found.get('status')}" if isinstance(found, dict) else ""
