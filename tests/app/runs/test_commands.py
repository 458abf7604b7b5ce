"""Commands under faults: a resume in the log always reaches a worker, an archive always reaches the snapshot."""

from typing import Any

import msgspec
import pytest

from pyoco_server.adapters.memory.registries import MemoryGraphRegistry
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runs.commands import RunCommands, Sender
from pyoco_server.app.runs.run_log import RunLog
from pyoco_server.core.json_codec import JsonObject
from pyoco_server.worker.settlement import Ack
from tests.app.runtime.flows import Calls, approval_flow
from tests.worker.faulty import Fault
from tests.worker.world import USER, World, attempt

ANN: dict[str, Any] = {"actor": {"kind": "user", "id": "ann"}}
RESUME: JsonObject = {"type": "ResumeNode", "nodeId": "approval", "input": {"ok": True}}
MINE = Sender(actor=USER, key="mine")
DEADLINE = {
    "graphId": "driven",
    "nodes": [
        {"nodeId": "start", "nodeType": "Start"},
        {"nodeId": "nod", "nodeType": "Task", "task": "nod"},
        {"nodeId": "end", "nodeType": "Success"},
    ],
    "edges": [{"from": "start", "to": "nod"}, {"from": "nod", "to": "end"}],
}


def commands(world: World) -> RunCommands:
    """Return the commands of another process, which shares no memory with the first."""
    parts: dict[str, Any] = {"log": world.log, "snapshots": world.snapshots, "queue": world.queue}
    run_log = RunLog(**parts, clock=world.clock, new_id=world.new_id, max_snapshot_bytes=262_144)
    return RunCommands(run_log, MemoryGraphRegistry())


async def parked(world: World, calls: Calls) -> str:
    run_id = await world.submit("approval")
    assert await world.hand({"approval": approval_flow(calls)}).work() == Ack()
    return run_id


@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED])
def test_a_wake_up_that_the_queue_refuses_is_retried(fault: Fault) -> None:
    async def body(world: World) -> None:
        calls = Calls()
        run_id = await parked(world, calls)
        began = world.clock.now()
        world.trouble.next("queue.publish", *[fault] * 4)
        assert (await commands(world).give_from(run_id, RESUME, MINE)).events
        assert await world.hand({"approval": approval_flow(calls)}, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (world.clock.now() - began).total_seconds() < 5

    attempt(body)


def test_the_same_resume_again_queues_a_wake_up_that_was_never_sent() -> None:
    """The gateway that had the first request died, or did not learn its outcome."""

    async def body(world: World) -> None:
        calls = Calls()
        run_id = await parked(world, calls)
        world.trouble.next("log.append", Fault.UNANSWERED)
        world.trouble.meanwhile["log.append"] = lambda: _no_reading(world)
        with pytest.raises(UnavailableError):
            await commands(world).give_from(run_id, RESUME, MINE)
        assert "NODE_RESUMED" in await world.types(run_id)
        assert await world.queue.inner.backlog("default") == 0
        assert (await commands(world).give_from(run_id, RESUME, MINE)).events == []
        assert await world.hand({"approval": approval_flow(calls)}, "w2").work() == Ack()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert (await commands(world).give_from(run_id, RESUME, MINE)).events == []
        assert await world.queue.inner.backlog("default") == 0, "a run that has ended is woken for nothing"

    attempt(body)


async def _no_reading(world: World) -> None:
    world.trouble.next("log.read", Fault.NOT_DONE)


@pytest.mark.parametrize("default", [{}, {"default": 1}])
def test_an_execution_that_a_client_drives_gets_no_wake_up(default: dict[str, Any]) -> None:
    async def body(world: World) -> None:
        graphs = MemoryGraphRegistry()
        await graphs.put("driven", msgspec.json.encode(DEADLINE))
        commands = RunCommands(world.run_log, graphs)
        mine = (await commands.create_from({"graphId": "driven"}, Sender(actor=USER, key="k"))).execution_id
        for fields in (
            {"type": "StartExecution"},
            {"type": "StartNode", "nodeId": "nod"},
            {"type": "PutNodeWaiting", "nodeId": "nod", "deadline": world.clock.now().timestamp(), **default},
        ):
            await commands.give_from(mine, fields, Sender(actor=USER))
        await world.run_log.expire(mine, "nod", USER)
        assert await world.queue.inner.backlog("external") == 0
        assert (await world.stored(mine))["status"] == ("RUNNING" if default else "FAILED")

    attempt(body)


@pytest.mark.parametrize("call", ["snapshots.read", "snapshots.write"])
def test_an_archive_whose_snapshot_fails_is_unknown_and_the_next_one_writes_it(call: str) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        await world.cancel(run_id, USER)
        world.trouble.next(call, Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await world.commands.archive(run_id, Sender(actor=USER))
        assert (await world.types(run_id))[-1] == "EXECUTION_ARCHIVED"
        assert (await world.stored(run_id))["archived_at"] is None
        assert (await world.commands.archive(run_id, Sender(actor=USER))).events == []
        assert (await world.stored(run_id))["archived_at"] is not None

    attempt(body)
