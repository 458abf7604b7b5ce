"""Checks of a flow.yaml at its submission, which reading it does not make: problems that the author can still correct.

Reading a flow makes no such checks: a flow that was once accepted must stay readable for the worker that continues its
run.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import Final

from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.flows.environment import check_exposed
from pyoco_server.flows.errors import (
    AnswerError,
    CallableNotAllowedError,
    FlowError,
    FlowSyntaxError,
    UnknownNameError,
)
from pyoco_server.flows.forms import check_answer
from pyoco_server.flows.model import (
    FlowModel,
    ForEach,
    Network,
    Origin,
    Parallel,
    Repeat,
    Steps,
    Switch,
    TaskSpec,
    TaskStep,
    Until,
    tasks_of,
)
from pyoco_server.flows.names import check_names
from pyoco_server.flows.positions import shown
from pyoco_server.flows.prompts import check_prompt, has_templates

_NOWHERE: Final = Origin(1, 1)


def check_reach(model: FlowModel, policy: CallablePolicy) -> None:
    """Refuse a flow with a function that no worker would call, or a variable that none would show, by their names.

    Raises CallableNotAllowedError and EnvironmentNotExposedError.
    """
    check_exposed(model.expose_env, None)
    for task in tasks_of(model):
        refusal = policy.refusal_by_name(task.callable) if task.callable is not None else None
        if refusal is not None:
            raise CallableNotAllowedError(
                *_place(model, task), f"task {shown(task.name)}: {refusal.problem}", refusal.remedy
            )


def check_submitted(model: FlowModel, *, params: Collection[str] | None = None) -> None:
    """Refuse a flow that cannot run: FlowSyntaxError.

    ``params`` are the names of all parameters that the run will have, or None if they are not known. Refused are: a
    task that follows itself, a wait whose prompt or default is wrong, and a name that the flow does not have.
    """
    if not isinstance(model.body, Network):
        for steps in _sequences(model.body.steps):
            _check_neighbours(model, steps)
    tasks = tasks_of(model)
    for task in tasks:
        _check_wait(model, task)
    try:
        check_names(model, params=params)
    except UnknownNameError as error:
        origin = model.origins.get(error.task or "", _NOWHERE)
        raise FlowSyntaxError(origin.line, origin.column, error.problem, error.remedy) from error


def _check_wait(model: FlowModel, task: TaskSpec) -> None:
    """Refuse a prompt that cannot be rendered or has an invalid schema, and a default that does not fit its form."""
    if task.wait is None:
        return
    try:
        check_prompt(task.wait.prompt)
        if task.wait.has_default and not has_templates(task.wait.prompt):
            check_answer(task.name, task.wait.prompt, task.wait.default)
    except AnswerError as error:
        problem = f"the default of the wait {shown(task.name)} does not fit its form: {error.summary}"
        raise FlowSyntaxError(*_place(model, task), problem, "correct the default or the form") from error
    except FlowError as error:
        remedy = "correct the prompt"
        raise FlowSyntaxError(*_place(model, task), f"the wait {shown(task.name)}: {error}", remedy) from error


def _check_neighbours(model: FlowModel, steps: Steps) -> None:
    for one, other in itertools.pairwise(steps):
        if isinstance(one, TaskStep) and isinstance(other, TaskStep) and one.task.name == other.task.name:
            name = one.task.name
            remedy = f"write {name[:60]}_2:{name[:60]} for the second, or repeat(count=2){{ {name[:60]} }}"
            raise FlowSyntaxError(*_place(model, one.task), f"the task {shown(name)} follows itself", remedy)


def _sequences(steps: Steps) -> Iterator[Steps]:
    """Return the steps, and those of every block in them."""
    yield steps
    for step in steps:
        match step:
            case Repeat() | ForEach() | Until():
                yield from _sequences(step.body)
            case Switch():
                for body in (*(case.body for case in step.cases), step.default or ()):
                    yield from _sequences(body)
            case Parallel():
                for branch in step.branches:
                    yield from _sequences(branch)
            case TaskStep():
                pass


def _place(model: FlowModel, task: TaskSpec) -> tuple[int, int]:
    origin = model.origins.get(task.name, _NOWHERE)
    return origin.line, origin.column
