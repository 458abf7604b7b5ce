"""A task's context in another process: what it had when it was sent, and a line back to the run for the rest."""

from typing import Any

from pyoco.core.context import Context  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server.adapters.isolation.child import child_control

SHARED = ("params", "results", "scratch", "artifacts", "env", "artifact_dir")
"""What is copied; what the task changes in its copy stays there."""


class RemoteContext(Context):  # type: ignore[misc]  # an untyped base
    """Looks like the context of any task; made in the child from what :func:`portable` packed."""

    @override
    def __post_init__(self) -> None:
        """Leave the artifact directory alone until something is saved in it."""

    @property
    @override
    def is_cancelled(self) -> bool:
        """Was this attempt asked to stop?"""
        return child_control().is_cancelled

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Say how far the task is."""
        child_control().send((percent, message))


class Portable:
    """A context on its way: unpickles as a :class:`RemoteContext`."""

    def __init__(self, context: Context) -> None:
        self._fields = {name: getattr(context, name) for name in SHARED}
        self._frames = list(context.loops)
        self._variables = dict(context.expression_data())

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        reserved = {*SHARED, "loop", "loops"}
        variables = {name: value for name, value in self._variables.items() if name not in reserved}
        return _unpack, (self._fields, self._frames, variables)


def _unpack(fields: dict[str, Any], frames: list[Any], variables: dict[str, Any]) -> RemoteContext:
    context = RemoteContext(**fields)
    for frame in frames:
        context.push_loop(frame)
    for name, value in variables.items():
        context.set_var(name, value)
    return context
