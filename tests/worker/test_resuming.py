"""A resume from outside is in the log, and then no fault keeps a worker from hearing of it."""

from typing import Any

import msgspec
import pytest

from pyoco_server.adapters.memory.graphs import MemoryGraphRegistry
from pyoco_server.app.command_desk import Asked, CommandDesk
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.worker.dispositions import Ack
from tests.engine.flows import Calls, approval_flow
from tests.worker.faulty import Fault
from tests.worker.world import USER, World, attempt

ANN: dict[str, Any] = {"actor": {"kind": "user", "id": "ann"}}
RESUME = Asked(fields={**ANN, "type": "ResumeNode", "nodeId": "approval", "input": {"ok": True}}, key="mine")
DEADLINE = {
    "graphId": "driven",
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "nod", "nodeType": "Task", "task": "nod"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "nod"}, {"from": "nod", "to": "end"}],
}


def commands(world: World) -> CommandDesk:
    """As another process would have it, which knows nothing of what the first one has under way."""
    parts: dict[str, Any] = {"log": world.log, "snapshots": world.snapshots, "queue": world.queue}
    desk = RunDesk(**parts, clock=world.clock, new_id=world.new_id, max_snapshot_bytes=262_144)
    return CommandDesk(desk, MemoryGraphRegistry())


async def put_aside(world: World, calls: Calls) -> str:
    run_id = await world.submit("approval")
    assert await world.hand({"approval": approval_flow(calls)}).work() == Ack()
    return run_id


@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED])
def test_a_wake_up_that_is_lost_for_a_while_comes_all_the_same(fault: Fault) -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await put_aside(world, calls)
        began = world.clock.now()
        world.trouble.next("queue.publish", *[fault] * 4)
        assert (await commands(world).give(run_id, RESUME)).events
        assert await world.hand({"approval": approval_flow(calls)}, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (world.clock.now() - began).total_seconds() < 5

    attempt(body)


def test_the_same_resume_again_makes_up_for_a_wake_up_nobody_sent() -> None:
    """The gateway that had the first request died with it, or could not tell what had become of it."""

    async def body(world: World) -> None:
        calls = Calls()
        run_id = await put_aside(world, calls)
        world.trouble.next("log.append", Fault.UNANSWERED)
        world.trouble.meanwhile["log.append"] = lambda: _no_reading(world)
        with pytest.raises(UnavailableError):
            await commands(world).give(run_id, RESUME)
        assert "NODE_RESUMED" in await world.types(run_id)
        assert await world.queue.inner.backlog("default") == 0
        assert (await commands(world).give(run_id, RESUME)).events == []
        assert await world.hand({"approval": approval_flow(calls)}, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (await commands(world).give(run_id, RESUME)).events == []
        assert await world.queue.inner.backlog("default") == 0, "a run that has ended is woken for nothing"

    attempt(body)


async def _no_reading(world: World) -> None:
    world.trouble.next("log.read", Fault.NOT_DONE)


@pytest.mark.parametrize("default", [{}, {"default": 1}])
def test_nobody_is_woken_for_an_execution_that_is_driven_from_outside(default: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        graphs = MemoryGraphRegistry()
        await graphs.put("driven", msgspec.json.encode(DEADLINE))
        desk = CommandDesk(world.desk, graphs)
        mine = (await desk.create(Asked(fields={**ANN, "graphId": "driven"}, key="k"))).execution_id
        for fields in (
            {"type": "StartExecution"},
            {"type": "StartNode", "nodeId": "nod"},
            {"type": "PutNodeWaiting", "nodeId": "nod", "deadline": world.clock.now().timestamp(), **default},
        ):
            await desk.give(mine, Asked(fields={**ANN, **fields}))
        await world.desk.expire(mine, "nod", USER)
        assert await world.queue.inner.backlog("external") == 0
        assert (await world.stored(mine))["status"] == ("RUNNING" if default else "FAILED")

    attempt(body)
