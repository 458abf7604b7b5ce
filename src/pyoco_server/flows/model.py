"""A flow as this system understands it, whoever wrote it and however: Python objects of pyoco, or a flow.yaml.

A flow is either a *network* (tasks and what each depends on) or a *program* (steps one after the other, with loops and
choices). Both speak of tasks by :class:`TaskSpec`; neither holds a function, so a flow can be built, checked and drawn
without importing anybody's code. Functions come in when it is run (see ``binding``).
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.option_checks import choice, number


@unique
class Isolation(StrEnum):
    """Where a task's function runs."""

    AUTO = "auto"
    """``async def`` on the event loop, anything else in a thread."""
    THREAD = "thread"
    PROCESS = "process"
    """In a process of its own, which can be killed."""


@unique
class Interrupt(StrEnum):
    """How a task learns that its run is cancelled or its time is over."""

    RAISE = "raise"
    """An exception is raised in it: TaskInterrupted in a thread, CancelledError in a coroutine."""
    FLAG = "flag"
    """Nothing but ``ctx.is_cancelled`` tells it."""


@unique
class OnFailure(StrEnum):
    """What a task's failure means for the flow (pyoco's ``fail_policy``)."""

    STOP = "stop"
    ISOLATE = "isolate"


@unique
class FailPolicy(StrEnum):
    """The words of pyoco for what a task's failure means."""

    STOP = "stop"
    ISOLATE = "isolate"
    RETRY = "retry"


@unique
class Trigger(StrEnum):
    """How many of its dependencies a task waits for (pyoco's ``trigger_policy``)."""

    ALL = "ALL"
    ANY = "ANY"


@unique
class BackoffKind(StrEnum):
    """How the pause between attempts grows."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


@unique
class Collect(StrEnum):
    """What a loop keeps of its rounds."""

    LIST = "list"
    LAST = "last"
    FIRST = "first"
    FLATTEN = "flatten"


class Backoff(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pause before another attempt, in seconds."""

    kind: BackoffKind = BackoffKind.FIXED
    delay_sec: float = 0.1
    factor: float = 2.0
    cap_sec: float = 300.0
    jitter: float = 0.0
    """How much of the pause is left to chance, from 0 to 1."""

    def __post_init__(self) -> None:
        """Take ``kind`` as a text, too; FlowError for what is no backoff."""
        force_setattr(self, "kind", choice("backoff kind", self.kind, BackoffKind))
        force_setattr(self, "delay_sec", number("backoff delay_sec", self.delay_sec))
        force_setattr(self, "factor", number("backoff factor", self.factor, least=1))
        force_setattr(self, "cap_sec", number("backoff cap_sec", self.cap_sec))
        force_setattr(self, "jitter", number("backoff jitter", self.jitter, most=1))


def fixed_backoff(delay_sec: float) -> Backoff:
    """The same pause every time; the default cap does not shorten it: 600 seconds mean ten minutes."""
    delay_sec = number("backoff", delay_sec)
    return Backoff(delay_sec=delay_sec, cap_sec=max(delay_sec, Backoff().cap_sec))


class WaitSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a waiting task waits for."""

    key: str
    prompt: Mapping[str, Any] = {}
    deadline_sec: float | None = None
    has_default: bool = False
    default: Any = None
    """What the wait yields when its deadline passes; without one it fails."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A task as it appears in one place of a flow.

    ``name`` is the node's name and the key of its result. ``source`` says where its function comes from: a
    ``module:function``, the name of a plug-in task, or None if the flow was made of Python objects that hold it.
    """

    name: str
    function: str | None = None
    """The key of its function among those a flow was handed over with, if that is not its name."""
    callable: str | None = None
    use: str | None = None
    inputs: Mapping[str, Any] = {}
    outputs: tuple[str, ...] = ()
    retries: int = 0
    backoff: Backoff = Backoff()
    timeout_sec: float | None = None
    on_failure: OnFailure = OnFailure.STOP
    trigger: Trigger = Trigger.ALL
    isolation: Isolation = Isolation.AUTO
    interrupt: Interrupt = Interrupt.RAISE
    max_crashes: int = 3
    """So many workers may die while they run the task, then it fails."""
    at_most_once: bool = False
    """Once it was started, the task is never called again, whatever became of the call."""
    wait: WaitSpec | None = None
    recompute: bool = False
    """May the task be called again, as another attempt, when its result is lost?"""
    tagged: tuple[str, ...] = ()
    """Names of inputs that are tagged JSON (``values.codec``), not decoded yet; empty in a flow that no log holds."""
    unwritten: tuple[str, ...] = ()
    """Names of inputs whose values a log could not hold, or that cannot be read; empty in a flow that no log holds."""


def check_at_most_once(name: str, *, retries: int, recompute: bool, at_most_once: bool) -> None:
    """FlowError for a task that must not be called again and has retries, or may be computed again."""
    if at_most_once and recompute:
        raise FlowError(
            f"task '{name}': at_most_once and recompute contradict each other: a result that is computed again calls "
            "the function again; remove one of them"
        )
    if at_most_once and retries:
        raise FlowError(
            f"task '{name}': at_most_once and retries={retries} contradict each other: a retry calls the function "
            "again; remove one of them"
        )


# --- Programs --------------------------------------------------------------------------------------------------------


class TaskStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run a task."""

    task: TaskSpec


class Parallel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run all branches at once, go on when all are done."""

    branches: "tuple[Steps, ...]"


class Case(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One way a switch can go."""

    value: Any
    body: "Steps"


class Switch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Go the way whose value the expression has; ``default`` if none fits."""

    on: str
    cases: tuple[Case, ...]
    default: "Steps | None" = None


class Repeat(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body so many times; ``count`` is a number or an expression."""

    count: int | str
    body: "Steps"
    collect: Collect = Collect.LIST


class ForEach(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body for each item; up to ``parallel`` of them at once."""

    over: str
    body: "Steps"
    item: str | None = None
    index: str | None = None
    parallel: int = 1
    collect: Collect = Collect.LIST


class Until(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body until the condition holds."""

    condition: str
    body: "Steps"
    max_iter: int | None = None
    collect: Collect = Collect.LAST


Step = TaskStep | Parallel | Switch | Repeat | ForEach | Until
Steps = tuple[Step, ...]


class Program(msgspec.Struct, frozen=True):
    """Steps one after the other."""

    steps: Steps


class Network(msgspec.Struct, frozen=True):
    """Tasks, and for each the names of those it depends on."""

    tasks: tuple[TaskSpec, ...]
    depends_on: Mapping[str, tuple[str, ...]]


class Origin(msgspec.Struct, frozen=True):
    """Where a file says what the function of a task is, and the names of all tasks it describes."""

    line: int
    column: int
    described: tuple[str, ...] = ()


class FlowModel(msgspec.Struct, frozen=True, kw_only=True):
    """A whole flow. Expressions are in pyoco's own syntax (``$ctx.params.n > 3``)."""

    name: str
    body: Program | Network
    defaults: Mapping[str, Any] = {}
    """Parameters that hold unless the run is given others."""
    expose_env: tuple[str, ...] = ()
    origins: Mapping[str, Origin] = {}
    """By the names of tasks, if the flow was read from a file."""


def tasks_of(model: FlowModel) -> list[TaskSpec]:
    """All tasks a flow mentions; one that appears twice is listed twice."""
    return list(model.body.tasks) if isinstance(model.body, Network) else _in_steps(model.body.steps)


def _in_steps(steps: Iterable[Step]) -> list[TaskSpec]:
    return [task for step in steps for task in tasks_in(step)]


def tasks_in(step: Step) -> list[TaskSpec]:
    """All tasks of a step, however deep."""
    return [step.task] if isinstance(step, TaskStep) else [task for body in bodies(step) for task in _in_steps(body)]


def bodies(step: Step) -> list[Steps]:
    """The sequences of steps directly inside a step."""
    match step:
        case TaskStep():
            return []
        case Parallel(branches):
            return [*branches]
        case Switch(_, cases, default):
            return [*(case.body for case in cases), default or ()]
        case Repeat() | ForEach() | Until():  # last of a closed set
            return [step.body]


def with_tasks(step: Step, change: Callable[[TaskSpec], TaskSpec]) -> Step:
    """Return the step with every task in it, however deep, replaced by what ``change`` returns for it."""

    def all_of(steps: Steps) -> Steps:
        return tuple(with_tasks(each, change) for each in steps)

    match step:
        case TaskStep(task):
            return TaskStep(change(task))
        case Parallel(branches):
            return Parallel(tuple(all_of(branch) for branch in branches))
        case Switch(_, cases, default):
            chosen = tuple(msgspec.structs.replace(case, body=all_of(case.body)) for case in cases)
            return msgspec.structs.replace(step, cases=chosen, default=None if default is None else all_of(default))
        case Repeat() | ForEach() | Until():  # last of a closed set
            return msgspec.structs.replace(step, body=all_of(step.body))
