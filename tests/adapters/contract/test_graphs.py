"""The contract of the graph registry, in memory and on JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.graphs import JetStreamGraphRegistry
from pyoco_server.adapters.memory.registries import MemoryGraphRegistry
from pyoco_server.app.ports import GraphRegistry
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import Backend

R = TypeVar("R")
Open = Callable[[], Awaitable[GraphRegistry]]


def run(backend: Backend, body: Callable[[Open], Awaitable[R]]) -> R:
    in_memory: Callable[[], GraphRegistry] = MemoryGraphRegistry
    on_jetstream: Callable[[Connection, Names], GraphRegistry] = JetStreamGraphRegistry
    return backend.run(in_memory, on_jetstream, body)


def test_registered_graph_is_visible_to_every_client(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        one, other = await open_registry(), await open_registry()
        assert await one.get("g") is None
        assert await one.put("g", '{"nodes": "実行"}'.encode())
        assert await other.get("g") == '{"nodes": "実行"}'.encode()

    run(backend, body)


def test_put_accepts_the_same_graph_again_and_refuses_another(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        registry = await open_registry()
        assert await registry.put("g", b"one")
        assert await registry.put("g", b"one")
        assert not await registry.put("g", b"two")
        assert await registry.get("g") == b"one"

    run(backend, body)


def test_graphs_with_similar_ids_are_separate(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        registry = await open_registry()
        ids = ["g", "G", "g.1", "g.1.2", "g_1", "g-1", "g" * 128]
        for graph_id in ids:
            assert await registry.put(graph_id, graph_id.encode())
        for graph_id in ids:
            assert await registry.get(graph_id) == graph_id.encode()

    run(backend, body)


def test_concurrent_puts_of_one_id_have_exactly_one_winner(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        registries = [await open_registry() for _ in range(4)]
        tries = [registries[n % 4].put("g", f"graph {n}".encode()) for n in range(20)]
        outcomes = await asyncio.gather(*tries)
        assert outcomes.count(True) == 1
        assert await registries[0].get("g") == f"graph {outcomes.index(True)}".encode()

    run(backend, body)


@pytest.mark.parametrize(
    "graph_id", ["", ".", "a.", ".a", "a..b", "*", "a.*", ">", "a b", "a/b", "実行", "g" * 129, "a\n"]
)
def test_invalid_id_is_refused(backend: Backend, graph_id: str) -> None:
    async def body(open_registry: Open) -> None:
        registry = await open_registry()
        for attempt in (registry.put(graph_id, b"x"), registry.get(graph_id)):
            with pytest.raises(InvalidInputError, match=r"graphId: .* cannot be used"):
                await attempt

    run(backend, body)
