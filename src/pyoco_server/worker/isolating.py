"""Where plain functions run whose task does not say: the worker's choice, written into the flow it runs."""

from collections.abc import Mapping

from msgspec.structs import replace

from pyoco_server.app.calling import shape_of
from pyoco_server.flows.from_pyoco import Function
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Isolation,
    Network,
    Parallel,
    Program,
    Repeat,
    Step,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
)


def isolated(model: FlowModel, functions: Mapping[str, Function], isolation: Isolation) -> FlowModel:
    """The flow with ``isolation`` for every plain function whose task leaves it open; coroutines stay on the loop."""
    return replace(model, body=_Isolating(functions, isolation).body(model.body))


class _Isolating:
    def __init__(self, functions: Mapping[str, Function], isolation: Isolation) -> None:
        self._functions = functions
        self._isolation = isolation

    def body(self, body: Program | Network) -> Program | Network:
        if isinstance(body, Network):
            return replace(body, tasks=tuple(map(self._task, body.tasks)))
        return Program(self._steps(body.steps))

    def _steps(self, steps: Steps) -> Steps:
        return tuple(map(self._step, steps))

    def _step(self, step: Step) -> Step:
        match step:
            case TaskStep(task):
                return TaskStep(self._task(task))
            case Parallel(branches):
                return Parallel(tuple(map(self._steps, branches)))
            case Switch(_, cases, default):
                chosen = tuple(replace(case, body=self._steps(case.body)) for case in cases)
                return replace(step, cases=chosen, default=None if default is None else self._steps(default))
            case Repeat() | ForEach() | Until():  # last of a closed set
                return replace(step, body=self._steps(step.body))

    def _task(self, task: TaskSpec) -> TaskSpec:
        if task.isolation is not Isolation.AUTO or task.wait is not None:
            return task
        function = self._functions[task.function or task.name]
        return task if shape_of(function).is_async else replace(task, isolation=self._isolation)
