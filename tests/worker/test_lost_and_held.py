"""A lost result whose task this worker does not have: the run is handed over or held, and no crash is counted."""

import threading
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import options, wait
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.worker.settlement import Ack, HandOver
from tests.app.runtime.flows import Calls
from tests.invariants import check_no_repeats
from tests.worker.world import USER, World, attempt

LOCK = threading.Lock()
"""Cannot be stored."""


def make(calls: Calls, name: str = "make") -> TaskWrapper:
    return options(calls.task(name, lambda _: {"n": 1, "lock": LOCK}), recompute=True)


def use(calls: Calls) -> Any:
    return options(calls.task("use", lambda ctx: ctx.results["make"]["lock"] is LOCK), max_crashes=1)


def choice(calls: Calls) -> Any:
    return switch("$ctx.results.make.n")[1 >> calls.task("one"), "default" >> calls.task("other")]


def asked(_: Calls) -> Any:
    return wait("asked", prompt={"question": "{{ results.make.n }}?"})


NEEDING = {"task": use, "choice": choice, "prompt": asked}


def flow(calls: Calls, needing: Any, name: str = "make") -> Flow:
    return Flow("f") >> make(calls, name) >> wait("w") >> needing(calls)


async def left_behind(world: World, needing: Any) -> str:
    """A run whose first worker is gone, and with it the result of ``make``."""
    run_id = await world.submit("f")
    assert await world.hand({"f": flow(Calls(), needing)}, "w1").work() == Ack()
    await world.resume(run_id, "w", 1, USER)
    return run_id


@pytest.mark.parametrize("kind", NEEDING)
def test_a_run_is_held_until_a_worker_has_the_task_whose_result_is_lost(kind: str) -> None:
    async def body(world: World) -> None:
        run_id = await left_behind(world, NEEDING[kind])
        calls = Calls()
        assert await world.hand({"f": flow(calls, NEEDING[kind], "renamed")}, "w2").work() == Ack()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["held"]["needs"], calls.names) == ("RUNNING", ["make"], [])
        await world.run_log.wake_held(run_id, stored["held"]["since"])
        assert await world.hand({"f": flow(calls, NEEDING[kind])}, "w3").work() == Ack()
        if kind == "prompt":
            assert (await world.state(run_id)).nodes["asked"].prompt == {"question": "1?"}
            await world.resume(run_id, "asked", 1, USER)
            await world.hand({"f": flow(calls, NEEDING[kind])}, "w3").work()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert calls.names == ["make", *{"task": ["use"], "choice": ["one"]}.get(kind, [])]
        starts = [event.payload for event in await world.events(run_id) if isinstance(event.payload, NodeStarted)]
        assert all("crashed" not in start.extra for start in starts)
        check_no_repeats(await world.events(run_id))

    attempt(body)


def test_a_run_is_handed_over_to_a_worker_that_may_have_the_task_whose_result_is_lost() -> None:
    async def body(world: World) -> None:
        run_id = await left_behind(world, use)
        calls = Calls()
        able = world.hand({"f": flow(calls, use)}, "w3")
        await able.registration.announce()
        lacking = world.hand({"f": flow(Calls(), use, "renamed")}, "w2")
        assert await lacking.work() == HandOver(lacking.instance_id)
        assert await able.work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert calls.names == ["make", "use"]

    attempt(body)


def test_a_run_that_is_held_for_a_lost_result_can_be_cancelled() -> None:
    async def body(world: World) -> None:
        run_id = await left_behind(world, use)
        await world.hand({"f": flow(Calls(), use, "renamed")}, "w2").work()
        assert (await world.cancel(run_id, USER))["status"] in {"CANCELLED", "CANCELLING"}
        assert (await world.stored(run_id))["status"] == "CANCELLED"

    attempt(body)


def test_a_worker_that_lacks_the_task_writes_nothing_however_often_it_gets_the_job() -> None:
    """Another worker of the tag may have the task but takes no jobs; it counts as live until it misses heartbeats."""

    async def body(world: World) -> None:
        run_id = await left_behind(world, use)
        stuck = world.hand({"f": flow(Calls(), use)}, "w3")
        await stuck.registration.announce()
        lacking = world.hand({"f": flow(Calls(), use, "renamed")}, "w2")
        assert await lacking.work() == HandOver(lacking.instance_id)
        before = len(await world.events(run_id))
        for _ in range(6):
            assert await lacking.work() == HandOver(lacking.instance_id)
        assert len(await world.events(run_id)) == before

    attempt(body)
