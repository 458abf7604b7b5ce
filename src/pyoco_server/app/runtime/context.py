"""What a task sees of its run: pyoco's own Context, with the few things it cannot know.

All tasks of a run share parameters, results, scratch and artifacts. Loop frames and loop variables belong to the place
a task stands in, so each place has a context of its own; two rounds of a parallel loop do not see each other's item.
"""

import copy
import os
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyoco.core.context import Context, LoopFrame  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import RunContext, RunStatus, TaskState  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server.app.ports.task_executor import Shield
from pyoco_server.values.lazy import LazyDict, is_deferred

Progress = Callable[[float | None, str | None], None]


def check_report(percent: Any, message: Any) -> None:  # noqa: ANN401 users pass what they like; it is checked here
    """Refuse what is no progress, where it is reported: a percentage outside 0 to 100, or the wrong types."""
    if not isinstance(percent, int | float | None) or not isinstance(message, str | None):
        raise TypeError("progress takes a number and a text")
    if percent is not None and not 0 <= percent <= 100:
        raise ValueError(f"progress must be between 0 and 100, not {percent}")


def _discard(_percent: float | None, _message: str | None) -> None:
    """Receive progress before an attempt begins and after it ends."""


class TaskContext(Context):  # type: ignore[misc]  # an untyped base
    """The context of one attempt."""

    _cancelled: bool
    _report: Progress
    _shield: Shield
    _visible: Collection[str] | None = None
    """The environment variables that expressions and inputs see; None: all."""

    @override
    def __post_init__(self) -> None:
        """Leave the artifact directory alone until something is saved in it."""
        self._cancelled = False
        self._report = _discard
        self._shield = Shield()

    @property
    @override
    def is_cancelled(self) -> bool:
        """Was this attempt, or its run, asked to stop?"""
        return self._cancelled

    def shared(self) -> dict[str, Any]:
        """Return the dictionaries that tasks read results from, by name."""
        return {"params": self.params, "results": self.results, "scratch": self.scratch}

    def show_environment(self, visible: Collection[str] | None) -> None:
        """Say which environment variables expressions and inputs see; None: all."""
        self._visible = visible

    @override
    def env_data(self) -> dict[str, str]:
        if self._visible is None:
            every: dict[str, str] = super().env_data()
            return every
        shown: dict[str, str] = {name: os.environ[name] for name in self._visible if name in os.environ} | self.env
        return shown

    @override
    def resolve(self, value: Any) -> Any:
        if self._visible is None or not isinstance(value, str) or not value.startswith("$env."):
            return super().resolve(value)
        name = value.removeprefix("$env.")
        found = self.env_data()
        if name not in found:
            raise KeyError(f"Environment variable '{name}' not found, or not shown by this worker.")
        return found[name]

    def share_variables(self, own: Mapping[str, Any], shared: dict[str, Any]) -> None:
        """Loop variables belong to this place, any others to the run."""
        self._vars = ChainMap(dict(own), shared)

    @override
    def set_var(self, name: str, value: Any) -> None:
        """Set a variable for all tasks of the run, unless it is one of this place's loops."""
        own, shared = self._vars.maps
        (own if name in own else shared)[name] = value

    def shield(self) -> Shield:
        """Make a section that must finish: ``with ctx.shield():``.

        The task is not interrupted inside; an interruption that comes meanwhile arrives when the outermost section
        ends. The run waits for that for its grace period, no longer: then it ends. A section in a process is killed
        then; one in a thread or coroutine runs on to its end, and the task is interrupted there.
        """
        return self._shield

    def ask_to_stop(self) -> None:
        """Make ``is_cancelled`` true."""
        self._cancelled = True

    def report_to(self, report: Progress) -> None:
        """Say where progress goes."""
        self._report = report

    def fall_silent(self) -> None:
        """Discard progress from now on: the attempt is over, but an abandoned function may still report."""
        self._report = _discard

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Say how far the task is; shows in the log and wherever the run is watched.

        May be called as often as one likes, from any thread; of what comes too fast to be read only the last is kept.
        """
        check_report(percent, message)
        self._report(percent, message)


class RunScope:
    """What all contexts of one run share."""

    def __init__(
        self,
        run_id: str,
        flow_name: str,
        params: Mapping[str, Any],
        artifact_dir: str,
        *,
        visible: Collection[str] | None = None,
    ) -> None:
        """``visible`` are the environment variables that expressions and inputs see; None: all."""
        self.run = RunContext(run_id=run_id, flow_name=flow_name, params=dict(params))
        self.run.params = LazyDict(copy.deepcopy(dict(params)))  # the state has them too, and must not change with them
        self.results = LazyDict()
        self.env: dict[str, str] = {}
        self.variables: dict[str, Any] = {}
        self.scratch = LazyDict()
        self.artifacts: dict[str, Any] = {}
        self._artifact_dir = artifact_dir
        self._visible = visible

    @property
    def params(self) -> LazyDict:
        """The run's parameters."""
        params: LazyDict = self.run.params
        return params

    def context(self, place: "Place") -> TaskContext:
        """A context for one attempt at this place."""
        context = TaskContext(
            params=self.params,
            results=self.results,
            scratch=self.scratch,
            artifacts=self.artifacts,
            env=self.env,
            artifact_dir=self._artifact_dir,
            run_context=self.run,
        )
        for frame in place.frames:
            context.push_loop(LoopFrame(**frame))
        context.share_variables(place.variables, self.variables)
        context.show_environment(self._visible)
        return context

    def note(self, task_name: str, state: TaskState) -> None:
        """Let code that looks at the run context see how a task stands."""
        self.run.tasks[task_name] = state

    def mark_cancelling(self) -> None:
        """Let code that looks at the run context see that the run is being cancelled."""
        self.run.status = RunStatus.CANCELLING

    def keep(self, task_name: str, outputs: tuple[str, ...], value: Any) -> None:  # noqa: ANN401 any result
        """Store a result where the task's ``outputs`` say, besides under its name."""
        self.results[task_name] = value
        roots = {"scratch": self.scratch, "results": self.results, "params": self.params}
        for path in outputs:
            root, *inner = path.split(".")
            if root in roots:
                _store(roots[root], inner or [root], value)


class Place:
    """Where in a program a task stands: the loops around it, and their variables."""

    __slots__ = ("frames", "variables")

    def __init__(self, frames: tuple[dict[str, Any], ...] = (), variables: Mapping[str, Any] | None = None) -> None:
        self.frames = frames
        self.variables = dict(variables or {})

    def inside(self, frame: dict[str, Any], **variables: Any) -> "Place":  # noqa: ANN401 loop variables are any value
        """The place one loop further in."""
        return Place((*self.frames, frame), {**self.variables, **variables})


def _store(target: Any, path: list[str], value: Any) -> None:  # noqa: ANN401 any result
    """Set a nested key; something that is not a dictionary on the way keeps its place, and the value is not stored.

    A deferred value needs dictionaries that know of deferred values all the way.
    """
    for part in path[:-1]:
        inner = dict.setdefault(target, part, {})  # of dict itself: subclasses have code of users
        if not issubclass(type(inner), dict):
            return
        if is_deferred(value) and type(inner) is not LazyDict:
            inner = LazyDict(dict.items(inner))
            dict.__setitem__(target, part, inner)
        target = inner
    dict.__setitem__(target, path[-1], value)
