"""The model of a flow, to which both Python objects of pyoco and a flow.yaml are converted.

A flow is either a *network* (tasks and what each depends on) or a *program* (steps one after the other, with loops and
choices). Both describe tasks by :class:`TaskSpec`; neither holds a function, so a flow can be built, checked and drawn
without importing user code. ``binding`` finds the functions when the flow runs.

``TASK_OPTIONS`` and ``BACKOFF_OPTIONS`` are the tables of what can be set for a task, in Python and in a flow.yaml.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum, unique
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from pyoco_server.flows.errors import FlowError
from pyoco_server.flows.options import Choice, Number, Option, Seconds, Truth, Whole, number

MAX_CRASHES: Final = 3
"""After the deaths of so many workers a task is not called again, unless its options say otherwise."""


@unique
class Isolation(StrEnum):
    """Where a task's function runs."""

    AUTO = "auto"
    """``async def`` on the event loop, anything else in a thread."""
    THREAD = "thread"
    PROCESS = "process"
    """In its own process, which can be killed."""


@unique
class Interrupt(StrEnum):
    """How a task is notified that its run is cancelled or its timeout has passed."""

    RAISE = "raise"
    """An exception is raised in it: TaskInterrupted in a thread, CancelledError in a coroutine."""
    FLAG = "flag"
    """Only ``ctx.is_cancelled`` becomes true."""


@unique
class OnFailure(StrEnum):
    """What the failure of a task does to its flow."""

    STOP = "stop"
    ISOLATE = "isolate"


@unique
class FailPolicy(StrEnum):
    """The values of the option ``fail_policy``, as pyoco has them: an OnFailure, or one retry."""

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
    """Which results of its rounds a loop keeps."""

    LIST = "list"
    LAST = "last"
    FIRST = "first"
    FLATTEN = "flatten"


BACKOFF_OPTIONS: Final[Mapping[str, Option]] = {
    "kind": Choice(BackoffKind),
    "delay_sec": Number(),
    "factor": Number(least=1),
    "cap_sec": Number(),
    "jitter": Number(most=1),
}


class Backoff(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pause before another attempt, in seconds."""

    kind: BackoffKind = BackoffKind.FIXED
    delay_sec: float = 0.1
    factor: float = 2.0
    cap_sec: float = 300.0
    jitter: float = 0.0
    """The random part of the pause, from 0 to 1."""

    def __post_init__(self) -> None:
        """Check all fields, and convert ``kind`` from a text; FlowError names the field that is wrong."""
        for name, option in BACKOFF_OPTIONS.items():
            force_setattr(self, name, option.checked(f"backoff {name}", getattr(self, name)))


def fixed_backoff(delay_sec: float) -> Backoff:
    """Return a backoff with the same pause every time; the default cap does not shorten it."""
    delay_sec = number("backoff", delay_sec)
    return Backoff(delay_sec=delay_sec, cap_sec=max(delay_sec, Backoff().cap_sec))


class WaitSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a waiting task waits for."""

    key: str
    prompt: Mapping[str, Any] = {}
    deadline_sec: float | None = None
    has_default: bool = False
    default: Any = None
    """The result of the wait when its deadline passes; without a default it fails."""


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A task as it appears in one place of a flow; ``name`` is the node's name and the key of its result.

    Its function is ``callable`` (``module:function``) or ``use`` (the name of a plug-in task) in a flow.yaml, and
    ``function`` in a flow of Python objects. Without any of them it is looked up by ``name``.
    """

    name: str
    function: str | None = None
    """The key of its function among those that were passed with the flow, if that is not its name."""
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
    max_crashes: int = MAX_CRASHES
    """The task fails when this many workers have died while they ran it."""
    at_most_once: bool = False
    """Once it was started, the task is never called again, whatever happened to the call."""
    wait: WaitSpec | None = None
    recompute: bool = False
    """May the task be called again, as another attempt, when its result is lost?"""
    tagged: tuple[str, ...] = ()
    """Names of inputs that are tagged JSON (``values.codec``), not decoded yet; only in a flow read from a log."""
    unwritten: tuple[str, ...] = ()
    """Names of inputs whose values the log could not hold, or that cannot be read; only in a flow read from a log."""


class BackoffOption(msgspec.Struct, frozen=True):
    """A Backoff, or a number of seconds for a fixed one."""

    def checked(self, name: str, value: Any) -> Backoff:  # noqa: ANN401 checked here
        """Return the backoff; FlowError otherwise."""
        return value if isinstance(value, Backoff) else fixed_backoff(number(name, value))


TASK_OPTIONS: Final[Mapping[str, Option | BackoffOption]] = {
    "retries": Whole(),
    "backoff": BackoffOption(),
    "timeout_sec": Seconds(),
    "fail_policy": Choice(FailPolicy),
    "isolation": Choice(Isolation),
    "interrupt": Choice(Interrupt),
    "max_crashes": Whole(least=1),
    "at_most_once": Truth(),
    "recompute": Truth(),
}
"""What can be set for a task, by :func:`~pyoco_server.flows.authoring.options` and in a flow.yaml; TaskSpec has the
defaults."""


def check_at_most_once(name: str, *, retries: int, recompute: bool, at_most_once: bool) -> None:
    """Refuse retries or ``recompute`` for a task that must not be called again: FlowError."""
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
    """Run all branches at the same time, and continue when all have ended."""

    branches: "tuple[Steps, ...]"


class Case(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One case of a switch."""

    value: Any
    body: "Steps"


class Switch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the case whose value equals that of the expression; ``default`` if none does."""

    on: str
    cases: tuple[Case, ...]
    default: "Steps | None" = None


class Repeat(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body ``count`` times; ``count`` is a number or an expression."""

    count: int | str
    body: "Steps"
    collect: Collect = Collect.LIST


class ForEach(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body for each item, up to ``parallel`` of them at the same time."""

    over: str
    body: "Steps"
    item: str | None = None
    index: str | None = None
    parallel: int = 1
    collect: Collect = Collect.LIST


class Until(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, tag=True):
    """Run the body until the condition is true."""

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
    """Tasks, and for each the names of the tasks it depends on."""

    tasks: tuple[TaskSpec, ...]
    depends_on: Mapping[str, tuple[str, ...]]


class Origin(msgspec.Struct, frozen=True):
    """The place in a file that names the function of a task, and the names of all tasks in the file."""

    line: int
    column: int
    described: tuple[str, ...] = ()


class FlowModel(msgspec.Struct, frozen=True, kw_only=True):
    """A whole flow. Expressions are in pyoco's own syntax (``$ctx.params.n > 3``)."""

    name: str
    body: Program | Network
    defaults: Mapping[str, Any] = {}
    """Default values of parameters."""
    expose_env: tuple[str, ...] | None = None
    origins: Mapping[str, Origin] = {}
    """By the name of the task, if the flow was read from a file."""


def tasks_of(model: FlowModel) -> list[TaskSpec]:
    """Return all tasks of a flow; one that appears twice is listed twice."""
    return list(model.body.tasks) if isinstance(model.body, Network) else _in_steps(model.body.steps)


def _in_steps(steps: Iterable[Step]) -> list[TaskSpec]:
    return [task for step in steps for task in tasks_in(step)]


def tasks_in(step: Step) -> list[TaskSpec]:
    """Return all tasks of a step, at any depth."""
    return [step.task] if isinstance(step, TaskStep) else [task for body in bodies(step) for task in _in_steps(body)]


def bodies(step: Step) -> list[Steps]:
    """Return the sequences of steps directly inside a step."""
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
    """Return the step with every task in it, at any depth, replaced by what ``change`` returns for it."""

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
