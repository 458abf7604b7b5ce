"""The contract of dead letters, in memory and on JetStream."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.dead_letters import JetStreamDeadLetters
from pyoco_server.adapters.memory.registries import MemoryDeadLetters
from pyoco_server.app.ports import DeadLetters
from tests.adapters.conftest import Backend

R = TypeVar("R")


def attempt(backend: Backend, body: Callable[[DeadLetters], Awaitable[R]]) -> R:
    def in_memory() -> DeadLetters:
        return MemoryDeadLetters()

    def on_jetstream(connection: Connection, names: Names) -> DeadLetters:
        return JetStreamDeadLetters(connection, names)

    async def with_one(open_letters: Callable[[], Awaitable[DeadLetters]]) -> R:
        return await body(await open_letters())

    return backend.run(in_memory, on_jetstream, with_one)


def test_store_is_empty_at_first(backend: Backend) -> None:
    async def body(letters: DeadLetters) -> None:
        assert await letters.count() == 0
        assert await letters.newest(10) == []

    attempt(backend, body)


def test_entry_is_read_as_it_was_published(backend: Backend) -> None:
    entry = {
        "timestamp": 1.5,
        "reason": "invalid_job",
        "error": "größer",
        "run_id": None,
        "tags": ["a"],
        "num_delivered": 3,
    }

    async def body(letters: DeadLetters) -> None:
        await letters.publish("cpu", entry)
        [letter] = await letters.newest(10)
        assert (letter.sequence, letter.tag, letter.entry) == (1, "cpu", entry)
        assert await letters.count() == 1

    attempt(backend, body)


def test_newest_returns_at_most_the_limit_newest_first(backend: Backend) -> None:
    async def body(letters: DeadLetters) -> None:
        for number in range(7):
            await letters.publish(["cpu", "gpu"][number % 2], {"number": number})
        assert await letters.count() == 7
        newest = await letters.newest(3)
        assert [(letter.sequence, letter.tag, letter.entry) for letter in newest] == [
            (7, "cpu", {"number": 6}),
            (6, "gpu", {"number": 5}),
            (5, "cpu", {"number": 4}),
        ]
        assert [letter.entry["number"] for letter in await letters.newest(100)] == [6, 5, 4, 3, 2, 1, 0]
        assert await letters.newest(0) == []
        assert await letters.newest(-1) == []

    attempt(backend, body)


def test_dead_letter_is_found_by_its_number(backend: Backend) -> None:
    async def body(letters: DeadLetters) -> None:
        await letters.publish("cpu", {"number": 1})
        await letters.publish("gpu", {"number": 2})
        found = await letters.get(2)
        assert found is not None
        assert (found.sequence, found.tag, found.entry) == (2, "gpu", {"number": 2})
        assert await letters.get(3) is None

    attempt(backend, body)
