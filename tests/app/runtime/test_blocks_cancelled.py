"""A cancel between the start of a block and the creation of a node inside it."""

import logging
from typing import Any

import pytest

from pyoco_server.core.payloads import NodeCreated
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Parallel,
    Program,
    Repeat,
    Step,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
)
from tests.worker.test_own_graph_random import Calls, CancelAt, Code
from tests.worker.world import World, attempt

BODY = (TaskStep(TaskSpec(name="inside")),)
BLOCKS: dict[str, Step] = {
    "repeat": Repeat(2, BODY),
    "foreach": ForEach("$ctx.params.items", BODY, parallel=2),
    "until": Until("$ctx.params.items", BODY, max_iter=2),
    "switch": Switch("$ctx.params.items", (), BODY),
    "parallel": Parallel((BODY, (TaskStep(TaskSpec(name="other")),))),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_cancel_before_a_node_inside_a_block_is_created_is_no_error(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("f", {"items": [1, 2]})
        append = world.log.append

        async def cancelled_first(execution_id: str, commit: Any, **fields: Any) -> int:
            if any(isinstance(event.payload, NodeCreated) and "inside" in event.payload.node_id for event in commit):
                world.log.append = append  # type: ignore[method-assign]
                await world.cancel(run_id)
            return await append(execution_id, commit, **fields)

        world.log.append = cancelled_first  # type: ignore[method-assign]
        calls = Calls(world, set(), CancelAt(0, -1))
        await world.hand(Code(FlowModel(name="f", body=Program((BLOCKS[kind],))), calls)).work()
        assert ((await world.stored(run_id))["status"], calls.begun) == ("CANCELLED", [])

    with caplog.at_level(logging.ERROR):
        attempt(body)
    assert [record.getMessage() for record in caplog.records] == []
