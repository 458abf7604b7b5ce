"""A run says which wheels it was executed with."""

from typing import Any

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.wheels.used import MOST, read_wheels, wheels_used
from pyoco_server.core.payloads import NodeStarted
from tests.app.runtime.flows import Calls
from tests.worker.world import USER, World, attempt

OLD = {"greetings-1.0-py3-none-any.whl": "0123456789ab"}
NEW = {"greetings-2.0-py3-none-any.whl": "ba9876543210"}


async def said(world: World, run_id: str) -> list[Any]:
    """What each start of a node by a worker said of wheels."""
    payloads = [event.payload for event in await world.events(run_id)]
    started = [payload for payload in payloads if isinstance(payload, NodeStarted) and payload.worker_id is not None]
    return [payload.extra.get("wheels") for payload in started]


def test_the_first_start_names_the_wheels_and_the_snapshot_lists_them() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        flow = Flow("two") >> calls.task("a", 1) >> calls.task("b", 2)
        run_id = await world.submit("two")
        await world.hand({"two": flow}, wheels=OLD).work()
        assert await said(world, run_id) == [OLD, None]
        assert (await world.stored(run_id))["wheels"] == OLD

    attempt(body)


def test_a_worker_without_wheels_names_none() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await world.submit("one")
        await world.hand({"one": Flow("one") >> calls.task("a", 1)}).work()
        assert await said(world, run_id) == [None]
        assert "wheels" not in await world.stored(run_id)

    attempt(body)


def test_a_worker_with_other_wheels_names_them_and_one_with_the_same_does_not() -> None:
    async def body(world: World) -> None:
        calls = Calls()
        flow = (
            Flow("long") >> calls.task("a", 1) >> wait("w1") >> calls.task("b", 2) >> wait("w2") >> calls.task("c", 3)
        )
        run_id = await world.submit("long")
        await world.hand({"long": flow}, wheels=OLD).work()
        await world.resume(run_id, "w1", {}, USER)
        await world.hand({"long": flow}, "same", wheels=OLD).work()
        assert await said(world, run_id) == [OLD, None, None, None]
        await world.resume(run_id, "w2", {}, USER)
        await world.hand({"long": flow}, "other", wheels=NEW).work()
        assert (await said(world, run_id))[-1] == NEW
        stored = await world.stored(run_id)
        assert (stored["status"], stored["wheels"]) == ("COMPLETED", {**OLD, **NEW})

    attempt(body)


def test_a_run_that_fails_before_its_first_task_names_the_wheels_too() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("missing")
        await world.hand({}, wheels=NEW).work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["wheels"]) == ("FAILED", NEW)

    attempt(body)


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "greetings",
        ["a.whl"],
        {"a.whl": 1},
        {"a/b.whl": ""},
        {"a": "0"},
        {"a.whl": "<b>"},
        {f"{n}.whl": "" for n in range(51)},
    ],
)
def test_other_values_of_the_field_are_ignored(odd: object) -> None:
    assert read_wheels(odd) is None


def test_of_very_many_only_the_first_are_named() -> None:
    plain = Wheel(name="", size_bytes=1, bucket="b", nuid="n", modified=0.0, sha256_hex="f" * 64)
    named = wheels_used([msgspec.structs.replace(plain, name=f"w{n:02}-1-py3-none-any.whl") for n in range(60)])
    assert len(named) == MOST
    assert read_wheels(named) == named
    assert set(named.values()) == {"f" * 12}
