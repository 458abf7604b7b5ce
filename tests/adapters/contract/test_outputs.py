"""The contract of the output store, in memory and on JetStream."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.outputs import JetStreamOutputStore
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.ports import OutputPieces, OutputStore
from pyoco_server.errors import InvalidInputError
from tests.adapters.conftest import Backend

R = TypeVar("R")


class Store(OutputStore, OutputPieces, Protocol):
    """The port of workers and the port of gateways, which only stream stored outputs."""


Open = Callable[[], Awaitable[Store]]
MIB = 1024 * 1024


def run(backend: Backend, body: Callable[[Open], Awaitable[R]]) -> R:
    in_memory: Callable[[], Store] = MemoryOutputStore
    on_jetstream: Callable[[Connection, Names], Store] = JetStreamOutputStore
    return backend.run(in_memory, on_jetstream, body)


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5 * MIB, 30 * MIB])
def test_output_is_readable_by_every_client(backend: Backend, size: int) -> None:
    data = random.Random(size).randbytes(size)

    async def body(open_store: Open) -> None:
        await (await open_store()).put("run/node/1", data)
        assert await (await open_store()).get("run/node/1") == data
        assert b"".join([piece async for piece in (await open_store()).pieces("run/node/1")]) == data

    run(backend, body)


def test_output_that_was_never_put_is_absent(backend: Backend) -> None:
    async def body(open_store: Open) -> None:
        assert await (await open_store()).get("nothing") is None
        assert [piece async for piece in (await open_store()).pieces("nothing")] == []

    run(backend, body)


def test_deleted_output_is_absent_and_its_name_is_free(backend: Backend) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        await store.put("a", b"one")
        await store.put("b", b"two")
        await store.delete("a")
        await store.delete("a")
        await store.delete("never")
        assert await store.get("a") is None
        assert await store.get("b") == b"two"
        await store.put("a", b"three")
        assert await store.get("a") == b"three"

    run(backend, body)


def test_put_refuses_different_data_under_a_used_name(backend: Backend) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        await store.put("a", b"one")
        await store.put("a", b"one")
        with pytest.raises(InvalidInputError, match="'a' cannot be used: something else is kept"):
            await store.put("a", b"two")
        assert await store.get("a") == b"one"

    run(backend, body)


def test_concurrent_puts_of_one_name_have_exactly_one_winner(backend: Backend) -> None:
    async def body(open_store: Open) -> None:
        stores = [await open_store() for _ in range(4)]
        values = [bytes([65 + n]) * 300_000 for n in range(8)]
        tries = [stores[n % 4].put("a", value) for n, value in enumerate(values)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if outcome is None]
        assert len(winners) == 1
        assert all(isinstance(o, InvalidInputError) for n, o in enumerate(outcomes) if n != winners[0])
        assert await stores[0].get("a") == values[winners[0]]

    run(backend, body)


@pytest.mark.parametrize("name", ["a.b", "*", ">", "a b", "../../x", "実行/🏃", "\r\n", "x" * 1024, "$O.a"])
def test_any_text_is_a_valid_name(backend: Backend, name: str) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        await store.put(name, b"its own")
        await store.put("other", b"other")
        assert await store.get(name) == b"its own"
        await store.delete(name)
        assert await store.get("other") == b"other"

    run(backend, body)


@pytest.mark.parametrize("name", ["", "x" * 1025, "あ" * 342, "\ud800"])
def test_invalid_name_is_refused(backend: Backend, name: str) -> None:
    async def body(open_store: Open) -> None:
        store = await open_store()
        for attempt in (store.put(name, b"x"), store.get(name), store.delete(name)):
            with pytest.raises(InvalidInputError, match="cannot be used"):
                await attempt

    run(backend, body)
