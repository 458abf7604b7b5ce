"""A process that takes a run over has the results of the one before, with value and type; it calls no task again."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import Engine, options
from pyoco_server.app.runtime.plan_cache import REMEMBERED, PlanCache
from pyoco_server.core import NodeStatus
from pyoco_server.engine import RunResult
from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.from_pyoco import read_flow
from pyoco_server.flows.plan import plan
from tests.app.runtime.flows import Calls, wait_until
from tests.app.runtime.hooks import program, run
from tests.app.runtime.leaving import Left, Make


def finished_elsewhere(make: Make, params: dict[str, Any] | None = None) -> tuple[RunResult, Calls]:
    return Left(make, params).finish_elsewhere()


def shown(calls: Calls) -> TaskWrapper:
    """The last step: what the others left, as text."""
    return calls.task("use", lambda ctx: repr(ctx.results.get("make")))


class Opaque:
    """Nothing JSON could say."""

    def __repr__(self) -> str:  # type: ignore[explicit-override]
        return "opaque"


@pytest.mark.parametrize("value", [(1, 2), {3}, Opaque(), [(1,)], {"k": {1}}], ids=repr)
def test_values_that_json_cannot_represent_survive_a_takeover(value: Any) -> None:
    result, calls = finished_elsewhere(lambda calls: Flow("o") >> calls.task("make", lambda _: value) >> shown(calls))
    assert (result.results["use"], calls.names) == (repr(value), ["use"])


BLOCKS: dict[str, tuple[Callable[[TaskWrapper], Any], str]] = {
    "repeat": (lambda make: make[3], "(2,)"),
    "switch": (lambda make: switch("$ctx.params.n")[1 >> make], "(0,)"),
    "until": (lambda make: make % ("$ctx.loop.iteration >= 2", 5), "(1,)"),
    "for_each": (lambda make: make["$ctx.params.items as item"], "(2,)"),
    "nested": (lambda make: (make[2])[2], "(1,)"),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_results_of_a_finished_block_survive_a_takeover(kind: str) -> None:
    block, value = BLOCKS[kind]

    def index(ctx: Any) -> tuple[int]:
        return (ctx.loop.index if ctx.loop else 0,)

    def make(calls: Calls) -> Flow:
        return Flow(kind) >> block(calls.task("make", index)) >> shown(calls)

    result, calls = finished_elsewhere(make, {"n": 1, "items": [7, 8, 9]})
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", value, ["use"])


def test_a_later_rounds_value_is_not_overwritten_by_an_earlier_ones() -> None:
    def some_tuple(ctx: Any) -> Any:
        return (ctx.loop.index,) if ctx.loop.index == 0 else ctx.loop.index

    result, calls = finished_elsewhere(lambda calls: Flow("r") >> calls.task("make", some_tuple)[3] >> shown(calls))
    assert (result.results["use"], calls.names) == ("2", ["use"])


def test_a_later_tasks_output_is_not_overwritten_by_an_earlier_ones() -> None:
    def make(calls: Calls) -> Flow:
        early = TaskWrapper(Task(func=lambda: {1}, name="early", outputs=["scratch.shared", "scratch.own"]))
        late = TaskWrapper(Task(func=lambda: "late", name="late", outputs=["scratch.shared"]))
        use = calls.task("use", lambda ctx: [repr(ctx.scratch["shared"]), repr(ctx.scratch["own"])])
        return Flow("s") >> early >> late >> use

    result, _ = finished_elsewhere(make)
    assert result.results["use"] == ["'late'", "{1}"]


# --- Cancel at once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("polls", [True, False])
def test_an_immediate_cancel_waits_for_no_task(polls: bool) -> None:
    begun, ended, stuck = threading.Event(), threading.Event(), threading.Event()

    def work(ctx: Any) -> None:
        begun.set()
        wait_until(lambda: ctx.is_cancelled if polls else stuck.is_set())
        ended.set()

    with Engine(cancel_grace_sec=60) as engine:
        run_id = engine.start(Flow("i") >> options(TaskWrapper(Task(func=work, name="work")), interrupt="flag"))
        assert begun.wait(60)
        assert engine.cancel(run_id, "now", immediate=True) is True
        assert engine.get(run_id).status == "CANCELED"  # when the answer comes, not later
        assert engine.wait(run_id).state.nodes["work"].status is NodeStatus.CANCELED
        assert engine.cancel(run_id, immediate=True) is False
        stuck.set()
        assert ended.wait(60)  # even an abandoned function is notified


def test_an_immediate_cancel_ends_a_cancel_that_waits() -> None:
    begun, stuck = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        stuck.wait(20)

    with Engine(cancel_grace_sec=60) as engine:
        run_id = engine.start(Flow("i") >> TaskWrapper(Task(func=work, name="work")))
        assert begun.wait(60)
        engine.cancel(run_id)
        assert engine.get(run_id).status == "ACTIVE"
        assert engine.cancel(run_id, immediate=True) is True
        assert engine.wait(run_id).status == "CANCELED"
        stuck.set()


# --- Plans -----------------------------------------------------------------------------------------------------------


def one_task(**fields: Any) -> Flow:
    return Flow("same") >> TaskWrapper(Task(func=lambda x=None: repr(x), name="a", **fields))


def test_a_flow_that_did_not_change_is_planned_once() -> None:
    plans, calls = PlanCache(), Calls()
    models = [read_flow(Flow("p") >> calls.task("a") >> calls.task("b")).model for _ in range(2)]
    assert plans.of(models[0]).graph is plans.of(models[1]).graph
    assert plans.of(models[1]) == plan(models[1])


@pytest.mark.parametrize("values", [(1, True, 1.0), (0, False, -0.0), ("1", 1)], ids=repr)
def test_flows_that_are_equal_and_yet_differ_are_each_given_their_own(values: tuple[Any, ...]) -> None:
    with Engine() as engine:
        for _ in range(2):
            results = [engine.run(one_task(inputs={"x": value})).results["a"] for value in values]
            assert results == [repr(value) for value in values]


class Array:
    """Will not be compared, as arrays will not."""

    def __eq__(self, other: object) -> bool:  # type: ignore[explicit-override]
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_flows_that_cannot_be_compared_are_run_all_the_same() -> None:
    with Engine() as engine:
        assert [engine.run(one_task(inputs={"x": Array()})).status for _ in range(2)] == ["COMPLETED"] * 2


def test_flows_of_one_name_side_by_side_keep_their_own_ways() -> None:
    calls = Calls()
    flows: dict[str, Callable[[], Flow]] = {
        "chain": lambda: Flow("same") >> calls.task("a", 1) >> calls.task("b", lambda ctx: ctx.results["a"]),
        "single": lambda: Flow("same") >> calls.task("a", 2),
        "loop": lambda: Flow("same") >> calls.task("a", 3)[2],
    }
    expected = {"chain": {"a": 1, "b": 1}, "single": {"a": 2}, "loop": {"a": 3}}
    with Engine() as engine:
        ids = [(kind, engine.start(make())) for _ in range(15) for kind, make in flows.items()]
        for kind, run_id in ids:
            assert dict(engine.wait(run_id).results) == expected[kind]


def test_a_flow_that_cannot_run_is_refused_each_time() -> None:
    plans = PlanCache()
    plans.of(program(run("a")))
    for _ in range(2):
        with pytest.raises(FlowError):
            plans.of(program(run(":a")))
    assert plans.of(program(run("a"))).steps.keys() == {"a"}


def test_only_so_many_plans_are_remembered() -> None:
    plans = PlanCache()
    for number in range(REMEMBERED + 50):
        plans.of(program(run("a"), name=f"flow{number}"))
    assert len(plans._made) == REMEMBERED
