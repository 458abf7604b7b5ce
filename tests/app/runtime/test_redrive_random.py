"""Random flows fail, are redriven, and end as if they had never failed; what was kept is never called again."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from pyoco_server import Engine
from pyoco_server.app.runs.redrive import Redriver, RedriveRequest, cut_of
from pyoco_server.app.runs.redrive_events import COPIED_FROM, RedrivePlan
from pyoco_server.core import Actor, ActorKind, ExecutionState, NodeStatus, fold, read_graph
from pyoco_server.core.payloads import NodeStarted, NodeSucceeded
from tests.app.runtime.pyoco_side import Built, after, network, step
from tests.app.runtime.test_differential_random import PARAMS, TASKS, Statement, fragment, statements
from tests.invariants import check_log

_USER = Actor(ActorKind.USER)


class Vertex(Struct, frozen=True):
    """A task of a network; it depends on tasks before it in the list."""

    depends_on: frozenset[int]
    fails: bool
    isolates: bool
    any_of: bool


@st.composite
def networks(draw: st.DrawFn) -> list[Vertex]:
    return [
        Vertex(
            depends_on=draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if number else frozenset(),
            fails=draw(st.integers(0, 3)) == 0,
            isolates=draw(st.booleans()),
            any_of=draw(st.integers(0, 4)) == 0,
        )
        for number in range(draw(st.integers(1, 8)))
    ]


class Mended:
    """What tasks fail until it is mended, and which of them were called since then."""

    def __init__(self, *, is_mended: bool = False) -> None:
        self.is_mended = is_mended
        self.called: list[tuple[str, str]] = []

    def call(self, name: str, ctx: Any, *, fails: bool) -> None:
        self.called.append((ctx.run_context.run_id, name))
        if fails and not self.is_mended:
            raise ValueError(name)


def build_network(vertices: Sequence[Vertex], mended: Mended) -> Built:
    def call(number: int, vertex: Vertex, ctx: Any) -> tuple[int, ...]:
        mended.call(f"t{number}", ctx, fails=vertex.fails)
        seen = () if vertex.any_of else tuple(ctx.results[f"t{other}"] for other in sorted(vertex.depends_on))
        return (number, *(value[0] for value in seen))

    tasks: list[Any] = []
    for number, vertex in enumerate(vertices):
        task = step(
            functools.partial(call, number, vertex),
            f"t{number}",
            fail_policy="isolate" if vertex.isolates else "stop",
            trigger_policy="ANY" if vertex.any_of else "ALL",
        )
        tasks.append(after(task, *(tasks[other] for other in vertex.depends_on)))
    return Built(network(*tasks))


def build_program(program: Sequence[Statement], failing: tuple[int, int], mended: Mended) -> Built:
    from pyoco.core.models import Flow  # type: ignore[import-untyped]  # noqa: PLC0415

    built = Built(Flow(), {**PARAMS, "items": [*PARAMS["items"]]})
    calls = [0] * TASKS

    def call(number: int, ctx: Any) -> int:
        calls[number] += 1
        mended.call(f"t{number}", ctx, fails=(number, calls[number]) == failing)
        return int(number + sum(frame.index for frame in ctx.loops)) % 4

    tasks = [
        step(functools.partial(call, number), f"t{number}", outputs=[f"scratch.t{number}.n"]) for number in range(TASKS)
    ]
    built.flow >>= tasks[0] >> tasks[1] >> tasks[2]
    for statement in program:
        built.flow >>= fragment(statement, tasks, 0)
    built.flow >>= step(lambda ctx: dict(ctx.scratch), "last")[1]
    return built


def redriven(
    engine: Engine, build: Callable[[Mended], Built], choose: Callable[[list[str]], str | list[str]]
) -> tuple[RedrivePlan, ExecutionState, ExecutionState, list[str]]:
    """Return the plan, how the redriven run and one that never failed ended, and which tasks were called again."""
    mended = Mended()
    built = build(mended)
    old = engine.run(built.flow, built.params)
    events = engine.events(old.run_id)
    cut = choose(sorted(node.node_id for node in old.state.nodes.values() if not node.node_id.startswith(":")))
    request = RedriveRequest(cut=cut_of(cut))
    services = engine._services
    redriver = Redriver(log=services.log, outputs=engine._outputs, clock=services.clock, new_id=services.new_id)
    plan = redriver.plan(events, request, _USER)
    mended.is_mended = True
    new = engine.wait(engine.redrive(built.flow, old.run_id, from_=cut))
    assert engine.events(old.run_id) == events, "the old log was changed"
    check_copies(engine, new.run_id, plan)
    whole = build(Mended(is_mended=True))
    reference = engine.run(whole.flow, whole.params)
    event(f"{old.status}, {len(plan.keep)} kept, {len(plan.run)} run")
    return plan, new.state, reference.state, [name for run_id, name in mended.called if run_id == new.run_id]


def check_copies(engine: Engine, run_id: str, plan: RedrivePlan) -> None:
    """Each kept node has exactly one start and one success, which say where they come from."""
    log = engine.events(run_id)
    check_log(read_graph(log).graph, log, fold(log))
    for node_id in plan.keep:
        payloads = [item.payload for item in log if getattr(item.payload, "node_id", None) == node_id]
        starts = [payload for payload in payloads if isinstance(payload, NodeStarted)]
        assert len(starts) == 1
        assert all(
            COPIED_FROM in payload.extra for payload in payloads if isinstance(payload, NodeStarted | NodeSucceeded)
        )


def outcome(state: ExecutionState) -> dict[str, Any]:
    return {
        node.node_id: (node.status, node.output)
        for node in state.nodes.values()
        if node.status in (NodeStatus.SUCCEEDED, NodeStatus.FAILED)
    }


@st.composite
def cuts(draw: st.DrawFn) -> Callable[[list[str]], str | list[str]]:
    kind, seed = draw(st.sampled_from(["failed", "failed", "start", "nodes"])), draw(st.integers(0, 100))
    return lambda names: (
        [names[seed % len(names)]] if kind == "nodes" and names else kind if kind != "nodes" else "start"
    )


@settings(max_examples=150, deadline=None)
@given(vertices=networks(), choose=cuts())
def test_a_network(engine: Engine, vertices: list[Vertex], choose: Any) -> None:
    plan, new, reference, called = redriven(engine, lambda mended: build_network(vertices, mended), choose)
    assert new.status == reference.status == "COMPLETED"
    assert not set(called) & plan.keep.keys()
    assert len(called) == len(set(called))
    if not any(vertex.any_of for vertex in vertices):  # else it depends on what is quicker
        assert set(called) == plan.run.keys()
        assert outcome(new) == outcome(reference)


@settings(max_examples=150, deadline=None)
@given(
    program=st.lists(statements(0), min_size=1, max_size=3),
    failing=st.tuples(st.integers(0, TASKS - 1), st.integers(1, 5)),
    choose=st.sampled_from(["failed", "failed", "start"]),
)
def test_a_program(engine: Engine, program: list[Statement], failing: tuple[int, int], choose: str) -> None:
    _, new, reference, _ = redriven(engine, lambda mended: build_program(program, failing, mended), lambda _: choose)
    assert new.status == reference.status
    assert outcome(new) == outcome(reference)
