"""The client's side of a measurement: one JSON line in, one JSON line out, the same for every candidate.

A client is a process of its own, in its candidate's environment, so that what it costs is counted like the rest.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Many = Callable[[int, int, float], Awaitable[int]]
"""Given how many runs, how many of them at a time, and when the time is up: how many were done."""


@dataclass(frozen=True)
class Client:
    """What can be asked of a candidate."""

    run_one: Callable[[], Awaitable[None]]
    """Submit a run and wait until it has ended well."""
    page: Callable[[], Awaitable[int]] | None = None
    """Ask for the newest 50; how many came. None: it has no list."""
    run_many: Many | None = None
    """So many runs. None: by ``run_one``, again and again."""
    verify: Callable[[], Awaitable[int]] | None = None
    """How many of the runs of the last ``run_many`` did not end well. None: ``run_one`` has looked already."""
    fill: Many | None = None
    """Have so many more runs to list, in a quicker way than running them. None: there is no need of one."""

    async def many(self, count: int, in_flight: int, ends_at: float) -> int:
        """So many runs, in the way it has for it."""
        if self.run_many is not None:
            return await self.run_many(count, in_flight, ends_at)
        return await many(self.run_one, count, in_flight, ends_at)


async def many(one: Callable[[], Awaitable[object]], count: int, in_flight: int, ends_at: float) -> int:
    """Call it so often, so many at a time, until the time is up."""
    left, done = iter(range(count)), 0

    async def work() -> None:
        nonlocal done
        for _ in left:
            if time.perf_counter() >= ends_at:
                return
            await one()
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    return done


async def _timed(one: Callable[[], Awaitable[object]], count: int, ends_at: float) -> dict[str, Any]:
    """Milliseconds of each call, one after the other, and what stopped it, if something did."""
    times: list[float] = []
    while len(times) < count and time.perf_counter() < ends_at:
        began = time.perf_counter()
        try:
            await one()
        except Exception as error:  # noqa: BLE001 libraries of every kind: how far it got is worth knowing
            return {"times_ms": times, "stopped": _text_of(error)}
        times.append((time.perf_counter() - began) * 1e3)
    return {"times_ms": times}


async def _answer(client: Client, asked: dict[str, Any]) -> dict[str, Any]:
    count, in_flight = asked.get("count", 1), asked.get("in_flight", 1)
    began = time.perf_counter()
    ends_at = began + asked.get("limit_sec", 60.0)
    match asked["do"]:
        case "single":
            return await _timed(client.run_one, count, ends_at)
        case "many":
            done = await client.many(count, in_flight, ends_at)
            return {"done": done, "seconds": time.perf_counter() - began}
        case "verify":
            return {"bad": await client.verify() if client.verify is not None else 0}
        case "fill":
            return {"done": await (client.fill or client.many)(count, in_flight, ends_at)}
        case "page" if (page := client.page) is not None:
            sizes: list[int] = []

            async def one() -> None:
                sizes.append(await page())

            return {**await _timed(one, count, ends_at), "runs": min(sizes, default=0)}
        case other:
            raise ValueError(f"unknown: {other}")


def _text_of(error: BaseException) -> str:
    """The first of the errors a group holds, which says more than the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def serve(client: Client) -> None:
    """Answer until there is nothing more to read. Whatever else prints goes to the log."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"ready": True}), file=answers)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answer = await _answer(client, json.loads(line))
        except Exception as error:  # noqa: BLE001 libraries of every kind: the measuring process gets it and stops
            answer = {"error": _text_of(error)}
        print(json.dumps(answer), file=answers)
