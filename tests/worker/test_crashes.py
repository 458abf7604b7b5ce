"""A worker's death counts against the task that ran; a graceful stop does not."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import switch  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import options
from pyoco_server.app.recovery.dead_letter import DeadLetter, DeadReason
from pyoco_server.app.runtime.crashes import is_under_suspicion
from pyoco_server.core.payloads import NodeFailReported, NodeStarted
from pyoco_server.worker.settlement import Ack, Settlement
from tests.app.runtime.flows import Calls
from tests.invariants import check_no_repeats
from tests.worker.world import Hand, Held, World, attempt

DEAD_SEC = 31.0


async def begin(hand: Hand, held: Held) -> "asyncio.Task[Settlement]":
    """Let a worker take the next job, as far as its held task."""
    working = asyncio.create_task(hand.work())
    await held.at_work()
    return working


async def die(world: World, hand: Hand, held: Held) -> None:
    """Let a worker take the job and send no heartbeat from then on: to the others, it is dead."""
    _ = await begin(hand, held)
    await world.pass_time(DEAD_SEC)


async def stop(working: "asyncio.Task[Any]") -> None:
    working.cancel()
    await asyncio.wait([working])


async def starts(world: World, run_id: str) -> list[Any]:
    payloads = [event.payload for event in await world.events(run_id)]
    found = [payload for payload in payloads if isinstance(payload, NodeStarted) and payload.node_id == "held"]
    return [payload.extra.get("crashed") for payload in found]


def test_the_third_death_fails_the_task_and_the_log_has_the_count() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        for name in ("w1", "w2", "w3"):
            await die(world, world.hand(flows, name), held)
        assert await world.hand(flows, "w4").work() == Ack(letter=world_letter(run_id, await world.stored(run_id)))
        state = await world.state(run_id)
        node = state.nodes["held"]
        assert (node.status, node.attempt, (node.error or {})["code"]) == ("FAILED", 3, "WORKER_DIED")
        message = (node.error or {})["message"]
        assert "3 workers died or were cut off" in message
        assert "max_crashes=3" in message
        assert all(name in message for name in ("w1", "w2", "w3"))
        crashed = await starts(world, run_id)
        assert [said and (said["attempt"], said["crashes"]) for said in crashed] == [None, (1, 1), (2, 2)]
        check_no_repeats(await world.events(run_id))

    attempt(body)


def world_letter(run_id: str, stored: dict[str, Any]) -> DeadLetter:
    return DeadLetter(
        reason=DeadReason.EXECUTION_ERROR, error=stored["error"], run_id=run_id, flow_name="held", tags=("default",)
    )


def test_a_task_may_allow_fewer_deaths_and_a_crash_uses_up_no_retry() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> options(held.task(), max_crashes=1, retries=5)}
        run_id = await world.submit("held")
        await die(world, world.hand(flows, "w1"), held)
        await world.hand(flows, "w2").work()
        node = (await world.state(run_id)).nodes["held"]
        assert (node.status, node.attempt, (node.error or {})["code"]) == ("FAILED", 1, "WORKER_DIED")

    attempt(body)


def test_workers_that_stop_in_good_order_are_no_crashes_even_if_the_snapshot_is_lost() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> options(held.task(), max_crashes=1)}
        run_id = await world.submit("held")
        for number in range(4):
            await stop(await begin(world.hand(flows, f"w{number}"), held))
            await world.snapshots.inner.delete(run_id)
        held.release()
        assert await world.hand(flows, "last").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert await starts(world, run_id) == [None] * 5

    attempt(body)


def test_a_run_whose_task_has_seen_two_deaths_is_under_suspicion_however_often_it_was_delivered() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        for name in ("w1", "w2"):
            events = await world.events(run_id)
            assert not is_under_suspicion(events, await world.state(run_id), "me", crashes=2)
            await die(world, world.hand(flows, name), held)
        assert is_under_suspicion(await world.events(run_id), await world.state(run_id), "me", crashes=2)

    attempt(body)


class Sticky:
    """To compare it takes until it is released."""

    began = threading.Event()
    released = threading.Event()

    @override
    def __eq__(self, other: object) -> bool:
        self.began.set()
        assert self.released.wait(20)
        return other == 1

    __hash__ = object.__hash__


@pytest.fixture
def sticky() -> Iterator[type[Sticky]]:
    Sticky.began.clear()
    Sticky.released.clear()
    yield Sticky
    Sticky.released.set()


async def stick(hand: Hand, sticky: type[Sticky]) -> "asyncio.Task[Settlement]":
    """Let a worker take the next job, as far as the code of the user that does not return."""
    working = asyncio.create_task(hand.work())
    assert await asyncio.to_thread(sticky.began.wait, 20)
    sticky.began.clear()
    return working


def choosing() -> dict[str, Flow]:
    flow = Flow("choosing") >> Calls().task("make", lambda _: Sticky())
    return {"choosing": flow >> switch("$ctx.results.make")[1 >> Calls().task("last", 1)]}


def test_the_third_death_during_an_expression_fails_its_block(sticky: type[Sticky]) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("choosing")
        for name in ("w1", "w2", "w3"):
            _ = await stick(world.hand(choosing(), name), sticky)
            await world.pass_time(DEAD_SEC)
        await world.hand(choosing(), "w4").work()
        state = await world.state(run_id)
        (node,) = [node for node in state.nodes.values() if (node.error or {}).get("code") == "WORKER_DIED"]
        assert (state.status, node.attempt) == ("FAILED", 3)
        message = (node.error or {})["message"]
        assert f"the expression of node '{node.node_id}' is not evaluated again: 3 workers died" in message
        assert "return numbers, text, lists or dictionaries instead" in message

    attempt(body)


def test_a_worker_that_stops_in_good_order_during_an_expression_is_no_crash(sticky: type[Sticky]) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("choosing")
        for number in range(4):
            await stop(await stick(world.hand(choosing(), f"w{number}"), sticky))
        sticky.released.set()
        assert await world.hand(choosing(), "last").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"

    attempt(body)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_task_that_runs_at_most_once_is_not_called_again(*, is_stopped: bool) -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> options(held.task(), at_most_once=True)}
        run_id = await world.submit("held")
        first = await begin(world.hand(flows, "w1"), held)
        if is_stopped:
            await stop(first)
        else:
            await world.pass_time(DEAD_SEC)
        await world.hand(flows, "w2").work()
        state = await world.state(run_id)
        node = state.nodes["held"]
        assert (state.status, node.status, node.attempt) == ("FAILED", "FAILED", 1)
        assert (node.error or {})["code"] == "AT_MOST_ONCE"
        assert "outcome of the call is unknown" in (node.error or {})["message"]
        reports = [event for event in await world.events(run_id) if isinstance(event.payload, NodeFailReported)]
        assert len(reports) == 1
        assert len(await starts(world, run_id)) == 1

    attempt(body)
