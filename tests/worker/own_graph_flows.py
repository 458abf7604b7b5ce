"""Small flows for tests of runs that keep their own graph: chains with a wait, and workers with other code."""

from collections.abc import Callable, Mapping
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.worker.dispositions import Ack
from tests.worker.world import USER, World


def task_of(name: str, body: Callable[..., Any], inputs: Mapping[str, Any] | None = None) -> TaskWrapper:
    return TaskWrapper(Task(func=body, name=name, inputs=dict(inputs or {})))


def flow_of(*steps: TaskWrapper) -> Flow:
    flow = Flow("f")
    for step in steps:
        flow = flow >> step
    return flow


async def parked_and_resumed(world: World, flow: Flow) -> str:
    """A run that has been resumed after its wait, and that no worker has taken since."""
    run_id = await world.submit("f")
    assert await world.hand({"f": flow}).work() == Ack()
    await world.desk.resume(run_id, "w", 1, USER)
    return run_id
