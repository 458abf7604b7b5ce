"""Reading an output for callers outside of the workers: what a damaged or changing store leads to."""

import asyncio
import hashlib
import itertools
from datetime import UTC, datetime

import pytest

from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.output_reading import NodeOutput, OutputLostError, node_output
from pyoco_server.core import Actor, ActorKind, Event, ExecutionState, fold
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.core.payloads import ExecutionCreated, ExecutionStarted, NodeCreated, NodeStarted, NodeSucceeded

NAME = "run-1/work/1"
DATA = bytes(range(256)) * 4_096
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def state_with(output: JsonObject) -> ExecutionState:
    """The state of a run whose node ``work`` recorded this output."""
    numbers = itertools.count()
    payloads = (
        ExecutionCreated(graph_id="g"),
        ExecutionStarted(),
        NodeCreated(node_id="work", node_type="Task"),
        NodeStarted(node_id="work", attempt=1, worker_id="w"),
        NodeSucceeded(node_id="work", attempt=1, output=output),
    )
    events = [
        Event(
            event_id=str(next(numbers)),
            execution_id="run-1",
            occurred_at=NOW,
            actor=Actor(ActorKind.SYSTEM),
            payload=payload,
        )
        for payload in payloads
    ]
    return fold(events)


def described(data: bytes, name: str = NAME) -> JsonObject:
    return {"stored": {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}


async def read(found: NodeOutput, got: bytearray) -> None:
    async for piece in found.pieces:
        got += piece


def test_a_stored_output_is_read_in_pieces() -> None:
    async def scenario() -> None:
        store = MemoryOutputStore()
        await store.put(NAME, DATA)
        found = await node_output(state_with(described(DATA)), "work", store)
        pieces = [piece async for piece in found.pieces]
        assert len(pieces) > 1
        assert (b"".join(pieces), found.size) == (DATA, len(DATA))

    asyncio.run(scenario())


@pytest.mark.parametrize("other", [b"", DATA[:-1], DATA[::-1]])
def test_an_object_that_changes_while_it_is_read_is_not_completed(other: bytes) -> None:
    async def scenario() -> None:
        store = MemoryOutputStore()
        await store.put(NAME, DATA)
        found = await node_output(state_with(described(DATA)), "work", store)
        await store.delete(NAME)
        await store.put(NAME, other)
        got = bytearray()
        with pytest.raises(UnavailableError, match="changed while it was read"):
            await read(found, got)
        assert len(got) < len(DATA)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "output",
    [
        described(DATA[1:]),
        described(DATA, "run-1/work/2"),
        described(DATA, "run-1/"),
        described(DATA, "run-1/" + "x" * 10_000),
        described(DATA, "run-2/work/1"),
        described(DATA, "run-10/work/1"),
        {"stored": {"name": 7, "sha256": "x"}},
        {"stored": "run-1/work/1"},
        {"stored": {"name": NAME}, "output_kind": "unknown"},
        {"output_kind": "pickle", "value": 1},
        {},
    ],
)
def test_an_output_that_is_not_kept_as_the_log_says_is_lost(output: JsonObject) -> None:
    async def scenario() -> None:
        store = MemoryOutputStore()
        for name in (NAME, "run-2/work/1", "run-10/work/1"):
            await store.put(name, DATA)
        with pytest.raises(OutputLostError) as lost:
            await node_output(state_with(output), "work", store)
        assert lost.value.details["node_id"] == "work"
        assert lost.value.details["reason"]

    asyncio.run(scenario())
