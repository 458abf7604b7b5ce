"""Flows for tests of runs that keep their own graph: chains with a wait, random flows, random edits of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from hypothesis import strategies as st
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.flows.model import (
    Backoff,
    Case,
    FlowModel,
    ForEach,
    Network,
    OnFailure,
    Parallel,
    Program,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Trigger,
    Until,
    WaitSpec,
    tasks_of,
    with_tasks,
)
from pyoco_server.gateway.routers.run_events import events_page, graph_view, state_at
from pyoco_server.worker.settlement import Ack
from tests.worker.world import USER, World

NAMES: Final = "abcdef"
ADDED: Final = "added"
RENAMED: Final = "renamed"
FAILS: Final = "fails"
"""A task with this input fails at every attempt."""
WAYS: Final = ("left", "right", "neither")
MOST_ITEMS: Final = 2


# --- Chains ----------------------------------------------------------------------------------------------------------


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
    await world.resume(run_id, "w", 1, USER)
    return run_id


async def readable(world: World, run_id: str) -> None:
    """Everything that routes show of a log can be shown."""
    run = await world.run_log.open(run_id)
    assert "notes" not in graph_view(run)
    assert events_page(run, 0, 10_000)["version"] == len(run.events)
    assert state_at(run, None)["version"] == run.execution.state.version


# --- Random flows ----------------------------------------------------------------------------------------------------


def a_task(name: str, *, may_isolate: bool = False) -> st.SearchStrategy[TaskSpec]:
    """A wait, or a task: with retries or called at most once, with inputs of several types, or failing in isolation."""
    inputs = st.sampled_from([{}, {"n": 1}, {"n": (1, 2)}, {"n": b"x", "given": "$ctx.params.way"}])
    called = st.builds(
        TaskSpec,
        name=st.just(name),
        retries=st.integers(0, 2),
        backoff=st.just(Backoff(delay_sec=1.0)),
        inputs=inputs,
    )
    once = st.builds(TaskSpec, name=st.just(name), inputs=inputs, at_most_once=st.just(True))
    waits = st.builds(lambda: TaskSpec(name=name, wait=WaitSpec(key=name)))
    failing = st.builds(
        TaskSpec,
        name=st.just(name),
        retries=st.integers(0, 1),
        backoff=st.just(Backoff(delay_sec=1.0)),
        inputs=st.just({FAILS: True}),
        on_failure=st.just(OnFailure.ISOLATE),
    )
    return st.one_of(called, called, called, waits, once, *([failing] if may_isolate else []))


@st.composite
def networks(draw: st.DrawFn, names: Sequence[str]) -> Network:
    """Tasks in some order, each behind any of those before it: chains, forks, joins of all branches and of any."""
    behind: dict[str, tuple[str, ...]] = {}
    tasks: list[TaskSpec] = []
    for place, name in enumerate(names):
        behind[name] = tuple(draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=3))) if place else ()
        task = draw(a_task(name, may_isolate=True))
        if len(behind[name]) > 1 and draw(st.booleans()):
            task = msgspec.structs.replace(task, trigger=Trigger.ANY)
        tasks.append(task)
    return Network(tuple(tasks), behind)


@st.composite
def programs(draw: st.DrawFn, names: list[str]) -> Program:
    """Steps, blocks and blocks in blocks; each name stands in one place."""
    return Program(draw(_steps(names, 2)))


@st.composite
def _steps(draw: st.DrawFn, names: list[str], depth: int) -> Steps:
    made: list[Step] = []
    left = [*names]
    while left:
        many = draw(st.integers(1, len(left)))
        inside, left = left[:many], left[many:]
        if depth == 0 or (many == 1 and draw(st.booleans())):
            made += [TaskStep(draw(a_task(name))) for name in inside]
        else:
            made.append(draw(_block(inside, depth - 1)))
    return tuple(made)


@st.composite
def _block(draw: st.DrawFn, names: list[str], depth: int) -> Step:
    cut = draw(st.integers(1, len(names)))
    body, rest = draw(_steps(names[:cut], depth)), draw(_steps(names[cut:], depth))
    after = (body + rest) if rest else body
    blocks: list[Step] = [
        Repeat(2, after),
        Repeat("$ctx.params.count", after),
        ForEach("$ctx.params.items", after, item="item", parallel=1),
        ForEach("$ctx.params.items", after, item="item", parallel=2),
        Until("$ctx.params.count > 0", after, max_iter=3),
        Switch("$ctx.params.way", (Case("left", body), Case("right", rest or body)), rest or body),
        Parallel((body, rest) if rest else (body,)),
    ]
    return draw(st.sampled_from(blocks))


@st.composite
def flows(draw: st.DrawFn) -> FlowModel:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    return FlowModel(name="f", body=draw(st.one_of(networks(names), programs(names))))


@st.composite
def edited(draw: st.DrawFn, model: FlowModel) -> FlowModel:
    """The flow after an edit: a small one, or another flow that has some of the names."""
    names = [task.name for task in tasks_of(model)]
    match draw(st.sampled_from(["add", "remove", "rename", "reorder", "options", "all"])), model.body:
        case "all", _:
            return draw(flows())
        case "rename", _:
            old = draw(st.sampled_from(names))
            return _changed(
                model, lambda task: _named(task, RENAMED if task.name == old else task.name), {old: RENAMED}
            )
        case "options", body:
            isolates = isinstance(body, Network)
            options = {name: draw(a_task(name, may_isolate=isolates)) for name in names}
            return _changed(model, lambda task: options[task.name], {})
        case "add", Network(tasks, behind):
            follows = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
            more = {ADDED: tuple(follows)}
            return FlowModel(name="f", body=Network((*tasks, TaskSpec(name=ADDED)), {**behind, **more}))
        case "remove", Network() if len(names) > 1:
            return FlowModel(name="f", body=draw(networks(names[1:])))
        case _, Network():
            return FlowModel(name="f", body=draw(networks(draw(st.permutations(names)))))
        case "add", Program(steps):
            at = draw(st.integers(0, len(steps)))
            more_steps = (*steps[:at], TaskStep(TaskSpec(name=ADDED)), *steps[at:])
            return FlowModel(name="f", body=Program(more_steps))
        case "remove", Program(steps) if len(steps) > 1:
            return FlowModel(name="f", body=Program(steps[1:]))
        case _, Program(steps):
            return FlowModel(name="f", body=Program(tuple(draw(st.permutations(steps)))))
    raise AssertionError("no other bodies")


def _named(task: TaskSpec, name: str) -> TaskSpec:
    return msgspec.structs.replace(task, name=name)


def _changed(model: FlowModel, change: Callable[[TaskSpec], TaskSpec], names: Mapping[str, str]) -> FlowModel:
    match model.body:
        case Program(steps):
            return FlowModel(name="f", body=Program(tuple(with_tasks(step, change) for step in steps)))
        case Network(tasks, behind):  # last of a closed set
            moved = {
                names.get(name, name): tuple(names.get(each, each) for each in those) for name, those in behind.items()
            }
            return FlowModel(name="f", body=Network(tuple(map(change, tasks)), moved))


def parameters() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "way": st.sampled_from(WAYS),
            "count": st.integers(1, 2),
            "items": st.lists(st.integers(0, 9), max_size=MOST_ITEMS),
        }
    )
