"""Values of inputs and parameters of a run that has started come from its log, with their types."""

import sys
import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import wait
from pyoco_server.flows.definitions import logged_steps
from pyoco_server.flows.model import FlowModel, Network, TaskSpec
from pyoco_server.flows.plan import plan
from tests.worker.own_graph_flows import flow_of, parked_and_resumed, task_of
from tests.worker.world import World, attempt

LOCK = threading.Lock()
"""Neither JSON nor a pickle can hold it."""


@dataclass
class Order:
    lines: tuple[int, ...]
    due: date


VALUES: dict[str, Any] = {
    "date": date(2026, 2, 28),
    "tuple": (1, "two", Decimal("3.0")),
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "dataclass": Order((1, 2), date(2026, 1, 1)),
    "like a tag": {"$date": "2026-01-01"},
    "whole floats": [1.0, 1, True],
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_input_of_any_type_is_in_the_log_and_keeps_its_type(value: Any) -> None:
    async def body(world: World) -> None:
        found: list[Any] = []

        def use(given: Any = None) -> None:
            found.append(given)

        run_id = await parked_and_resumed(world, flow_of(wait("w"), task_of("use", use, {"given": value})))
        await world.hand({"f": flow_of(wait("w"), task_of("use", use))}, "without").work()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        [same] = found
        assert (same, type(same)) == (value, type(value))
        if isinstance(value, tuple | list):
            assert [type(each) for each in same] == [type(each) for each in value]

    attempt(body)


def test_an_input_that_no_log_can_hold_comes_from_the_workers_flow_or_the_run_is_held() -> None:
    async def body(world: World) -> None:
        found: list[Any] = []

        def use(lock: Any = None, more: Any = None) -> None:
            found.append((lock, more))

        def flow(**inputs: Any) -> Flow:
            return flow_of(wait("w"), task_of("use", use, inputs))

        run_id = await parked_and_resumed(world, flow(lock=LOCK, more=(1,)))
        await world.hand({"f": flow()}, "without").work()
        held = (await world.stored(run_id))["held"]
        assert (held["needs"], held["seen_by"], found) == (["use"], "without", [])
        await world.run_log.wake_held(run_id, held["since"])
        await world.hand({"f": flow(lock=LOCK)}, "with").work()
        assert (await world.stored(run_id))["status"] == "COMPLETED"
        assert found == [(LOCK, (1,))]

    attempt(body)


def test_an_input_whose_class_cannot_be_imported_holds_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("orders_of_a_deploy")
    kind: Any = type("Order", (), {"__annotations__": {"number": int}, "__module__": module.__name__})
    kind.__qualname__ = "Order"
    vars(module)["Order"] = dataclass(kind)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    async def body(world: World) -> None:
        found: list[Any] = []
        inputs = {"order": vars(module)["Order"](7)}

        def use(order: Any = None) -> None:
            found.append(order.number)

        run_id = await parked_and_resumed(world, flow_of(wait("w"), task_of("use", use, inputs)))
        with monkeypatch.context() as without:
            without.delitem(sys.modules, module.__name__)
            await world.hand({"f": flow_of(wait("w"), task_of("use", use))}, "without").work()
        held = (await world.stored(run_id))["held"]
        assert (held["needs"], found) == (["use"], [])
        await world.run_log.wake_held(run_id, held["since"])
        await world.hand({"f": flow_of(wait("w"), task_of("use", use))}, "with").work()
        assert ((await world.stored(run_id))["status"], found) == ("COMPLETED", [7])

    attempt(body)


def test_an_input_that_is_nested_too_deeply_for_a_log_comes_from_the_workers_flow() -> None:
    async def body(world: World) -> None:
        found: list[Any] = []
        deep: list[Any] = []
        for _ in range(300):
            deep = [deep]

        def use(deep: Any) -> None:
            found.append(deep)

        def flow(**inputs: Any) -> Flow:
            return flow_of(wait("w"), task_of("use", use, inputs))

        run_id = await parked_and_resumed(world, flow(deep=deep))
        await world.hand({"f": flow(deep=deep)}, "with").work()
        assert ((await world.stored(run_id))["status"], found) == ("COMPLETED", [deep])

    attempt(body)


def test_defaults_of_parameters_of_any_type_are_in_the_log() -> None:
    network = Network((TaskSpec(name="a"),), {"a": ()})
    model = FlowModel(name="f", body=network, defaults={"due": date(2026, 1, 1), "plain": 1, "lock": LOCK})
    said = logged_steps(plan(model).graph).defaults
    assert said is not None
    assert said.read({}) == ({"due": date(2026, 1, 1), "plain": 1}, (), ("lock",))
    assert said.read({"lock": LOCK, "plain": 2, "new": 3}) == (
        {"due": date(2026, 1, 1), "plain": 1, "lock": LOCK},
        (),
        (),
    )
