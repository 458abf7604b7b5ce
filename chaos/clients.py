"""Clients that submit, cancel, resume and watch runs during the faults, and record every answer."""

import asyncio
import contextlib
import dataclasses
import random
import time
import uuid
from collections.abc import Mapping
from typing import Final, Self

from tests.kill.crew import ENDED

from pyoco_server.client import ApiError, AsyncClient, GatewayUnreachableError
from pyoco_server.errors import PyocoServerError

FLOWS: Final = {"chain": 4, "fan": 3, "rested": 3, "retried": 2, "ask": 3, "lingering": 2, "processed": 1, "stored": 1}
"""What is submitted, and how often."""

TRIES: Final = 4
_MOST_AT_ONCE: Final = 150
_CANCELLED: Final = 0.2
_WATCHED: Final = 0.2


@dataclasses.dataclass(slots=True)
class Attempt:
    """One submission and its answer: ``accepted``, ``refused``, or none (``unknown``)."""

    gateway: str
    asked_at: float
    answered_at: float
    answer: str


@dataclasses.dataclass(slots=True)
class Run:
    """A run that a client submits. Its mark is its idempotency key, and names the files of its tasks."""

    mark: str
    flow: str
    run_id: str | None = None
    attempts: list[Attempt] = dataclasses.field(default_factory=list)
    cancel_answer: str | None = None
    """The answer to a cancel, if there was one."""
    watched_end: str | None = None
    """The last status that a watcher saw at the end."""
    is_watched: bool = False
    is_settled: bool = False
    """No client waits for its answer any more."""


class Clients:
    """Many clients, on all gateways, at a rate."""

    def __init__(self, urls: Mapping[str, str], seed: int, rate: float) -> None:
        self.runs: list[Run] = []
        self.held_back = 0
        """Submissions that were not made, because too many had no answer."""
        self._chance = random.Random(seed)  # noqa: S311 to be repeated, not to be secret
        self._rate = rate
        self._urls = urls
        self._lives: set[asyncio.Task[None]] = set()
        self._asking: dict[str, AsyncClient] = {}
        self._watching: dict[str, AsyncClient] = {}

    async def __aenter__(self) -> Self:
        for name, url in self._urls.items():
            self._asking[name] = AsyncClient(url, retries=0, timeout=10)
            self._watching[name] = AsyncClient(url, reconnect=240)
        return self

    async def __aexit__(self, *_error: object) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for client in (*self._asking.values(), *self._watching.values()):
            await client.aclose()

    @property
    def accepted(self) -> list[Run]:
        """The runs that were acknowledged."""
        return [run for run in self.runs if run.run_id is not None]

    async def submit_until(self, end: float) -> None:
        """Keep submitting until the time (of the monotonic clock) is over."""
        while time.monotonic() < end:
            await asyncio.sleep(self._chance.expovariate(self._rate))
            if len(self._lives) >= _MOST_AT_ONCE:
                self.held_back += 1
                continue
            [flow] = self._chance.choices([*FLOWS], [*FLOWS.values()])
            run = Run(uuid.UUID(int=self._chance.getrandbits(128)).hex, flow)
            self.runs.append(run)
            life = asyncio.create_task(self._live(run, random.Random(self._chance.getrandbits(32))))  # noqa: S311
            self._lives.add(life)
            life.add_done_callback(self._ended)

    async def submitted(self) -> None:
        """Wait until every submission was answered or abandoned."""
        while not all(run.is_settled for run in self.runs):  # noqa: ASYNC110 (no event reports it)
            await asyncio.sleep(0.1)

    async def finish(self, within: float) -> int:
        """Wait until all clients are done; return how many are not after ``within`` seconds."""
        if self._lives:
            await asyncio.wait(self._lives, timeout=within)
        return len(self._lives)

    def _ended(self, life: "asyncio.Task[None]") -> None:
        self._lives.discard(life)
        if not life.cancelled():
            life.result()

    async def _live(self, run: Run, chance: random.Random) -> None:
        """Submit one run, and cancel, resume or watch it."""
        try:
            await self._submit(run, chance)
        finally:
            run.is_settled = True
        if run.run_id is None:
            return
        wishes = []
        if run.flow == "ask":
            wishes.append(self._resume(run.run_id, chance))
        if chance.random() < _CANCELLED:
            wishes.append(self._cancel(run, run.run_id, chance))
        if chance.random() < _WATCHED:
            wishes.append(self._watch(run, run.run_id, chance))
        await asyncio.gather(*wishes)

    async def _submit(self, run: Run, chance: random.Random) -> None:
        """Submit, and again elsewhere with the same key if there was no good answer; stop after some attempts."""
        for _ in range(TRIES):
            gateway = chance.choice([*self._asking])
            asked_at = time.time()
            try:
                run.run_id = await self._asking[gateway].submit(run.flow, {"run": run.mark}, idempotency_key=run.mark)
                answer = "accepted"
            except ApiError:
                answer = "refused"
            except GatewayUnreachableError as error:
                answer = "unknown" if error.outcome_unknown else "refused"
            run.attempts.append(Attempt(gateway, asked_at, time.time(), answer))
            if run.run_id is not None:
                return
            await asyncio.sleep(chance.uniform(0.2, 2.0))

    async def _cancel(self, run: Run, run_id: str, chance: random.Random) -> None:
        await asyncio.sleep(chance.expovariate(2.0))
        client = self._asking[chance.choice([*self._asking])]
        with contextlib.suppress(PyocoServerError):  # without an answer there is no guarantee
            run.cancel_answer = str((await client.cancel(run_id, "changed my mind"))["status"])

    async def _resume(self, run_id: str, chance: random.Random) -> None:
        """Resume it when it waits, with retries."""
        while True:
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            client = self._asking[chance.choice([*self._asking])]
            with contextlib.suppress(PyocoServerError):
                found = await client.get(run_id)
                if found["status"] in ENDED:
                    return
                if found["waiting"]:
                    await client.resume(run_id, "approval", {"by": "chaos"})
                    # stay until it has ended: a resume that was answered must have its effect

    async def _watch(self, run: Run, run_id: str, chance: random.Random) -> None:
        """Watch until it has ended; retry at the same or another gateway."""
        run.is_watched = True
        while run.watched_end is None:
            client = self._watching[chance.choice([*self._watching])]
            with contextlib.suppress(PyocoServerError):
                run.watched_end = str((await client.wait(run_id))["status"])
            await asyncio.sleep(chance.uniform(0.1, 0.5))
