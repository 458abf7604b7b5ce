"""Logs of runs in every state, as real workers and commands leave them, and a NATS server that has nothing else.

Each kind of run is made once, by the real code in memory. Its commits are then appended under other ids, as often as a
test wants: that is how a store of 100,000 runs comes to be in a minute.
"""

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.bootstrap.platform import Platform
from pyoco_server.core import Event
from tests.app.runtime.flows import Calls
from tests.gateway.stand import FLOWS
from tests.worker.world import USER, World

Commits = Sequence[Sequence[Event]]
TENANT: Final = "acme"
AT_ONCE: Final = 200


class Kind(NamedTuple):
    """A kind of run."""

    commits: Commits
    shown: str | None
    """The status that is shown when everything is rebuilt; None: there is no such run."""
    ends: str | None
    """The status that workers bring it to."""


async def kinds() -> Mapping[str, Kind]:
    """Make a run of each kind."""
    world = World(virtual=False)
    try:
        return await _made(world)
    finally:
        await world.close()


async def _made(world: World) -> Mapping[str, Kind]:
    hand = world.hand(lambda name: _lost() if name == "lost" else FLOWS(name))
    ids = {flow: await world.submit(flow) for flow in ("hello", "boom", "ask", "due", "lost")}
    ids["tenant"] = await world.submit("hello", tenant_id=TENANT)
    for _ in ids:
        await hand.work()
    queued, running, retracted = [await world.submit("hello") for _ in range(3)]
    created, started = _commits(world, running)[0], _commits(world, ids["hello"])[1]
    await world.archive(ids["tenant"])
    await world.cancel(queued)
    await world.log.inner.append(running, _as(running, started), after=len(created))
    await world.cancel(running)
    await world.run_log.retract(retracted, USER)
    hello, lost = _commits(world, ids["hello"]), _commits(world, ids["lost"])
    cancelling = [created, started, _commits(world, running)[-1]]
    return {
        "pending": Kind(hello[:1], "PENDING", "COMPLETED"),
        "pending of a tenant": Kind(_commits(world, ids["tenant"])[:1], "PENDING", "COMPLETED"),
        "running, its worker died": Kind(hello[:2], "RUNNING", "COMPLETED"),
        "held, its code is missing": Kind(lost[:2], "RUNNING", "RUNNING"),
        "waiting for an approval": Kind(_commits(world, ids["ask"]), "RUNNING", "RUNNING"),
        "waiting, and due": Kind(_commits(world, ids["due"]), "RUNNING", "COMPLETED"),
        "cancelling, its worker died": Kind(cancelling, "CANCELLING", "CANCELLED"),
        "completed": Kind(hello, "COMPLETED", "COMPLETED"),
        "failed": Kind(_commits(world, ids["boom"]), "FAILED", "FAILED"),
        "cancelled": Kind(_commits(world, queued), "CANCELLED", "CANCELLED"),
        "archived, of a tenant": Kind(_commits(world, ids["tenant"]), "COMPLETED", "COMPLETED"),
        "retracted": Kind(_commits(world, retracted), None, None),
    }


def _lost() -> Flow:
    calls = Calls()
    return Flow("lost") >> calls.task("first", 1) >> calls.task("second", 2)


def _commits(world: World, run_id: str) -> list[Sequence[Event]]:
    return [commit for commit in world.log.offered if commit and commit[0].execution_id == run_id]


def _as(run_id: str, commit: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, execution_id=run_id) for event in commit]


def by_status(made: Mapping[str, Kind], ids: Mapping[str, list[str]], *, ended: bool) -> Counter[str]:
    """Count the runs that are to be listed by status."""
    expected = Counter[str]()
    for name, kind in made.items():
        status = kind.ends if ended else kind.shown
        if status is not None:
            expected[status] += len(ids[name])
    return expected


async def append_logs(platform: Platform, made: Mapping[str, Kind], runs: int) -> dict[str, list[str]]:
    """Append the logs of so many runs, the same number of each kind; return their ids by kind."""
    ids: dict[str, list[str]] = {name: [] for name in made}
    todo = itertools.islice(itertools.cycle(made), runs)

    async def work() -> None:
        for name in todo:
            run_id, position = str(uuid.uuid4()), 0
            for commit in made[name].commits:
                position = await platform.log.append(run_id, _as(run_id, commit), after=position, quiet=True)
            ids[name].append(run_id)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return ids


async def delete_everything_derived(platform: Platform) -> None:
    """Delete every bucket and the queue, so that the log alone is left."""
    for info in await platform.connection.js.streams_info():
        name = str(info.config.name)
        if name.startswith("KV_") or name == "PYOCO_WORK":
            await platform.connection.js.delete_stream(name)
