"""Finds the flow that a job names: by a function of the user's, or in modules that are searched for flows."""

import asyncio
import difflib
import importlib
import logging
import pkgutil
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.recovery.announced_flows import Announcement, announced
from pyoco_server.errors import InvalidInputError, PyocoServerError
from pyoco_server.flows.binding import bind, bind_available
from pyoco_server.flows.callables import CallablePolicy
from pyoco_server.flows.environment import check_exposed
from pyoco_server.flows.errors import CallableNotAllowedError, EnvironmentNotExposedError, FlowError
from pyoco_server.flows.from_pyoco import Function, read_flow
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.names import check_names
from pyoco_server.flows.python_files import import_file
from pyoco_server.flows.yaml.document import read_flow_yaml

_log = logging.getLogger(__name__)

Resolver = Callable[[str], Any]
"""Returns the flow of a name; KeyError if there is none. A resolver of ours may have flows ``loaded``."""

Resolved = tuple[FlowModel, Mapping[str, Function]]
NoFlow = tuple[None, Mapping[str, Function]]
"""What a worker without the flow resolves it to."""


class FlowNotFoundError(PyocoServerError):
    """The worker does not have the flow."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0006"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0006"
    code: ClassVar[str] = "FLOW_NOT_FOUND"
    """The code of a run that fails with it."""


class EnvironmentRefusedError(FlowNotFoundError):
    """The flow.yaml lists an environment variable that this worker does not show."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0112"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0112"
    code: ClassVar[str] = "ENVIRONMENT_NOT_EXPOSED"


class CallableRefusedError(FlowNotFoundError):
    """The flow.yaml of a client names a function that this worker must not call."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0110"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0110"
    code: ClassVar[str] = "CALLABLE_NOT_ALLOWED"


class ResolverError(InvalidInputError):
    """The source of flows that was given cannot be used."""

    err_id: ClassVar[str | None] = "ERR-PYOCO-0018"
    msg_id: ClassVar[str | None] = "MSG-PYOCO-0018"


class FlowSource:
    """Resolves flows by name, and binds flow.yaml.

    ``policy`` says which functions a flow.yaml of a client may name; without it, only plug-ins. It does not apply to a
    flow.yaml among the worker's own flows: that the operator has written. ``expose_env`` are patterns of the
    environment variables that any flow.yaml may see.
    """

    def __init__(
        self, resolver: Resolver, policy: CallablePolicy | None = None, *, expose_env: tuple[str, ...] = ()
    ) -> None:
        self._resolver = resolver
        self._policy = policy or CallablePolicy()
        self._expose_env = expose_env

    async def named(self, flow_name: str, *, is_started: bool = False) -> Resolved:
        """The flow of that name; FlowNotFoundError if there is none, and whatever the user's code raises.

        For a run that ``is_started``, functions that a flow.yaml names and that are not here are left out.
        """
        flows: Flows | None = getattr(self._resolver, "loaded", None)
        try:
            if flows is not None:
                found = flows(flow_name)
            else:  # user code: it may import, or even wait
                found = await asyncio.to_thread(self._resolver, flow_name)
        except KeyError as error:
            reason = error.args[0] if error.args and error.args[0] != flow_name else "unknown to the resolver"
            cause = None if isinstance(error, _NoSuchFlowError) else error
            raise FlowNotFoundError(f"no flow is called '{flow_name}' here: {reason}") from cause
        if not isinstance(found, Flow | FlowModel):
            raise FlowNotFoundError(f"the resolver gave a {type(found).__name__} for '{flow_name}', not a Flow")
        if isinstance(found, FlowModel) and not is_started:
            self._check_environment(found)
        if flows is not None:
            return flows.read(flow_name, is_started=is_started)
        return _read(found, is_started=is_started)

    def _check_environment(self, model: FlowModel) -> None:
        try:
            check_exposed(model.expose_env, self._expose_env)
        except EnvironmentNotExposedError as error:
            raise EnvironmentRefusedError(str(error)) from error

    async def announcement(self, wheels: Mapping[str, str]) -> Announcement | None:
        """Return what a worker announces of its flows; None if the resolver cannot enumerate them.

        User code is imported for it: call it while no job is at work. A flow that cannot be loaded is left out, since
        no run can use it.
        """
        return await asyncio.to_thread(self._announcement, wheels)

    def _announcement(self, wheels: Mapping[str, str]) -> Announcement | None:
        make: Callable[[], Resolver] | None = getattr(self._resolver, "make", None)
        if make is not None and getattr(self._resolver, "loaded", None) is None:
            try:
                make()
            except ResolverError as error:
                _log.warning("no flows can be announced: %s", error, extra={"action": "flows_not_announced"})
                return {}
        flows: Flows | None = getattr(self._resolver, "loaded", None)
        if flows is None:
            return None
        found: Announcement = {}
        for name in flows.names:
            try:
                model, functions = flows.read(name)
                found[name] = announced(model, functions, wheels)
            except (Exception, SystemExit) as error:  # noqa: BLE001 whatever the user's code raises when it is loaded
                extra = {"action": "flow_not_announced", "flow_name": name}
                _log.warning("flow '%s' is not announced: %s: %s", name, type(error).__name__, error, extra=extra)
        return found

    async def from_yaml(self, text: str, flow_name: str, *, is_started: bool = False) -> Resolved:
        """The flow a flow.yaml describes; FlowNotFoundError if code it refers to is not installed here.

        For a run that ``is_started``, functions that are not here are left out.
        """
        model = read_flow_yaml(text, name=flow_name)
        if is_started:
            return model, await asyncio.to_thread(bind_available, model, policy=self._policy)
        self._check_environment(model)
        try:
            return model, await asyncio.to_thread(bind, model, policy=self._policy)
        except CallableNotAllowedError as error:
            raise CallableRefusedError(str(error)) from error
        except FlowError as error:
            raise FlowNotFoundError(str(error)) from error


def no_flows(flow_name: str) -> Any:  # noqa: ANN401 never returns
    """The resolver of a worker that was given none: it runs flow.yaml only."""
    raise KeyError(flow_name)


def load_resolver(spec: str) -> Resolver:
    """The function ``module:function`` or ``path.py:function`` names; ResolverError says what is wrong with it."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise ResolverError(f"'{spec}' is not module:function or path.py:function, for example flows.py:resolve")
    module = _load(where)
    found = getattr(module, name, None)
    if not callable(found):
        raise ResolverError(f"'{where}' has no function '{name}'")
    resolver: Resolver = found
    return resolver


class Flows:
    """A resolver over flows that are imported; ``origins`` says where each was found, if that is known."""

    def __init__(self, flows: Mapping[str, Flow | FlowModel], origins: Mapping[str, str] | None = None) -> None:
        self._flows = flows
        self._read: dict[str, Resolved] = {}
        self.origins = dict(origins or {})

    @property
    def loaded(self) -> "Flows":
        """The flows that are imported already; a resolver of the user's has no such attribute, and is called."""
        return self

    @property
    def names(self) -> list[str]:
        """The names of all flows."""
        return sorted(self._flows)

    def read(self, flow_name: str, *, is_started: bool = False) -> Resolved:
        """The flow of that name as it is run, read once; KeyError as below.

        For a run that ``is_started``, functions that a flow.yaml names and that are not here are left out.
        """
        read = self._read.get(flow_name)
        if read is not None:
            return read
        read = _read(self(flow_name), is_started=is_started)
        if not is_started:
            self._read[flow_name] = read
        return read

    def __call__(self, flow_name: str) -> Flow | FlowModel:
        """The flow of that name; KeyError names those there are, and the one that may have been meant."""
        if flow_name in self._flows:
            return self._flows[flow_name]
        near = difflib.get_close_matches(flow_name, self._flows, n=1)
        meant = f"; did you mean '{near[0]}'?" if near else ""
        raise _NoSuchFlowError(f"there are {', '.join(sorted(self._flows)) or 'none'}{meant}")


def _read(flow: Flow | FlowModel, *, is_started: bool) -> Resolved:
    if not isinstance(flow, FlowModel):
        return read_flow(flow)
    if is_started:
        return flow, bind_available(flow)
    functions = bind(flow)
    check_names(flow, functions)
    return flow, functions


class _NoSuchFlowError(KeyError):
    """Raised by our own resolver, so that its traceback is of no use."""


class _FoundFlow(NamedTuple):
    flow: Flow | FlowModel
    place: str
    """The name of the module, or of the flow.yaml."""
    file: str


def discover(places: Sequence[str]) -> Flows:
    """A resolver over all flows found in these modules, packages, Python files or flow.yaml files, by their names.

    A flow.yaml has no name of its own: it goes by its file's.
    """
    flows: dict[str, _FoundFlow] = {}
    for where in places:
        for found in _flows_in(where):
            name = found.flow.name
            known = flows.setdefault(name, found)
            if known.flow is not found.flow:
                raise ResolverError(
                    f"two flows are called '{name}': in {known.place} and in {found.place}; rename one of them"
                )
    return Flows(
        {name: found.flow for name, found in flows.items()}, {name: found.file for name, found in flows.items()}
    )


def _flows_in(where: str) -> Iterator[_FoundFlow]:
    if where.endswith((".yaml", ".yml")):
        yield _FoundFlow(_yaml_flow(Path(where)), where, where)
        return
    for module in _with_submodules(_load(where)):
        for value in vars(module).values():
            if isinstance(value, Flow | FlowModel):
                yield _FoundFlow(value, module.__name__, getattr(module, "__file__", None) or module.__name__)


def _yaml_flow(path: Path) -> FlowModel:
    try:
        return read_flow_yaml(path.read_bytes(), name=path.stem)
    except OSError as error:
        raise ResolverError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except FlowError as error:
        raise ResolverError(f"{path}: {error}") from error


def _load(where: str) -> ModuleType:
    try:
        return _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except ResolverError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's module raises
        raise ResolverError(f"'{where}' cannot be imported: {type(error).__name__}: {error}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """Where in the user's code it went wrong; a SyntaxError says so itself."""
    if isinstance(error, SyntaxError):
        return ""
    ours = (__file__, import_file.__code__.co_filename, importlib.__file__, "<frozen")
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ResolverError(f"there is no file '{path}'")
    return import_file(path)


def _with_submodules(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    if hasattr(module, "__path__"):
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            if not found.name.endswith(".__main__"):  # a program, not a module: importing it would run it
                yield _load(found.name)
