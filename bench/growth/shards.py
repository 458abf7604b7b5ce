"""From 1 to 8 streams for events, with fsync: what NATS alone gains, since one stream syncs one message at a time."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count as counted
from typing import Any

from nats.js.api import StreamConfig

from bench.floor import BODY, connected, raw_server
from bench.growth.curves import Plot, Points
from bench.peers.programs.client_loop import many
from bench.rows import Size
from pyoco_server.adapters.jetstream.durability.policy import Durability

SHARDS = (1, 2, 4, 8)
AT_A_TIME = 64
ROUNDS = 3
MOST_SEC = 15.0
"""No round of one size takes longer."""


def plots(size: Size) -> Iterator[Plot]:
    """Raw appends: a platform has one stream, and who wants more runs several platforms side by side."""
    curves: dict[str, Points] = {}
    kinds: dict[str, Durability] = {"fsync": "sync", "no fsync": "fast"}
    for words, durability in kinds.items():
        curves[words] = asyncio.run(_measured(durability, size.choose(4_000, 500)))
    title, note = "raw appends of 1.5 kB by nats-py, 64 in flight", "the best of three rounds that took turns"
    yield Plot("shards", title, "streams", "appends/s", curves, note)


async def _measured(durability: Durability, appends: int) -> Points:
    async with raw_server(durability) as server, connected(server.url) as connection:
        js = connection.jetstream()
        for shard in range(max(SHARDS)):
            await js.add_stream(StreamConfig(name=f"SHARD_{shard}", subjects=[f"shard.{shard}.>"]))
        best = dict.fromkeys(SHARDS, 0.0)
        for _ in range(ROUNDS):
            for shards in SHARDS:
                best[shards] = max(best[shards], await _rate(js, shards, appends))
    return [(shards, rate) for shards, rate in best.items()]


async def _rate(js: Any, shards: int, appends: int) -> float:  # noqa: ANN401 nats-py has no types to speak of
    numbers = counted()

    async def append() -> None:
        number = next(numbers)
        await js.publish(f"shard.{number % shards}.run{number % 1_000}", BODY)

    began = time.perf_counter()
    done = await many(append, appends, AT_A_TIME, began + MOST_SEC)
    return done / (time.perf_counter() - began)
