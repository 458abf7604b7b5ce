"""The same flow on pyoco's engine and on ours, with outcomes that can be compared.

pyoco's tasks are global objects that a flow writes its edges onto, so a case is a function that builds all of them;
each engine is given a flow of its own.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyoco.core.engine import Engine as PyocoEngine  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Flow, RunContext, Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from pyoco.trace.backend import TraceBackend  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.core.payloads import NodeCreated, NodeStarted
from pyoco_server.engine import RunResult

SKIPPED = "SKIPPED"
"""The state of a task that was never begun, because of another: pyoco says FAILED, we say CANCELED."""

DEADLOCK = "Deadlock or cycle detected in workflow"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: str
    results: dict[str, Any]
    tasks: dict[str, str]
    error: tuple[str, str] | None = None
    """The type and the text of the exception that ended it."""


@dataclass
class Built:
    """A flow, the parameters to run it with, and what its tasks noted while they ran."""

    flow: Flow
    params: dict[str, Any] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)


Build = Callable[[], Built]


class Cases(dict[str, Build]):
    """Flows to be compared, by name; used as a decorator it adds one."""

    def __call__(self, build: Build) -> Build:
        self[build.__name__] = build
        return build


class Quiet(TraceBackend):  # type: ignore[misc]  # an untyped base
    """Says nothing."""

    @override
    def on_flow_start(self, flow_name: str, run_id: str | None = None) -> None: ...

    @override
    def on_flow_end(self, flow_name: str) -> None: ...

    @override
    def on_node_start(self, node_name: str) -> None: ...

    @override
    def on_node_end(self, node_name: str, duration_ms: float) -> None: ...

    @override
    def on_node_error(self, node_name: str, error: Exception) -> None: ...


def step(function: Callable[..., Any], name: str | None = None, **options: Any) -> TaskWrapper:
    """A new task; options are attributes of pyoco's Task."""
    return TaskWrapper(Task(func=function, name=name or getattr(function, "__name__", "task"), **options))


def returning(name: str, value: Any = None, **options: Any) -> TaskWrapper:
    """A task that returns a value."""
    return step(lambda: value, name, **options)


def failing(name: str, error: BaseException | None = None, **options: Any) -> TaskWrapper:
    """A task that raises."""
    raised = error or ValueError(f"{name} broke")

    def fail() -> None:
        raise raised

    return step(fail, name, **options)


def add(name: str, **options: Any) -> TaskWrapper:
    """A task that adds one to whatever its input ``x`` is."""
    return step(lambda x: x + 1, name, **options)


def peek(name: str = "peek") -> TaskWrapper:
    """A task that returns what the run's scratch and parameters are by now."""
    return step(lambda ctx: copy.deepcopy({"scratch": ctx.scratch, "params": ctx.params}), name)


def flaky(name: str, failures: int, **options: Any) -> TaskWrapper:
    """A task that fails so many times, then returns how often it was called."""
    calls: list[int] = []

    def call() -> int:
        calls.append(1)
        if len(calls) <= failures:
            raise ConnectionError(f"call {len(calls)}")
        return len(calls)

    return step(call, name, **options)


def counter(name: str, **options: Any) -> TaskWrapper:
    """A task that returns how often it was called."""
    return flaky(name, 0, **options)


def noting(built: Built, name: str, **options: Any) -> TaskWrapper:
    """A task that notes the loops it stands in."""

    def note(ctx: Any) -> int:
        frames = [(f.type, f.index, f.iteration, f.count, f.item, f.condition, f.path) for f in ctx.loops]
        built.notes.append((name, frames))
        return len(frames)

    return step(note, name, **options)


def network(*steps: TaskWrapper, name: str = "main") -> Flow:
    """A flow of tasks whose edges are set elsewhere."""
    flow = Flow(name=name)
    for one in steps:
        flow.add_task(one.task)
    return flow


def after(one: TaskWrapper, *others: TaskWrapper) -> TaskWrapper:
    """Make a task depend on others."""
    for other in others:
        one.task.dependencies.add(other.task)
        other.task.dependents.add(one.task)
    return one


# --- pyoco -----------------------------------------------------------------------------------------------------------


class _Watched(PyocoEngine):  # type: ignore[misc]  # an untyped base
    """Keeps the context, which a failed run would take with it: pyoco raises, and returns nothing."""

    context: Any = None

    @override
    def _run_flow(self, flow: Flow, ctx: Any, *rest: Any) -> Any:
        self.context = ctx
        return super()._run_flow(flow, ctx, *rest)


def run_on_pyoco(built: Built) -> Outcome:
    """Run on pyoco's engine."""
    run = RunContext()
    engine = _Watched(trace_backend=Quiet())
    error = None
    try:
        engine.run(built.flow, built.params, run)
    except Exception as raised:  # noqa: BLE001 whatever the flow raises is what we compare
        error = (type(raised).__name__, str(raised))
    tasks = {name: _pyoco_state(run, name) for name in run.tasks}
    return Outcome(run.status.value, dict(engine.context.results), tasks, error)


def _pyoco_state(run: RunContext, name: str) -> str:
    state: str = run.tasks[name].value
    never_begun = run.task_records[name].started_at is None
    return SKIPPED if state == "FAILED" and never_begun else state


def without_deadlock(pyoco: Outcome) -> Outcome:
    """What pyoco would report if it did not take tasks further behind an isolated failure for a deadlock."""
    if pyoco.error != ("RuntimeError", DEADLOCK):
        return pyoco
    tasks = {name: SKIPPED if state == "PENDING" else state for name, state in pyoco.tasks.items()}
    return Outcome("COMPLETED", pyoco.results, tasks)


# --- Ours ------------------------------------------------------------------------------------------------------------


def run_on_ours(engine: Engine, built: Built) -> Outcome:
    """Run on our engine."""
    return outcome_of(engine, built.flow, engine.run(built.flow, built.params))


def outcome_of(engine: Engine, flow: Flow, ended: RunResult) -> Outcome:
    """Describe a result of ours as an outcome."""
    tasks = {task.name: "PENDING" for task in flow.tasks}
    for task, node_id in _nodes_of_tasks(engine, ended).items():
        node = ended.state.nodes[node_id]
        state = node.status.value
        if state == "CANCELED" and node.skip is not None:
            state = SKIPPED
        tasks[task] = {"IDLE": "PENDING"}.get(state, state)
    return Outcome(ended.status, dict(ended.results), tasks, _our_error(ended))


def _nodes_of_tasks(engine: Engine, ended: RunResult) -> dict[str, str]:
    """The node that counts for each task: the one begun last, or if none was the one created last."""
    task_of: dict[str, str] = {}
    created: dict[str, str] = {}
    begun: dict[str, str] = {}
    for event in engine.events(ended.run_id):
        match event.payload:
            case NodeCreated(node_id=node_id, meta=meta):
                described = (meta or {}).get("node", {})
                if "task" in described:
                    task_of[node_id] = described["task"]
                    created[described["task"]] = node_id
            case NodeStarted(node_id=node_id) if node_id in task_of:
                begun[task_of[node_id]] = node_id
            case _:
                pass
    return created | begun


def _our_error(ended: RunResult) -> tuple[str, str] | None:
    failure = ended.state.failure
    if failure is None:
        return None
    error = failure.get("error") or ended.state.nodes[failure["failedNodeId"]].error
    return (error["code"], error["message"]) if error else ("", failure["reason"])


# --- Both ------------------------------------------------------------------------------------------------------------


def attributes(flow: Flow) -> dict[str, dict[str, Any]]:
    """Everything pyoco's objects say about a flow, for comparing before with after."""
    return {task.name: _attributes(task) for task in flow.tasks}


def _attributes(task: Task) -> dict[str, Any]:
    plain = {key: value for key, value in vars(task).items() if key not in {"func", "dependencies", "dependents"}}
    return {
        **copy.deepcopy(plain),
        "func": task.func,
        "dependencies": {id(other) for other in task.dependencies},
        "dependents": {id(other) for other in task.dependents},
    }


def run_on_both(engine: Engine, build: Build) -> tuple[Outcome, list[Any], Outcome, list[Any]]:
    """Build the flow twice and run it once on each; ours must leave pyoco's objects as they were."""
    theirs = build()
    theirs_ended = run_on_pyoco(theirs)
    ours = build()
    assert not {id(task) for task in theirs.flow.tasks} & {id(task) for task in ours.flow.tasks}, (
        "both engines got the same tasks"
    )
    before = attributes(ours.flow)
    definition = list(ours.flow._definition)
    ours_ended = run_on_ours(engine, ours)
    assert attributes(ours.flow) == before
    assert ours.flow._definition == definition
    return theirs_ended, theirs.notes, ours_ended, ours.notes


def agree(engine: Engine, build: Build) -> Outcome:
    """Run on both and compare everything; return what they agree on."""
    pyoco, pyoco_notes, ours, our_notes = run_on_both(engine, build)
    assert ours == pyoco
    assert {name: type(value) for name, value in ours.results.items()} == {
        name: type(value) for name, value in pyoco.results.items()
    }
    assert our_notes == pyoco_notes
    return ours
