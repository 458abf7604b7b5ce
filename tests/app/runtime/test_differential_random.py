"""Generated flows, on both engines."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.expressions import Expression  # type: ignore[import-untyped]
from pyoco.dsl.syntax import FlowFragment, TaskWrapper, switch  # type: ignore[import-untyped]

from pyoco_server import Engine
from tests.app.runtime.pyoco_side import SKIPPED, Built, after, agree, network, run_on_both, step, without_deadlock

# --- Networks --------------------------------------------------------------------------------------------------------


class Vertex(Struct, frozen=True):
    """A task of a network; it depends on tasks before it in the list."""

    depends_on: frozenset[int]
    fails: bool
    isolates: bool
    any_of: bool
    retries: int


@st.composite
def networks(draw: st.DrawFn, *, stops: bool) -> list[Vertex]:
    vertices = []
    retries_left = 1  # pyoco pauses before each
    for number in range(draw(st.integers(1, 8))):
        retries = draw(st.integers(0, 9)) // 9 if retries_left else 0
        retries_left -= retries
        fails = draw(st.integers(0, 3)) == 0
        vertices.append(
            Vertex(
                depends_on=draw(st.frozensets(st.integers(0, number - 1), max_size=3)) if number else frozenset(),
                fails=fails,
                isolates=draw(st.booleans()) if stops or not fails else True,
                any_of=draw(st.integers(0, 2)) == 0,
                retries=retries,
            )
        )
    return vertices


def _build_network(vertices: Sequence[Vertex]) -> Built:
    tasks: list[TaskWrapper] = []
    for number, vertex in enumerate(vertices):
        task = step(
            functools.partial(_sum, number, vertex),
            f"t{number}",
            fail_policy="isolate" if vertex.isolates else "stop",
            trigger_policy="ANY" if vertex.any_of else "ALL",
            retries=vertex.retries,
        )
        tasks.append(after(task, *(tasks[other] for other in vertex.depends_on)))
    return Built(network(*tasks))


def _sum(number: int, vertex: Vertex, ctx: Any) -> int:
    """Add up what comes in, where it is certain what does."""
    if vertex.fails:
        raise ValueError(f"t{number}")
    return number + (0 if vertex.any_of else sum(ctx.results[f"t{other}"] for other in vertex.depends_on))


@settings(max_examples=120, deadline=None)
@given(vertices=networks(stops=False))
def test_networks_in_which_every_failure_is_isolated(engine: Engine, vertices: list[Vertex]) -> None:
    pyoco, _, ours, _ = run_on_both(engine, lambda: _build_network(vertices))
    event(f"{pyoco.status}, {sum(state == SKIPPED for state in ours.tasks.values())} skipped")
    assert ours == without_deadlock(pyoco)


@settings(max_examples=120, deadline=None)
@given(vertices=networks(stops=True))
def test_networks_in_which_failures_may_stop_everything(engine: Engine, vertices: list[Vertex]) -> None:
    """What runs beside a failure is a matter of chance with either engine; everything else is not."""
    pyoco, _, ours, _ = run_on_both(engine, lambda: _build_network(vertices))
    pyoco = without_deadlock(pyoco)
    event(pyoco.status)
    assert ours.status == pyoco.status
    if pyoco.status == "COMPLETED":
        assert ours == pyoco
        return
    stoppers = [number for number, vertex in enumerate(vertices) if vertex.fails and not vertex.isolates]
    for outcome in (pyoco, ours):
        assert outcome.error in [("ValueError", f"t{number}") for number in stoppers]
        assert {name for name, state in outcome.tasks.items() if state == "SUCCEEDED"} == outcome.results.keys()
        assert {name for name, state in outcome.tasks.items() if state == "FAILED"} <= {
            f"t{number}" for number, vertex in enumerate(vertices) if vertex.fails
        }
    for name in ours.results.keys() & pyoco.results.keys():
        assert ours.results[name] == pyoco.results[name]
    if ours.error == pyoco.error and ours.error is not None:
        assert ours.tasks[ours.error[1]] == pyoco.tasks[ours.error[1]] == "FAILED"
    if len(stoppers) == 1:
        assert ours.error == pyoco.error
        assert not any(ours.tasks[f"t{number}"] == "SUCCEEDED" for number in _behind(vertices, stoppers[0]))


def _behind(vertices: Sequence[Vertex], first: int) -> set[int]:
    """Tasks that can never run if this one fails."""
    dead = {first}
    for number, vertex in enumerate(vertices):
        fits = vertex.depends_on <= dead if vertex.any_of else vertex.depends_on & dead
        if vertex.depends_on and fits:
            dead.add(number)
    return dead


# --- Programs --------------------------------------------------------------------------------------------------------


class Call(Struct, frozen=True):
    task: int


class Loop(Struct, frozen=True):
    kind: str
    argument: Any
    body: "tuple[Statement, ...]"
    limit: int = 3


class Choice(Struct, frozen=True):
    on: str
    cases: "tuple[tuple[Any, tuple[Statement, ...]], ...]"


Statement = Call | Loop | Choice
TASKS = 4
PARAMS: dict[str, Any] = {"n": 2, "word": "b", "items": [1, "b", [2]], "rows": [[1], [], [2, 3]], "none": None}


def bodies(depth: int) -> st.SearchStrategy[tuple[Statement, ...]]:
    return st.lists(statements(depth), min_size=1, max_size=2).map(tuple)


def _references(depth: int) -> list[str]:
    """What an expression may look at; some of it is there only sometimes."""
    names = [f"$ctx.v{outer}" for outer in range(depth)]
    loops = ["$ctx.loop.index", "$ctx.loop.iteration"] if depth else []
    return [
        *names,
        *loops,
        "$ctx.params.n",
        "$ctx.params.word",
        "$ctx.results.t0",
        "$ctx.results.t1",
        "$ctx.scratch.t2.n",
    ]


def statements(depth: int) -> st.SearchStrategy[Statement]:
    """Statements inside so many loops and choices."""
    calls = st.builds(Call, st.integers(0, TASKS - 1))
    if depth == 3:
        return calls
    reference = st.sampled_from(_references(depth))
    inside = bodies(depth + 1)
    counts = st.one_of(st.integers(0, 2), st.sampled_from(["$ctx.params.n", "$ctx.params.n - 1", "$ctx.params.word"]))
    lists = st.sampled_from(["$ctx.params.items", "$ctx.params.rows", *(f"$ctx.v{outer}" for outer in range(depth))])
    conditions = st.builds("{} {} {}".format, reference, st.sampled_from([">=", "==", "!="]), st.integers(0, 3))
    choices = st.builds(
        Choice,
        st.one_of(reference, conditions),
        st.lists(st.tuples(st.sampled_from([0, 1, 2, "b", True, False, "*", "*"]), inside), min_size=1, max_size=3).map(
            tuple
        ),
    )
    return st.one_of(
        calls,
        calls,
        st.builds(Loop, st.just("repeat"), counts, inside),
        st.builds(Loop, st.just("foreach"), lists, inside),
        st.builds(Loop, st.just("until"), conditions, inside, st.integers(1, 3)),
        choices,
    )


class Behaviour(Struct, frozen=True):
    """At which of its calls a task fails, and whether it is called again when it does."""

    fails_at: int | None
    retries: int


def _build_program(program: Sequence[Statement], behaviours: Sequence[Behaviour], *, greeted: bool) -> Built:
    built = Built(Flow(), {**PARAMS, "items": [*PARAMS["items"]]})
    tasks = [_noting(built, number, behaviour) for number, behaviour in enumerate(behaviours)]
    if greeted:  # results are there from the beginning, and fewer expressions fail
        built.flow >>= tasks[0] >> tasks[1] >> tasks[2]
    for statement in program:
        built.flow >>= fragment(statement, tasks, 0)
    built.flow >>= step(lambda ctx: dict(ctx.scratch), "last")[1]  # a loop, so that it is a program in any case
    return built


def _noting(built: Built, number: int, behaviour: Behaviour) -> TaskWrapper:
    calls: list[int] = []

    def call(ctx: Any) -> dict[str, int] | int:
        calls.append(1)
        frames = [(f.type, f.index, f.iteration, f.count, f.item, f.condition, f.path) for f in ctx.loops]
        built.notes.append((number, frames, [ctx.get_var(f"v{depth}") for depth in range(3)], {**ctx.results}))
        if len(calls) == behaviour.fails_at:
            raise ValueError(f"t{number} at call {len(calls)}")
        return len(calls) % 4

    return step(call, f"t{number}", retries=behaviour.retries, outputs=[f"scratch.t{number}.n"])


def fragment(statement: Statement, tasks: Sequence[TaskWrapper], depth: int) -> FlowFragment:
    match statement:
        case Call(task):
            return tasks[task]
        case Loop(kind, argument, body, limit):
            inside = _sequence(body, tasks, depth + 1)
            if kind == "repeat":
                return inside[argument if isinstance(argument, int) else Expression(argument)]
            if kind == "foreach":
                return inside[f"{argument} as v{depth}"]
            return inside % (argument, limit)
        case Choice(on, cases):
            return switch(on)[[value >> _sequence(body, tasks, depth + 1) for value, body in cases]]


def _sequence(body: Sequence[Statement], tasks: Sequence[TaskWrapper], depth: int) -> FlowFragment:
    return functools.reduce(operator.rshift, [fragment(statement, tasks, depth) for statement in body])


@settings(max_examples=200, deadline=None)
@given(
    program=st.lists(statements(0), min_size=1, max_size=3),
    failing=st.one_of(st.none(), st.tuples(st.integers(0, TASKS - 1), st.integers(1, 4), st.booleans())),
    greeted=st.sampled_from([True, True, False]),
)
def test_programs(
    engine: Engine, program: list[Statement], failing: tuple[int, int, bool] | None, greeted: bool
) -> None:
    def build() -> Built:
        behaviours = [Behaviour(None, 0)] * TASKS
        if failing is not None:
            task, at, retried = failing
            behaviours[task] = Behaviour(at, int(retried))
        return _build_program(program, behaviours, greeted=greeted)

    outcome = agree(engine, build)
    event(f"{outcome.status} {outcome.error[0] if outcome.error else ''}")
