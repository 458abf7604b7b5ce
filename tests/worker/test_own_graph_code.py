"""A run that has started is driven with the functions that a worker has, whatever became of the flow around them."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from pyoco_server import wait
from pyoco_server.core import NodeStatus
from pyoco_server.flows.model import FlowModel, Network, TaskSpec
from pyoco_server.worker.settlement import Ack
from tests.worker.own_graph_flows import flow_of, parked_and_resumed, task_of
from tests.worker.world import USER, World, attempt

# --- Functions -------------------------------------------------------------------------------------------------------


YAML = """
version: 1
flow:
  graph: w >> (one & two) >> last
tasks:
  w: {wait: {}}
  one: {callable: "code_of_a_deploy:one"}
  two: {callable: "code_of_a_deploy:two"}
  last: {callable: "code_of_a_deploy:last"}
"""


def _module(calls: list[str], *names: str) -> ModuleType:
    module = ModuleType("code_of_a_deploy")

    def function(name: str) -> Callable[[], None]:
        return lambda: calls.append(name)

    vars(module).update({name: function(name) for name in names})
    return module


def test_a_started_run_of_a_flow_yaml_is_held_only_at_tasks_whose_function_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        monkeypatch.setitem(sys.modules, "code_of_a_deploy", _module(calls, "one", "two", "last"))
        run_id = await world.submit("f", workflow_yaml=YAML)
        assert await world.hand({}).work() == Ack()
        await world.resume(run_id, "w", 1, USER)
        monkeypatch.setitem(sys.modules, "code_of_a_deploy", _module(calls, "one", "last"))
        await world.hand({}, "without").work()
        held = (await world.stored(run_id))["held"]
        assert (calls, held["needs"]) == (["one"], ["two"])
        monkeypatch.setitem(sys.modules, "code_of_a_deploy", _module(calls, "one", "two", "last"))
        await world.run_log.wake_held(run_id, held["since"])
        await world.hand({}, "with").work()
        assert ((await world.stored(run_id))["status"], calls) == ("COMPLETED", ["one", "two", "last"])

    attempt(body)


def test_a_fresh_run_of_a_flow_yaml_with_a_missing_function_fails_before_anything_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(world: World) -> None:
        calls: list[str] = []
        monkeypatch.setitem(sys.modules, "code_of_a_deploy", _module(calls, "one", "last"))
        run_id = await world.submit("f", workflow_yaml=YAML)
        await world.hand({}).work()
        stored = await world.stored(run_id)
        assert (stored["status"], calls) == ("FAILED", [])
        assert [letter["reason"] for letter in await world.dead()] == ["flow_not_found"]

    attempt(body)


# --- Flows that cannot run -------------------------------------------------------------------------------------------


def _contradiction() -> FlowModel:
    both = TaskSpec(name="a", callable="os.path:join", recompute=True, at_most_once=True)
    return FlowModel(name="f", body=Network((both,), {"a": ()}))


def test_a_fresh_run_whose_flow_cannot_be_laid_out_fails_at_once() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("f")
        await world.hand(lambda _: _contradiction()).work()
        stored = await world.stored(run_id)
        assert (stored["status"], world.queue.settled) == ("FAILED", ["ack"])
        assert "contradict each other" in stored["error"]

    attempt(body)


def test_a_started_run_whose_edited_flow_cannot_be_laid_out_is_held() -> None:
    async def body(world: World) -> None:
        run_id = await parked_and_resumed(world, flow_of(wait("w"), task_of("b", lambda: None)))
        await world.hand(lambda _: _contradiction(), "edited").work()
        stored = await world.stored(run_id)
        assert (stored["status"], stored["held"]["needs"]) == ("RUNNING", ["b"])
        assert (await world.state(run_id)).nodes["b"].status is NodeStatus.READY

    attempt(body)
