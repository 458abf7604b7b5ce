"""A task's context in another process: copies of the values it had, and a connection to the run for reports.

Not every value can travel: an earlier task may have returned a lock or a connection. Each value is packed by itself. A
value that cannot be packed here or loaded there is replaced by a deferred value (see ``values.lazy``): a task that
reads it gets an error that says why, and other tasks are not affected. Values that are lost or not loaded yet stay so.
"""

import pickle
from collections.abc import Mapping
from typing import Any

from pyoco.core.context import Context, LoopFrame  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server.adapters.executor.errors import NotPicklableError
from pyoco_server.adapters.executor.processes.child import child_control, load
from pyoco_server.app.ports.task_executor import Shield
from pyoco_server.app.runtime.context import check_report
from pyoco_server.texts import shortened
from pyoco_server.values.lazy import Deferred, LazyDict, LoadableValue

SHARED = ("params", "results", "scratch", "artifacts")
"""The fields that are copied value by value; the run does not see what the task changes in its copy."""

_RESERVED = frozenset((*SHARED, "env", "loop", "loops"))
_REMEDY = "Let the task that made it return plain data, or run this one without isolation: process."


class LeftBehind(Deferred):
    """Stands for a value that could not travel."""

    def __init__(self, what: str, reason: str) -> None:
        self.what = what
        self.reason = reason

    @override
    def get(self) -> Any:
        raise NotPicklableError(self.what, self.reason, _REMEDY)


class _FrameWithoutItem(LoopFrame):  # type: ignore[misc]  # an untyped base
    """A loop's frame whose item could not travel."""

    left_behind: Deferred

    @property
    def item(self) -> Any:  # noqa: ANN401 never comes to it
        return self.left_behind.get()

    @item.setter
    def item(self, _: object) -> None:
        """Ignore the item that the base class sets."""


class RemoteContext(Context):  # type: ignore[misc]  # an untyped base
    """The context of a task in a child process, made from what :class:`Portable` packed."""

    @override
    def __post_init__(self) -> None:
        """Do not create the artifact directory before something is saved in it."""

    @property
    @override
    def is_cancelled(self) -> bool:
        """Whether this attempt was asked to stop."""
        return child_control().is_cancelled

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Report how far the task is."""
        check_report(percent, message)
        number = percent if type(percent) in {int, float, type(None)} else float(percent or 0)
        child_control().send((number, None if message is None else shortened(message)))

    def shield(self) -> Shield:
        """Make a section that must finish: ``with ctx.shield():``."""
        return child_control().shield()


_Packed = bytes | Deferred


class Portable:
    """A context that can be pickled: it unpickles as a :class:`RemoteContext`. To pickle it runs code of users."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        context = self._context
        shared = {field: _pack_all(field, getattr(context, field)) for field in SHARED}
        plain = {"env": dict(context.env), "artifact_dir": context.artifact_dir}
        frames = [_pack_frame(frame) for frame in context.loops]
        variables = {name: value for name, value in context.expression_data().items() if name not in _RESERVED}
        return _unpack, (shared, plain, frames, _pack_all("variables", variables))


def _pack_all(field: str, values: Mapping[str, Any]) -> dict[str, _Packed]:
    entries = values.raw() if isinstance(values, LazyDict) else dict(values)
    return {key: _pack(f"{field}[{key!r}]", value) for key, value in entries.items()}


def _pack_frame(frame: LoopFrame) -> tuple[dict[str, Any], _Packed]:
    fields = {name: value for name, value in vars(frame).items() if name != "item"}
    return fields, _pack(f"the item of the loop {frame.path}", frame.item)


def _pack(what: str, value: object) -> _Packed:
    if isinstance(value, LoadableValue) and value.is_loaded:
        value = value.get()
    if isinstance(value, Deferred):  # not read yet, and not read now
        return value
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 (pickling runs the user's code, which may raise anything; the task gets the error)
        return _left_behind(f"{what}, a {type(value).__qualname__}", error)


def _unpack(
    shared: dict[str, dict[str, _Packed]],
    plain: dict[str, Any],
    frames: list[tuple[dict[str, Any], _Packed]],
    variables: dict[str, _Packed],
) -> RemoteContext:
    context = RemoteContext(**{field: _load_all(field, packed) for field, packed in shared.items()}, **plain)
    for fields, item in frames:
        context.push_loop(_load_frame(fields, item))
    context._vars = _load_all("variables", variables)  # noqa: SLF001 (pyoco has no other way to set them all)
    return context


def _load_all(field: str, packed: dict[str, _Packed]) -> dict[str, Any]:
    loaded = {key: _load(f"{field}[{key!r}]", value) for key, value in packed.items()}
    return LazyDict(loaded)


def _load_frame(fields: dict[str, Any], packed: _Packed) -> LoopFrame:
    item = _load(f"the item of the loop {fields['path']}", packed)
    if not isinstance(item, Deferred):
        return LoopFrame(**fields, item=item)
    frame = _FrameWithoutItem(**fields)
    frame.left_behind = item
    return frame


def _load(what: str, packed: _Packed) -> Any:  # noqa: ANN401 anything
    if isinstance(packed, Deferred):
        return packed.loaded_by(load)
    try:
        return load(packed)
    except Exception as error:  # noqa: BLE001 (loading imports and runs the user's code; the task gets the error)
        return _left_behind(what, error)


def _left_behind(what: str, error: Exception) -> LeftBehind:
    return LeftBehind(what, f"{type(error).__name__}: {error}")
