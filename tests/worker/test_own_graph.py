"""A run keeps the graph in its log: an edited flow neither adds nor removes a node of a run that has started."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import wait
from pyoco_server.core import NodeStatus, graph_from_log
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.worker.settlement import Ack
from tests.worker.faulty import Fault
from tests.worker.own_graph_flows import readable
from tests.worker.world import USER, Held, World, attempt


def flow_of(names: Sequence[str], calls: list[str], name: str = "f") -> Flow:
    """A chain of tasks that record their names; ``w`` waits."""
    flow = Flow(name)
    for each in names:
        flow = flow >> (wait("w") if each == "w" else _recording(each, calls))
    return flow


def _recording(name: str, calls: list[str]) -> TaskWrapper:
    async def body() -> str:
        calls.append(name)
        return name

    return TaskWrapper(Task(func=body, name=name))


def started(events: Sequence[Any]) -> list[str]:
    payloads = [event.payload for event in events]
    return [each.node_id for each in payloads if isinstance(each, NodeStarted) and each.worker_id is not None]


@pytest.mark.parametrize(
    "edited",
    [["a", "w"], ["a", "w", "b", "new"], ["a", "w", "new", "b"], ["new", "w", "b"], ["w", "b"]],
    ids=["removed", "added behind", "added before", "renamed", "removed before"],
)
def test_a_parked_run_resumes_on_its_own_graph(edited: list[str]) -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        run_id = await world.submit("f")
        assert await world.hand({"f": flow_of(["a", "w", "b"], calls)}).work() == Ack()
        await world.resume(run_id, "w", 1, USER)
        hand = world.hand({"f": flow_of(edited, calls)}, "w2")
        await hand.work()
        graph = graph_from_log(await world.events(run_id))
        assert [each for each in graph.nodes if not each.startswith(":")] == ["a", "w", "b"]
        stored = await world.stored(run_id)
        if "b" in edited:
            assert (stored["status"], calls) == ("COMPLETED", ["a", "b"])
        else:
            assert (stored["status"], calls) == ("RUNNING", ["a"])
            assert stored["held"]["needs"] == ["b"]
            assert stored["held"]["seen_by"] == "w2"

    attempt(body)


def test_a_task_that_succeeded_is_not_blamed_when_its_worker_died_and_it_was_renamed() -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        run_id = await world.submit("f")
        first = world.hand({"f": flow_of(["a", "w", "b"], calls)})
        await first.work()
        await world.resume(run_id, "w", 1, USER)
        delivery = await first.pull()  # and dies with it
        assert delivery is not None
        await world.pass_time(31)
        await world.hand({"f": flow_of(["renamed", "w", "b"], calls)}, "w2").work()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert calls == ["a", "b"] == [each for each in started(await world.events(run_id)) if each != "w"]

    attempt(body)


async def _lost_at_work(world: World, calls: list[str]) -> None:
    """A worker starts the task behind the wait and is lost while it runs."""
    held = Held("b")
    flow = Flow("f") >> _recording("a", calls) >> wait("w") >> held.task()
    lost = world.hand({"f": flow}, "lost")
    job = asyncio.create_task(lost.handle(await lost.pull()))
    await held.at_work()
    calls.append("b")
    world.trouble.always("log.append", Fault.NOT_DONE)  # nothing that it writes from now on arrives
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    world.trouble.always("log.append", Fault.NONE)


@pytest.mark.parametrize("renamed", ["a", "b"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["resume", "takeover"])
def test_a_run_keeps_the_name_of_a_task_that_is_renamed_while_it_waits(renamed: str, *, is_lost: bool) -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        run_id = await world.submit("f")
        original = flow_of(["a", "w", "b"], calls)
        assert await world.hand({"f": original}).work() == Ack()
        await world.resume(run_id, "w", 1, USER)
        if is_lost:
            await _lost_at_work(world, calls)
            await world.pass_time(31)
        names = ["renamed" if each == renamed else each for each in ["a", "w", "b"]]
        await world.hand({"f": flow_of(names, calls)}, "edited").work()
        stored = await world.stored(run_id)
        if renamed == "b":
            assert (stored["status"], stored["held"]["needs"]) == ("RUNNING", ["b"])
            await world.run_log.wake_held(run_id, stored["held"]["since"])
            await world.hand({"f": original}, "original").work()
        stored = await world.stored(run_id)
        assert (stored["status"], calls) == ("COMPLETED", ["a", *["b"] * (1 + is_lost)])
        assert (await world.state(run_id)).nodes["b"].attempt == 1 + is_lost
        assert await world.dead() == []
        await readable(world, run_id)

    attempt(body)


NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)


@settings(max_examples=40, deadline=None)
@given(names=NAMES, edits=st.lists(NAMES, min_size=1, max_size=3), at=st.integers(0, 4))
def test_any_edit_at_any_place_leaves_the_run_on_its_graph(names: list[str], edits: list[list[str]], at: int) -> None:
    """Random flows, edited at random between takeovers by other workers; at the end a worker has all of the code."""

    async def body(world: World) -> None:
        calls: list[str] = []
        mine = [*names[:at], "w", *names[at:]]
        run_id = await world.submit("f")
        assert await world.hand({"f": flow_of(mine, calls)}).work() == Ack()
        await world.resume(run_id, "w", 1, USER)
        for number, edited in enumerate(edits):
            await world.hand({"f": flow_of(edited, calls)}, f"edited-{number}").work()
            await readable(world, run_id)
            if (await world.stored(run_id))["status"] == "COMPLETED":
                break
            held = (await world.stored(run_id))["held"]
            assert set(held["needs"]) <= {*names} - {*edited}
            await world.pass_time(1)
            await world.run_log.wake_held(run_id, held["since"])
        else:
            await world.hand({"f": flow_of([*"abcdef"], calls)}, "whole").work()
        await readable(world, run_id)
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert calls == names == [each for each in started(await world.events(run_id)) if each != "w"]
        state = await world.state(run_id)
        assert {node.status for node in state.nodes.values()} == {NodeStatus.SUCCEEDED}

    attempt(body)
