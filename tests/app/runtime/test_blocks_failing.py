"""When one of several parallel branches fails, the block waits for no other, and reports the first error."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.core import Event, EventType, ExecutionState, NodeStatus
from pyoco_server.core.payloads import NodePayload
from pyoco_server.flows.model import FlowModel, ForEach, Parallel, Repeat
from tests.app.runtime.flows import wait_until
from tests.app.runtime.hooks import hooked, pause, program, run


@pytest.fixture
def engine() -> Any:
    with Engine(cancel_grace_sec=0.5) as made:
        yield made


def side_by_side(*branches: Any) -> FlowModel:
    return program(Parallel(branches))


def fail_with(text: str) -> Any:
    def fail(_: Any) -> None:
        raise ValueError(text)

    return fail


def status(state: ExecutionState, node_id: str) -> NodeStatus | None:
    return state.nodes[node_id].status if node_id in state.nodes else None


def error_of(state: ExecutionState, node_id: str) -> Any:
    return (state.nodes[node_id].error or {}).get("message")


def when(engine: Engine, run_id: str, node_id: str, wanted: NodeStatus) -> Any:
    return lambda: status(engine.get(run_id), node_id) is wanted


def test_a_sibling_that_waits_for_an_answer_is_cancelled(engine: Engine) -> None:
    go = threading.Event()
    flow = side_by_side([pause("w")], [run("bad")])
    run_id = engine.start(flow, hooked({"bad": lambda ctx: go.wait(5) and fail_with("broken")(ctx)}))
    wait_until(when(engine, run_id, ":parallel[0]/w", NodeStatus.WAITING))
    go.set()
    state = engine.wait(run_id).state
    assert (state.status, status(state, ":parallel[0]/w")) == ("FAILED", NodeStatus.CANCELED)
    assert error_of(state, ":parallel") == error_of(state, ":parallel[1]/bad") == "broken"


def test_running_tasks_of_a_failing_block_finish_and_no_others_start(engine: Engine) -> None:
    began, go = threading.Event(), threading.Event()
    done: list[str] = []

    def slow(_: Any) -> None:
        began.set()
        go.wait(5)
        done.append("slow")

    def bad(_: Any) -> None:
        began.wait(5)
        raise ValueError("broken")

    flow = side_by_side([run("slow"), run("next")], [run("bad")], [run("slow2"), pause("w")])
    hooks = {"slow": slow, "bad": bad, "next": lambda _: done.append("next"), "slow2": lambda _: go.wait(5)}
    run_id = engine.start(flow, hooked(hooks))
    wait_until(when(engine, run_id, ":parallel[1]/bad", NodeStatus.FAILED))
    assert status(engine.get(run_id), ":parallel") is NodeStatus.RUNNING
    go.set()
    state = engine.wait(run_id).state
    assert done == ["slow"]
    assert status(state, ":parallel[0]/slow") is NodeStatus.SUCCEEDED
    assert (status(state, ":parallel[0]/next"), status(state, ":parallel[2]/w")) == (None, None)


def test_a_block_reports_the_error_that_came_first(engine: Engine) -> None:
    first_is_recorded = threading.Event()
    flow = side_by_side([run("second")], [run("first")])
    hooks = {"first": fail_with("first"), "second": lambda ctx: first_is_recorded.wait(5) and fail_with("second")(ctx)}
    run_id = engine.start(flow, hooked(hooks))
    wait_until(when(engine, run_id, ":parallel[1]/first", NodeStatus.FAILED))
    first_is_recorded.set()
    state = engine.wait(run_id).state
    assert error_of(state, ":parallel[0]/second") == "second"
    assert error_of(state, ":parallel") == "first"
    assert (state.failure or {})["failedNodeId"] == ":parallel"


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_a_loop_begins_no_more_rounds(engine: Engine, parallel: int) -> None:
    called: list[int] = []

    def body(ctx: Any) -> None:
        called.append(ctx.get_var("item"))
        if ctx.get_var("item") == 0:
            raise ValueError("broken")
        wait_until(lambda: engine.get(run_id).nodes[":foreach[0]/body"].is_terminal)

    given = {**hooked({"body": body}), "items": list(range(10))}
    loop = ForEach("$ctx.params.items", (run("body"),), item="item", parallel=parallel)
    run_id = engine.start(program(loop), given, run_id=f"loop{parallel}")
    state = engine.wait(run_id).state
    assert (state.status, sorted(called)) == ("FAILED", list(range(parallel)))


def test_blocks_inside_a_branch_are_given_up_with_it(engine: Engine) -> None:
    go = threading.Event()
    nested = Repeat(3, (run("fine"), Parallel(((pause("w"),), (pause("v"),)))))
    run_id = engine.start(
        side_by_side([nested], [run("bad")]),
        hooked({"fine": lambda _: 1, "bad": lambda ctx: go.wait(5) and fail_with("broken")(ctx)}),
    )
    inner = ":parallel[0]/:repeat[0]/:parallel"
    wait_until(when(engine, run_id, f"{inner}[1]/v", NodeStatus.WAITING))
    go.set()
    state = engine.wait(run_id).state
    assert {status(state, f"{inner}[0]/w"), status(state, f"{inner}[1]/v")} == {NodeStatus.CANCELED}
    assert ":parallel[0]/:repeat[1]/fine" not in state.nodes
    assert error_of(state, ":parallel") == "broken"


def test_a_cancel_wins_over_a_branch_that_has_failed(engine: Engine) -> None:
    go = threading.Event()
    flow = side_by_side([run("slow")], [run("bad")])
    run_id = engine.start(flow, hooked({"slow": lambda _: go.wait(5), "bad": fail_with("broken")}))
    wait_until(when(engine, run_id, ":parallel[1]/bad", NodeStatus.FAILED))
    assert engine.cancel(run_id)
    go.set()
    assert engine.wait(run_id).status == "CANCELED"


class HeldLog(MemoryEventLog):
    """Delays the commit in which a certain node succeeds, and all later ones."""

    def __init__(self, node_id: str) -> None:
        super().__init__()
        self.node_id = node_id
        self.at_it, self.go = threading.Event(), threading.Event()

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        if any(self._is_it(event) for event in commit):
            self.at_it.set()
            await asyncio.to_thread(self.go.wait, 5)
        if self.at_it.is_set():
            for _ in range(20):
                await asyncio.sleep(0)
        return await super().append(execution_id, commit, after=after, quiet=quiet)

    def _is_it(self, event: Event) -> bool:
        return event.type is EventType.NODE_SUCCEEDED and _node_of(event) == self.node_id


def _node_of(event: Event) -> str | None:
    return event.payload.node_id if isinstance(event.payload, NodePayload) else None


def test_a_wait_that_begins_while_its_sibling_fails_is_cancelled_too() -> None:
    """The failure is being appended when the other branch wants to append its next node."""
    log = HeldLog(":parallel[0]/quick")

    def bad(_: Any) -> None:
        log.at_it.wait(5)
        threading.Timer(0.1, log.go.set).start()
        raise ValueError("broken")

    with Engine(log=log) as engine:
        flow = side_by_side([run("quick"), pause("w")], [run("bad")])
        run_id = engine.start(flow, hooked({"quick": lambda _: 1, "bad": bad}))
        wait_until(lambda: engine.get(run_id).is_terminal)
        assert status(engine.get(run_id), ":parallel[0]/w") in {None, NodeStatus.CANCELED}
