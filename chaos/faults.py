"""Faults, each with its begin and end, and their schedule, which follows from a seed."""

import asyncio
import contextlib
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from tests.cluster.documented import Address
from tests.cluster.nodes import Node, leader_of

from chaos.stage import Stage, say
from chaos.world import GATEWAYS, WORKERS, ThreeNodes
from pyoco_server.adapters.jetstream.durability.connection import connect
from pyoco_server.adapters.jetstream.transport.error_translation import NATS_ERRORS
from pyoco_server.app.ports import UnavailableError
from pyoco_server.bootstrap import names_of

Fault = Callable[[Stage, random.Random], AbstractAsyncContextManager[str]]
"""The fault is active within this context, which names its target."""

_PATIENCE_SEC: Final = 60.0
_ADMIN: Final = "admin:change-me"
"""The user of the system account in docs/production.md."""


class Kind(NamedTuple):
    """A kind of fault, and how many seconds it lasts."""

    fault: Fault
    shortest: float
    longest: float
    only: str = ""
    """The topology it needs."""
    needs_disk: bool = False
    once: bool = False


class Planned(NamedTuple):
    """A fault to come: how long after the last one, what, for how long, and the seed of its choices."""

    pause: float
    kind: str
    lasts: float
    seed: int


class Happened(NamedTuple):
    """A past fault: when it began and ended, in seconds since the epoch."""

    kind: str
    what: str
    began: float
    healed: float


# --- Processes -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def kill_worker(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A worker dies."""
    async with _killed(stage, chance.choice(WORKERS)) as what:
        yield what


@contextlib.asynccontextmanager
async def kill_gateway(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A gateway dies."""
    async with _killed(stage, chance.choice(GATEWAYS)) as what:
        yield what


@contextlib.asynccontextmanager
async def _killed(stage: Stage, name: str) -> AsyncIterator[str]:
    stage.kill(name)
    try:
        yield f"SIGKILL of {name}"
    finally:
        stage.start(name)


@contextlib.asynccontextmanager
async def stop_process(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A worker or a gateway is paused for longer than the ack wait."""
    name = chance.choice((*WORKERS, *GATEWAYS))
    process = stage.processes[name]
    process.send(signal.SIGSTOP)
    try:
        yield f"SIGSTOP of {name}"
    finally:
        process.send(signal.SIGCONT)


# --- Servers ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def kill_nats(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A server dies: more often the leader of the log."""
    leader = await _leader(stage) if chance.random() < 0.6 else None
    node = leader or chance.choice(stage.world.cluster.nodes)
    node.kill()
    try:
        yield f"SIGKILL of {node.name}{' (leader of the log)' if leader else ''}"
    finally:
        node.start()


@contextlib.asynccontextmanager
async def kill_all_nats(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """Two servers, or all, die at once."""
    nodes = chance.sample(stage.world.cluster.nodes, chance.choice((2, 3)))
    for node in nodes:
        node.kill()
    try:
        yield f"SIGKILL of {', '.join(sorted(node.name for node in nodes))}"
    finally:
        for node in nodes:
            node.start()


@contextlib.asynccontextmanager
async def stop_nats(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A server is paused."""
    node = chance.choice(stage.world.cluster.nodes)
    node.process.send(signal.SIGSTOP)
    try:
        yield f"SIGSTOP of {node.name}"
    finally:
        node.process.send(signal.SIGCONT)


@contextlib.asynccontextmanager
async def fill_disk(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """The disk of a server is full. The server writes again only after a restart, so the fault restarts it."""
    node = chance.choice(stage.world.cluster.nodes)
    disk = stage.world.disks[node.name]
    disk.fill()
    try:
        yield f"disk of {node.name} full"
    finally:
        disk.free()
        node.kill()
        node.start()


@contextlib.asynccontextmanager
async def lose_node(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A server is lost with its disk, and an empty one with another name takes its place."""
    world = stage.world
    if not isinstance(world, ThreeNodes):
        raise TypeError("there is only one node")
    await stage.until_whole()  # if a second one lagged, this would be two losses
    lost = chance.choice(world.cluster.nodes)
    lost.kill()
    new = ""
    try:
        yield f"{lost.name} lost for good and replaced"
    finally:
        new = world.replace(lost).name
        await _remove_peer([node.address for node in world.cluster.nodes], lost.name)
        say(f"    {new} takes the place of {lost.name}")
        await stage.until_whole(120)


async def _remove_peer(nodes: Collection[Address], lost: str) -> None:
    """Remove a lost node from the cluster, as ``nats server cluster peer-remove`` does; its replicas move to others."""
    url = ",".join(f"nats://{_ADMIN}@{node.host}:{node.port}" for node in nodes)
    deadline, answer = time.monotonic() + _PATIENCE_SEC, ""
    while time.monotonic() < deadline:
        try:
            async with await connect(url, name="operator") as connection:
                body = json.dumps({"peer": lost}).encode()
                answer = (await connection.nc.request("$JS.API.SERVER.REMOVE", body, timeout=5)).data.decode()
                if json.loads(answer).get("success"):
                    return
        except (UnavailableError, *NATS_ERRORS) as error:
            answer = str(error)
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the cluster did not forget {lost}: {answer}")


# --- Network ---------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def cut_process(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """A worker or a gateway is cut off from NATS."""
    name = chance.choice((*WORKERS, *GATEWAYS))
    stage.world.cut(name)
    try:
        yield f"{name} cut off from NATS"
    finally:
        stage.world.mend(name)


@contextlib.asynccontextmanager
async def partition(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """One server is cut off from the others, with a worker and a gateway on its side or without."""
    world = _three(stage)
    node = await _leader(stage) if chance.random() < 0.6 else None
    away = [world.place_of_node(node or chance.choice(world.cluster.nodes))]
    if chance.random() < 0.5:
        away += [chance.choice(WORKERS), chance.choice(GATEWAYS)]
    world.network.take_away(away)
    try:
        yield f"partition: {', '.join(away)} | the others"
    finally:
        world.network.bring_back(away)


@contextlib.asynccontextmanager
async def half_partition(stage: Stage, chance: random.Random) -> AsyncIterator[str]:
    """Two servers cannot reach each other, and the third reaches both."""
    world = _three(stage)
    isolated = sorted(world.place_of_node(node) for node in chance.sample(world.cluster.nodes, 2))
    world.network.isolate(isolated, isolated=True)
    try:
        yield f"partition: {' | '.join(isolated)}, the third reaches both"
    finally:
        world.network.isolate(isolated, isolated=False)


@contextlib.asynccontextmanager
async def slow_network(stage: Stage, _chance: random.Random) -> AsyncIterator[str]:
    """All connections to NATS are slow."""
    stage.world.slow_down()
    try:
        yield "slow network"
    finally:
        stage.world.speed_up()


def _three(stage: Stage) -> ThreeNodes:
    if not isinstance(stage.world, ThreeNodes):
        raise TypeError("this needs three nodes")
    return stage.world


async def _leader(stage: Stage) -> Node | None:
    """Return the leader of the log, or None if it is unknown now."""
    if not isinstance(stage.world, ThreeNodes):
        return None
    with contextlib.suppress(UnavailableError, TimeoutError, AssertionError, StopIteration):
        async with asyncio.timeout(3):
            stream = names_of(stage.crew.settings).events_stream
            return stage.world.cluster.node(await leader_of(stage.crew.platform.connection, stream))
    return None


KINDS: Final[dict[str, Kind]] = {
    "worker killed": Kind(kill_worker, 0.2, 2.0),
    "gateway killed": Kind(kill_gateway, 0.2, 2.0),
    "process stopped": Kind(stop_process, 3.0, 6.0),
    "process cut off": Kind(cut_process, 3.0, 8.0),
    "NATS killed": Kind(kill_nats, 0.2, 4.0),
    "NATS stopped": Kind(stop_nats, 2.0, 6.0),
    "slow network": Kind(slow_network, 4.0, 8.0),
    "disk full": Kind(fill_disk, 3.0, 6.0, needs_disk=True),
    "partition": Kind(partition, 4.0, 12.0, only="three"),
    "half a partition": Kind(half_partition, 4.0, 12.0, only="three"),
    "quorum killed": Kind(kill_all_nats, 1.0, 5.0, only="three"),
    "node lost for good": Kind(lose_node, 2.0, 5.0, only="three", once=True),
}


# --- The schedule ----------------------------------------------------------------------------------------------------


def schedule(seed: int, topology: str, *, has_disks: bool) -> Iterator[Planned]:
    """Yield faults without end: every kind once before any is repeated; sometimes one follows at once."""
    chance = random.Random(seed)  # noqa: S311 to be repeated, not to be secret
    kinds = [name for name, kind in KINDS.items() if kind.only in {"", topology} and (has_disks or not kind.needs_disk)]
    while True:
        chance.shuffle(kinds)
        for name in kinds:
            kind = KINDS[name]
            pause = chance.uniform(0.2, 1.0) if chance.random() < 0.3 else chance.uniform(2.0, 6.0)
            yield Planned(pause, name, chance.uniform(kind.shortest, kind.longest), chance.randrange(2**32))
        kinds = [name for name in kinds if not KINDS[name].once]


async def inject(stage: Stage, planned: Iterator[Planned], until: float) -> list[Happened]:
    """Inject the faults one after the other until ``until`` (monotonic clock)."""
    happened: list[Happened] = []
    for one in planned:
        if time.monotonic() + one.pause + one.lasts > until:
            return happened
        await asyncio.sleep(one.pause)
        began = time.time()
        what = ""
        try:
            async with KINDS[one.kind].fault(stage, random.Random(one.seed)) as what:  # noqa: S311 as above
                say(f"  {what}, {one.lasts:.1f} s")
                await asyncio.sleep(one.lasts)
        finally:
            happened.append(Happened(one.kind, what, began, time.time()))
    return happened
