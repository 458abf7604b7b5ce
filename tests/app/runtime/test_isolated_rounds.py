"""``fail_policy: isolate`` inside a loop: the round ends, the other rounds continue, and the tally says so."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.snapshots.projection import RunProjection
from pyoco_server.core import Event, ExecutionState
from pyoco_server.flows.model import (
    Case,
    ForEach,
    OnFailure,
    Parallel,
    Repeat,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
    WaitSpec,
)
from tests.app.runtime.hooks import hooked, program, replace_hooks, run
from tests.app.runtime.test_blocks_failing import error_of, status
from tests.app.runtime.test_blocks_taken_over import CutLog

Hook = Callable[[Any], Any]


@pytest.fixture
def engine() -> Any:
    with Engine(cancel_grace_sec=0.5) as made:
        yield made


def isolated(name: str, **fields: Any) -> TaskStep:
    return run(name, on_failure=OnFailure.ISOLATE, **fields)


def fails_for(*items: int) -> Hook:
    """A task that returns its item, and fails for these."""

    def body(ctx: Any) -> int:
        item = int(ctx.get_var("item", ctx.loop.index))
        if item in items:
            raise ValueError(f"broken by {item}")
        return item

    return body


def each(*body: Any, parallel: int = 1) -> ForEach:
    return ForEach("$ctx.params.items", body, item="item", parallel=parallel)


def done(engine: Engine, *steps: Any, count: int = 10, **hooks: Hook) -> tuple[ExecutionState, dict[str, Any]]:
    """The run's last state, and its snapshot."""
    params = {**hooked(hooks), "items": list(range(count))}
    ended = engine.run(program(*steps), params)
    return ended.state, snapshot_of(engine.events(ended.run_id), ended.state)


def snapshot_of(events: list[Event], state: ExecutionState) -> dict[str, Any]:
    projection = RunProjection(state.execution_id)
    projection.listen(events, state)
    return projection.snapshot(position=len(events))


def loop_result(state: ExecutionState, node_id: str = ":foreach") -> Any:
    return (state.nodes[node_id].output or {}).get("value")


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_other_rounds_continue_and_the_tally_counts_them(engine: Engine, parallel: int) -> None:
    loop = each(isolated("fetch"), isolated("work"), parallel=parallel)
    state, snapshot = done(
        engine, loop, run("last"), count=300, fetch=fails_for(5), work=fails_for(137), last=lambda _: "end"
    )
    assert state.status == "COMPLETED"
    assert status(state, "last") == "SUCCEEDED"
    result = loop_result(state)
    assert {key: result[key] for key in ("rounds", "ok", "failed", "not_started")} == {
        "rounds": 300,
        "ok": 298,
        "failed": 2,
        "not_started": 0,
    }
    assert result["tasks"] == {
        "fetch": {"ok": 299, "failed": 1, "not_started": 0},
        "work": {"ok": 298, "failed": 1, "not_started": 1},
    }
    assert {error["node"]: error["message"] for error in result["errors"]} == {
        ":foreach[5]/fetch": "broken by 5",
        ":foreach[137]/work": "broken by 137",
    }
    assert snapshot["task_tallies"]["work"] == {"ok": 298, "failed": 1, "not_started": 1}
    assert snapshot["tasks"] == {"fetch": "FAILED", "work": "FAILED", "last": "SUCCEEDED"}


def test_a_loop_whose_rounds_all_succeed_says_nothing_more_than_before(engine: Engine) -> None:
    state, snapshot = done(engine, each(isolated("work")), work=fails_for())
    assert state.nodes[":foreach"].output == {"value": None}
    assert snapshot["task_tallies"] == {"work": {"ok": 10, "failed": 0, "not_started": 0}}


def test_a_flow_that_isolates_nothing_has_no_tally_until_a_round_fails(engine: Engine) -> None:
    _, snapshot = done(engine, each(run("work")), work=fails_for())
    assert "task_tallies" not in snapshot
    _, snapshot = done(engine, each(run("work")), work=fails_for(3))
    assert snapshot["task_tallies"] == {"work": {"ok": 3, "failed": 1, "not_started": 6}}


def test_a_loop_in_which_every_round_fails_completes_like_a_network_that_isolates(engine: Engine) -> None:
    state, snapshot = done(engine, each(isolated("work")), count=2, work=fails_for(0, 1))
    assert state.status == "COMPLETED"
    assert snapshot["task_tallies"] == {"work": {"ok": 0, "failed": 2, "not_started": 0}}


def test_results_keep_the_newest_round_that_succeeded(engine: Engine) -> None:
    params = {**hooked({"work": fails_for(2)}), "items": [0, 1, 2]}
    assert engine.run(program(each(isolated("work"))), params).results == {"work": 1}


def test_repeat_isolates_too(engine: Engine) -> None:
    state, snapshot = done(engine, Repeat(4, (isolated("work"), run("after"))), work=fails_for(1), after=lambda _: 1)
    assert state.status == "COMPLETED"
    assert snapshot["task_tallies"]["after"] == {"ok": 3, "failed": 0, "not_started": 1}
    assert ":repeat[1]/after" not in state.nodes


def test_until_takes_a_failed_round_for_one_that_did_not_meet_the_condition(engine: Engine) -> None:
    loop = Until("$ctx.results.work >= 2", (isolated("work"),), max_iter=9)
    state, snapshot = done(engine, loop, work=fails_for(0))
    assert state.status == "COMPLETED"
    assert snapshot["task_tallies"] == {"work": {"ok": 2, "failed": 1, "not_started": 0}}


def test_a_failure_that_is_not_isolated_fails_the_loop_and_names_the_round(engine: Engine) -> None:
    loop = each(isolated("fetch"), run("work"))
    state, snapshot = done(engine, loop, fetch=fails_for(3), work=fails_for(7))
    assert state.status == "FAILED"
    detail = (state.nodes[":foreach"].error or {})["detail"]
    assert detail["node"] == ":foreach[7]/work"
    assert snapshot["error"] == "node ':foreach[7]/work' failed: ValueError: broken by 7"
    assert {key: detail["rounds"][key] for key in ("rounds", "ok", "failed", "not_started")} == {
        "rounds": 10,
        "ok": 6,
        "failed": 2,
        "not_started": 2,
    }
    assert snapshot["task_tallies"] == {
        "fetch": {"ok": 7, "failed": 1, "not_started": 2},
        "work": {"ok": 6, "failed": 1, "not_started": 3},
    }


def test_retries_belong_to_the_round(engine: Engine) -> None:
    tries: dict[int, int] = {}

    def body(ctx: Any) -> int:
        item = int(ctx.get_var("item"))
        tries[item] = tries.get(item, 0) + 1
        if item == 1 or (item == 2 and tries[item] == 1):
            raise ValueError("broken")
        return item

    state, snapshot = done(engine, each(isolated("work", retries=1)), count=4, work=body)
    assert (state.status, tries) == ("COMPLETED", {0: 1, 1: 2, 2: 2, 3: 1})
    assert snapshot["task_tallies"] == {"work": {"ok": 3, "failed": 1, "not_started": 0}}


@pytest.mark.parametrize(
    ("inside", "node"),
    [
        (lambda step: Switch("$ctx.item < 99", (Case(True, (step,)),)), ":foreach[1]/:switch/work"),
        (lambda step: Parallel(((step,), (run("beside"),))), ":foreach[1]/:parallel[0]/work"),
        (
            lambda step: Parallel(((run("beside"),), (Switch("1", (), (step,)),))),
            ":foreach[1]/:parallel[1]/:switch/work",
        ),
    ],
    ids=["switch", "parallel", "both"],
)
def test_a_failure_deeper_in_the_round_ends_only_the_round(engine: Engine, inside: Any, node: str) -> None:
    loop = each(inside(isolated("work")), run("after"))
    state, snapshot = done(
        engine, loop, count=3, work=fails_for(1), beside=lambda _: 1, after=lambda ctx: ctx.get_var("item")
    )
    assert state.status == "COMPLETED"
    assert loop_result(state)["errors"][0]["node"] == node
    assert snapshot["task_tallies"]["after"] == {"ok": 2, "failed": 0, "not_started": 1}


def test_siblings_of_an_isolated_failure_in_a_round_run_to_their_end(engine: Engine) -> None:
    failed = threading.Event()

    def beside(ctx: Any) -> int:
        if ctx.get_var("item") == 1:
            assert failed.wait(60)
        return 1

    def work(ctx: Any) -> int:
        if ctx.get_var("item") == 1:
            failed.set()
            raise ValueError("broken")
        return 1

    loop = each(Parallel(((isolated("work"),), (run("beside"), run("more")))))
    state, _ = done(engine, loop, count=2, work=work, beside=beside, more=lambda _: 1)
    assert (state.status, status(state, ":foreach[1]/:parallel[1]/more")) == ("COMPLETED", "SUCCEEDED")


def test_an_inner_loop_isolates_for_itself(engine: Engine) -> None:
    inner = Repeat(2, (isolated("work"),))
    loop = each(inner, run("after"))
    state, snapshot = done(
        engine,
        loop,
        count=2,
        work=lambda ctx: fails_for(1)(ctx) if ctx.loop.index == 0 else 1,
        after=lambda _: 1,
    )
    assert state.status == "COMPLETED"
    assert loop_result(state, ":foreach[1]/:repeat")["failed"] == 1
    assert status(state, ":foreach[1]/after") == "SUCCEEDED"
    assert snapshot["task_tallies"]["work"] == {"ok": 3, "failed": 1, "not_started": 0}


def test_outside_a_loop_a_program_stops_as_pyoco_does(engine: Engine) -> None:
    state, _ = done(engine, isolated("work"), Repeat(1, (run("after"),)), work=lambda _: 1 / 0, after=lambda _: 1)
    assert state.status == "FAILED"


def test_a_wait_that_is_not_answered_in_time_can_be_isolated(engine: Engine) -> None:
    ask = TaskSpec(name="ask", on_failure=OnFailure.ISOLATE, wait=WaitSpec(key="ask", deadline_sec=0.05))
    state, snapshot = done(engine, Repeat(2, (TaskStep(ask),)), run("last"), last=lambda _: 1)
    assert state.status == "COMPLETED"
    assert snapshot["task_tallies"]["ask"] == {"ok": 0, "failed": 2, "not_started": 0}


def test_a_cancel_ends_a_loop_that_has_isolated_a_failure(engine: Engine) -> None:
    reached, go = threading.Event(), threading.Event()

    def work(ctx: Any) -> int:
        if ctx.get_var("item") == 1:
            reached.set()
            go.wait(5)
        raise ValueError("broken")

    params = {**hooked({"work": work}), "items": [0, 1, 2]}
    run_id = engine.start(program(each(isolated("work"))), params)
    assert reached.wait(60)
    assert engine.cancel(run_id)
    go.set()
    state = engine.wait(run_id).state
    assert state.status == "CANCELED"
    assert ":foreach[2]/work" not in state.nodes


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_process_that_takes_over_counts_the_same(parallel: int) -> None:
    """The first process dies when the loop's second isolated failure would be recorded."""
    cut = CutLog(":foreach[4]/work")
    flow = program(each(isolated("work"), run("after"), parallel=parallel))
    params = {**hooked({"work": fails_for(1, 4), "after": lambda _: 1}), "items": list(range(8))}
    with Engine(log=cut) as engine:
        engine.start(flow, params, run_id="run")
        assert cut.is_cut.wait(60)
    called: list[int] = []

    def again(ctx: Any) -> int:
        called.append(ctx.get_var("item"))
        return int(fails_for(1, 4)(ctx))

    left = MemoryEventLog.load(cut.dump())
    replace_hooks(params, {"work": again, "after": lambda _: 1})  # type: ignore[arg-type]
    with Engine(log=left) as engine:
        state = engine.wait(engine.take_up(flow, "run")).state
        snapshot = snapshot_of(engine.events("run"), state)
    assert state.status == "COMPLETED"
    assert 1 not in called, "a round that has failed is not run again"
    assert snapshot["task_tallies"]["after"] == {"ok": 6, "failed": 0, "not_started": 2}
    assert loop_result(state)["failed"] == 2
    assert error_of(state, ":foreach[4]/work") == "broken by 4"
