"""The contract of the worker registry, in memory and on JetStream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.stores.workers import JetStreamWorkerRegistry
from pyoco_server.adapters.memory.registries import MemoryWorkerRegistry
from pyoco_server.app.ports import WorkerRecord, WorkerRegistry
from tests.adapters.conftest import Backend

R = TypeVar("R")


def attempt(backend: Backend, body: Callable[[WorkerRegistry, WorkerRegistry], Awaitable[R]]) -> R:
    """Run ``body`` with two registries that have separate connections."""

    def in_memory() -> WorkerRegistry:
        return MemoryWorkerRegistry()

    def on_jetstream(connection: Connection, names: Names) -> WorkerRegistry:
        return JetStreamWorkerRegistry(connection, names)

    async def with_two(open_registry: Callable[[], Awaitable[WorkerRegistry]]) -> R:
        return await body(await open_registry(), await open_registry())

    return backend.run(in_memory, on_jetstream, with_two)


def to(record: WorkerRecord) -> Callable[[WorkerRecord | None], WorkerRecord]:
    return lambda _current: record


def test_registry_is_empty_at_first(backend: Backend) -> None:
    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        assert await one.all() == []
        assert await other.get("w") is None

    attempt(backend, body)


def test_record_is_read_as_it_was_stored(backend: Backend) -> None:
    record = {"worker_id": "w", "tags": ["cpu", "ä"], "wheel_sync": {"last_result": "ok"}, "current_run_id": None}

    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        assert await one.update("w", to(record)) == record
        assert await other.get("w") == record
        assert await other.all() == [record]

    attempt(backend, body)


def test_worker_id_may_be_a_host_name(backend: Backend) -> None:
    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        await one.update("host.example", to({"worker_id": "host.example"}))
        assert await other.get("host.example") == {"worker_id": "host.example"}
        assert await other.get("host") is None

    attempt(backend, body)


@pytest.mark.parametrize("worker_id", ["", "*", ">", "a b", ".a", "a..b", "実行", "x" * 129, "\r\nPUB x 0"])
def test_get_returns_nothing_for_an_invalid_worker_id(backend: Backend, worker_id: str) -> None:
    async def body(one: WorkerRegistry, _other: WorkerRegistry) -> None:
        await one.update("w", to({"worker_id": "w"}))
        assert await one.get(worker_id) is None

    attempt(backend, body)


def test_update_receives_the_stored_record(backend: Backend) -> None:
    async def body(one: WorkerRegistry, other: WorkerRegistry) -> list[WorkerRecord | None]:
        seen: list[WorkerRecord | None] = []

        def hide(current: WorkerRecord | None) -> WorkerRecord:
            seen.append(current)
            return {**(current or {}), "hidden": True}

        await one.update("w", to({"worker_id": "w", "hidden": False}))
        assert await other.update("w", hide) == {"worker_id": "w", "hidden": True}
        assert await one.get("w") == {"worker_id": "w", "hidden": True}
        await one.update("v", hide)
        return seen

    assert attempt(backend, body) == [{"worker_id": "w", "hidden": False}, None]


def test_update_that_returns_none_changes_nothing(backend: Backend) -> None:
    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        assert await one.update("w", lambda _current: None) is None
        assert await other.all() == []
        await one.update("w", to({"worker_id": "w"}))
        assert await other.update("w", lambda _current: None) is None
        assert await one.get("w") == {"worker_id": "w"}

    attempt(backend, body)


def test_update_that_raises_changes_nothing(backend: Backend) -> None:
    def fail(_current: WorkerRecord | None) -> WorkerRecord:
        raise LookupError("no such worker")

    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        await one.update("w", to({"worker_id": "w"}))
        with pytest.raises(LookupError, match="no such worker"):
            await other.update("w", fail)
        assert await one.get("w") == {"worker_id": "w"}

    attempt(backend, body)


def test_concurrent_updates_of_one_record_lose_no_change(backend: Backend) -> None:
    def count(current: WorkerRecord | None) -> WorkerRecord:
        return {"worker_id": "w", "count": (current or {"count": 0})["count"] + 1}

    async def body(one: WorkerRegistry, other: WorkerRegistry) -> WorkerRecord | None:
        await asyncio.gather(*[registry.update("w", count) for registry in (one, other) for _ in range(12)])
        return await one.get("w")

    assert attempt(backend, body) == {"worker_id": "w", "count": 24}


def test_all_returns_many_records_sorted_by_id(backend: Backend) -> None:
    ids = [f"worker-{number:04}" for number in range(1_200)]

    async def body(one: WorkerRegistry, other: WorkerRegistry) -> list[str]:
        for start in range(0, len(ids), 200):
            some = reversed(ids[start : start + 200])
            await asyncio.gather(*[one.update(worker_id, to({"worker_id": worker_id})) for worker_id in some])
        await one.update(ids[7], to({"worker_id": ids[7], "again": True}))
        return [record["worker_id"] for record in await other.all()]

    assert attempt(backend, body) == ids


def test_returned_records_are_copies(backend: Backend) -> None:
    async def body(one: WorkerRegistry, other: WorkerRegistry) -> None:
        given = {"worker_id": "w", "tags": ["cpu"]}
        returned = await one.update("w", to(given))
        given["tags"].append("changed")  # type: ignore[attr-defined]  # a list
        for copy in (returned, await one.get("w"), *await one.all()):
            assert copy is not None
            copy["tags"].append("changed, too")
        assert await other.get("w") == {"worker_id": "w", "tags": ["cpu"]}

    attempt(backend, body)
