"""What every registry of wheels and every history promises, and what happens when NATS goes in between."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection, connect
from pyoco_server.adapters.jetstream.primitives.names import Names, object_stream
from pyoco_server.adapters.jetstream.stores.wheels import JetStreamWheelHistory, JetStreamWheelRegistry
from pyoco_server.adapters.memory.wheels import MemoryWheelHistory, MemoryWheelRegistry
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import (
    Admit,
    NewWheel,
    Wheel,
    WheelEvent,
    WheelHistory,
    WheelRegistry,
)
from pyoco_server.app.wheels.errors import WheelVersionError
from pyoco_server.app.wheels.names import must_be_newer
from tests.adapters.conftest import Backend, JetStream
from tests.adapters.proxy import proxy_to
from tests.gateway.stand import eventually
from tests.wheels.building import reading, wheel_name

R = TypeVar("R")
Open = Callable[[], Awaitable[WheelRegistry]]
DATA = random.Random(1).randbytes(1_000_000)
_new_id = uuid_maker()


def run(backend: Backend, body: Callable[[Open], Awaitable[R]]) -> R:
    in_memory: Callable[[], WheelRegistry] = MemoryWheelRegistry
    on_jetstream: Callable[[Connection, Names], WheelRegistry] = JetStreamWheelRegistry
    return backend.run(in_memory, on_jetstream, body)


def an_event(name: str, action: str = "upload", at: float = 1_700_000_000.0) -> WheelEvent:
    return msgspec.convert(
        {"event_id": _new_id(), "occurred_at": at, "action": action, "wheel_name": name, "tags": ["cpu"]}, WheelEvent
    )


def new(name: str, data: bytes = DATA, *tags: str) -> NewWheel:
    sha256_hex = hashlib.sha256(data).hexdigest()
    return NewWheel(name=name, sha256_hex=sha256_hex, tags=tags, requires_python=">=3.8", event=an_event(name))


def newer(name: str) -> Admit:
    return lambda there: must_be_newer(name, there)


async def add(registry: WheelRegistry, name: str, data: bytes = DATA) -> Wheel:
    return await registry.add(new(name, data, "cpu", "gpu"), reading(data), newer(name))


async def content(registry: WheelRegistry, wheel: Wheel) -> bytes:
    return b"".join([piece async for piece in registry.content(wheel)])


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 5_000_000])
def test_an_added_wheel_can_be_read_by_any_process(backend: Backend, size: int) -> None:
    data = random.Random(size).randbytes(size)

    async def body(open_registry: Open) -> None:
        added = await add(await open_registry(), wheel_name(), data)
        other = await open_registry()
        found = await other.find(wheel_name())
        assert found is not None
        assert (found.name, found.nuid, found.tags) == (added.name, added.nuid, ("cpu", "gpu"))
        assert found.size_bytes == size
        assert found.sha256_hex == hashlib.sha256(data).hexdigest()
        assert found.requires_python == ">=3.8"
        assert found.event == added.event
        assert [wheel.nuid for wheel in await other.all()] == [added.nuid]
        assert await content(other, found) == data

    run(backend, body)


def test_what_was_deleted_is_gone_with_its_content_but_not_from_the_events(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        registry = await open_registry()
        wheel = await add(registry, wheel_name())
        deleted = await registry.delete(wheel_name(), lambda found: an_event(found.name, "delete"))
        assert deleted is not None
        assert deleted[0].nuid == wheel.nuid
        assert await registry.delete(wheel_name(), lambda found: an_event(found.name, "delete")) is None
        assert await registry.find(wheel_name()) is None
        assert await registry.all() == []
        assert list(await registry.events()) == [deleted[1]]
        with pytest.raises(UnavailableError):
            await content(registry, wheel)
        again = await add(registry, wheel_name())
        assert again.nuid != wheel.nuid

    run(backend, body)


def test_only_one_of_concurrent_deletions_succeeds(backend: Backend) -> None:
    async def body(open_registry: Open) -> None:
        await add(await open_registry(), wheel_name())
        registries = [await open_registry() for _ in range(4)]
        deletions = [one.delete(wheel_name(), lambda found: an_event(found.name, "delete")) for one in registries]
        results = await asyncio.gather(*deletions)
        assert sum(result is not None for result in results) == 1

    run(backend, body)


@pytest.mark.spec("004 ERR-PYOCO-0022")
def test_additions_at_once_never_see_less_than_there_is(backend: Backend) -> None:
    versions = ["1.0", "1.0", "1.1", "1.2", "2.0", "2.0"]

    async def body(open_registry: Open) -> None:
        registries = [await open_registry() for _ in versions]
        names = [wheel_name("demo", version, f"py3-none-any{number}") for number, version in enumerate(versions)]
        pairs = zip(registries, names, strict=True)
        results = await asyncio.gather(*(add(one, name) for one, name in pairs), return_exceptions=True)
        added = [result.name for result in results if isinstance(result, Wheel)]
        assert all(isinstance(result, Wheel | WheelVersionError) for result in results)
        assert {wheel.name for wheel in await registries[0].all()} == set(added)
        assert len({name.split("-")[1] for name in added}) == len(added), "no version twice"
        assert any(name.startswith("demo-2.0") for name in added)

    run(backend, body)


def test_a_refused_addition_leaves_nothing(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        registry = JetStreamWheelRegistry(connection, names)
        await add(registry, wheel_name("demo", "1.0"))
        before = (await connection.js.stream_info(object_stream(names.wheels_bucket))).state.messages

        def late(there: Sequence[Wheel]) -> None:
            """Refuses when the chunks are stored, and not before."""
            if stored:
                must_be_newer(wheel_name("demo", "1.0"), there)

        stored: list[bool] = []
        name = wheel_name("demo", "0.9")
        with pytest.raises(WheelVersionError):
            await registry.add(new(name), reading(DATA, lambda: stored.append(True)), late)
        assert (await connection.js.stream_info(object_stream(names.wheels_bucket))).state.messages == before

    jetstream.run(body)


def test_chunks_an_upload_left_are_removed_when_they_are_old(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        registry = JetStreamWheelRegistry(connection, names)
        wheel = await add(registry, wheel_name())
        stream, left = object_stream(names.wheels_bucket), f"$O.{names.wheels_bucket}.C.left"
        await connection.js.publish(left, b"x")
        now = SystemClock().now().timestamp()
        await registry.tidy(now + 3_000)
        assert (await connection.js.stream_info(stream, subjects_filter=left)).state.subjects == {left: 1}
        await registry.tidy(now + 4_000)
        assert not (await connection.js.stream_info(stream, subjects_filter=left)).state.subjects
        assert await content(registry, wheel) == DATA

    jetstream.run(body)


def test_an_answer_that_was_lost_is_looked_up(jetstream: JetStream) -> None:
    """The wheel is stored, but the answer is lost: it is there once, and so the upload succeeds."""

    async def body(connection: Connection, names: Names) -> None:
        seen, asked = JetStreamWheelRegistry(connection, names), list[int]()
        async with (
            proxy_to(jetstream.server.port) as proxy,
            await connect(proxy.url, name="behind a bad network", request_timeout_sec=0.3) as bad,
        ):

            def admit(there: Sequence[Wheel]) -> None:
                asked.append(len(there))
                proxy.swallows_answers = len(asked) == 2  # the chunks are stored; the next message announces them

            async def is_there() -> bool:
                return bool(await seen.all())

            registry = JetStreamWheelRegistry(bad, names)
            adding = asyncio.create_task(registry.add(new(wheel_name()), reading(DATA), admit))
            await eventually(is_there)
            proxy.swallows_answers = False
            wheel = await adding
        assert [found.nuid for found in await seen.all()] == [wheel.nuid]
        assert await content(seen, wheel) == DATA
        assert asked == [0, 0]

    jetstream.run(body)


def test_an_unreachable_store_takes_nothing_and_keeps_no_part(jetstream: JetStream) -> None:
    async def body(connection: Connection, names: Names) -> None:
        seen = JetStreamWheelRegistry(connection, names)
        async with (
            proxy_to(jetstream.server.port) as proxy,
            await connect(proxy.url, name="behind a bad network", request_timeout_sec=0.2) as bad,
        ):

            def cut() -> None:
                proxy.swallows_answers = True

            with pytest.raises(UnavailableError):
                await JetStreamWheelRegistry(bad, names).add(new(wheel_name()), reading(DATA, cut), newer(wheel_name()))
            proxy.swallows_answers = False
        for wheel in await seen.all():
            assert await content(seen, wheel) == DATA
        await add(seen, wheel_name("demo", "2.0"))

    jetstream.run(body)


@pytest.mark.spec("004 §付録E")
def test_the_history_keeps_each_event_once(backend: Backend) -> None:
    in_memory: Callable[[], WheelHistory] = MemoryWheelHistory
    on_jetstream: Callable[[Connection, Names], WheelHistory] = JetStreamWheelHistory
    events = [an_event(wheel_name("demo", str(number))) for number in range(3)]

    async def body(open_history: Callable[[], Awaitable[WheelHistory]]) -> None:
        history = await open_history()
        for event in [*events, *events]:
            await history.add(event)
        assert {event.event_id: event for event in await (await open_history()).all()} == {
            event.event_id: event for event in events
        }

    backend.run(in_memory, on_jetstream, body)
