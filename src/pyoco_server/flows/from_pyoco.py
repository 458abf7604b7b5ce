"""Copies a flow of pyoco's objects into our model, and does not change the objects.

pyoco's tasks are global objects: a flow built from them writes its edges onto them, and two flows that share a task see
each other's edges. ``flow_edges`` knows which edges belong to which flow. The flow is copied once, when it is passed to
an engine or a worker; dependencies on tasks that are not in the flow are dropped.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pyoco.core.models import Flow, Task  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl import nodes as dsl  # type: ignore[import-untyped]
from pyoco.dsl.expressions import Expression  # type: ignore[import-untyped]

from pyoco_server.flows.errors import FlowError, UnknownNameError
from pyoco_server.flows.flow_edges import edges_of, trigger_of
from pyoco_server.flows.model import (
    TASK_OPTIONS,
    Case,
    Collect,
    FlowModel,
    ForEach,
    Network,
    OnFailure,
    Program,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Trigger,
    Until,
)
from pyoco_server.flows.names import check_names

Function = Callable[..., Any]

_OWN_OPTIONS: Final = TASK_OPTIONS.keys() - {"retries", "timeout_sec", "fail_policy"} | {"wait"}
"""Those that pyoco's tasks do not have."""


class Authored(NamedTuple):
    """A flow, and the functions of its tasks by name."""

    model: FlowModel
    functions: dict[str, Function]


def read_flow(flow: Flow) -> Authored:
    """Copy a pyoco flow; later changes to its objects do not change the copy.

    FlowError if it cannot run; a name in an expression or an input that is nearly one of the flow's is refused.
    """
    reader = _FlowReader()
    body = reader.program(flow) if flow.has_control_flow() else reader.network(flow)
    model = FlowModel(name=flow.name or "main", body=body)
    try:
        check_names(model, reader.functions)
    except UnknownNameError as error:
        raise FlowError(f"flow '{model.name}': {error}") from error
    return Authored(model, reader.functions)


def _check_names(flow: Flow, tasks: Mapping[str, Task]) -> None:
    """Refuse a flow with two different tasks of the same name: FlowError.

    For pyoco, tasks of one name are equal: its set of tasks keeps the first, and the function of the second would never
    be called. The flow's definition still has both.
    """
    for node in flow.build_program().steps:
        if node.task is not tasks.get(node.task.name):
            raise FlowError(
                f"flow '{flow.name}': two different tasks have the name '{node.task.name}', and only one of them would "
                "run; give one another name: rename its function, or set task.name before it is put into the flow"
            )


class _FlowReader:
    """Copies the parts of a flow, and collects the functions it meets."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def network(self, flow: Flow) -> Network:
        tasks = {task.name: task for task in flow.tasks}
        _check_names(flow, tasks)
        specs = (self._task(tasks[name], trigger=trigger_of(flow, tasks[name])) for name in sorted(tasks))
        return Network(tuple(specs), edges_of(flow))

    def program(self, flow: Flow) -> Program:
        return Program(self._steps(flow.build_program()))

    def _steps(self, subflow: dsl.SubFlowNode) -> Steps:
        return tuple(self._step(node) for node in subflow.steps)

    def _step(self, node: dsl.DSLNode) -> Step:
        match node:
            case dsl.TaskNode():
                return TaskStep(self._task(node.task))
            case dsl.RepeatNode():
                count = node.count.source if isinstance(node.count, Expression) else node.count
                return Repeat(count, self._steps(node.body), Collect(node.collect or Collect.LIST))
            case dsl.ForEachNode():
                return ForEach(
                    node.source.source,
                    self._steps(node.body),
                    item=node.alias,
                    index=node.index_alias,
                    collect=Collect(node.collect or Collect.LIST),
                )
            case dsl.UntilNode():
                collect = Collect(node.collect or Collect.LAST)
                return Until(node.condition.source, self._steps(node.body), node.max_iter, collect)
            case dsl.SwitchNode():
                return self._switch(node)
            case _:
                raise FlowError(f"a flow cannot contain a {type(node).__name__}")

    def _switch(self, node: dsl.SwitchNode) -> Switch:
        cases = [case for case in node.cases if case.value != dsl.DEFAULT_CASE_VALUE]
        defaults = [case for case in node.cases if case.value == dsl.DEFAULT_CASE_VALUE]
        return Switch(
            node.expression.source,
            tuple(Case(case.value, self._steps(case.target)) for case in cases),
            self._steps(defaults[0].target) if defaults else None,
        )

    def _task(self, task: Task, *, trigger: str = "ALL") -> TaskSpec:
        """Copy a task; ``authoring`` sets the options that pyoco does not have as attributes of the task."""
        own = {name: getattr(task, name) for name in _OWN_OPTIONS if getattr(task, name, None) is not None}
        return TaskSpec(
            name=task.name,
            function=self._key(task),
            inputs=dict(task.inputs),
            outputs=tuple(task.outputs),
            retries=task.retries,
            timeout_sec=task.timeout_sec or None,
            on_failure=OnFailure.ISOLATE if task.fail_policy == "isolate" else OnFailure.STOP,
            trigger=Trigger.ANY if trigger == "ANY" else Trigger.ALL,
            **own,
        )

    def _key(self, task: Task) -> str:
        """Return the key of the task's function; two functions of tasks with one name get two keys."""
        name: str = task.name
        key, number = name, 1
        while key in self.functions and self.functions[key] is not task.func:
            number += 1
            key = f"{name}:{number}"
        self.functions[key] = task.func
        return key
