"""Loads the flow that the user names: a Python file, a flow.yaml, or ``MODULE:FLOW``.

Loading a Python flow runs the user's module; the text of an error in it names the place in their code.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.cli.shared.errors import UsageError, file_suggestion, suggestion
from pyoco_server.errors import InvalidInputError
from pyoco_server.flows.errors import FlowError, FlowSyntaxError
from pyoco_server.flows.model import FlowModel
from pyoco_server.flows.python_files import import_file, is_python_file
from pyoco_server.flows.yaml.document import read_flow_yaml

_YAML = frozenset({".yaml", ".yml"})
_EXAMPLES = "pyoco-client run flow.py | pyoco-client run flow.yaml | pyoco-client run package.module:flow"


def load_flow(target: str, name: str | None = None) -> Flow | FlowModel:
    """Load the flow that ``target`` and ``--flow`` name.

    Raises UsageError if there is none or several, FlowError if the flow itself is wrong.
    """
    path = Path(target)
    suffix = path.suffix.lower()
    if suffix in _YAML:
        return _from_yaml(path, name)
    if suffix == ".py" or path.is_file():
        return _from_file(path, name)
    module, colon, attribute = target.partition(":")
    if not colon or not module or not attribute:
        raise UsageError(
            f"'{target}' is neither a file nor of the form MODULE:FLOW{file_suggestion(target)}", example=_EXAMPLES
        )
    if Path(module).suffix.lower() in {".py", *_YAML}:
        raise UsageError(f"'{target}': name the flow of a file with --flow {attribute}", example=_EXAMPLES)
    return _from_module(module, attribute, name)


# --- Files -----------------------------------------------------------------------------------------------------------


def _from_yaml(path: Path, name: str | None) -> FlowModel:
    text = _content(path)
    if name is not None and name != path.stem:
        raise UsageError(f"{path} holds one flow, '{path.stem}'; there is no '{name}' in it", example=_EXAMPLES)
    _make_importable(path.resolve().parent)
    with placed_in(str(path)):
        return read_flow_yaml(text, name=path.stem)


@contextmanager
def placed_in(target: str) -> Iterator[None]:
    """Add the file to errors with a line and a column; some appear only when the flow is started."""
    try:
        yield
    except FlowSyntaxError as error:
        raise _FlowFileError(target, error) from error


class _FlowFileError(FlowError):
    """An error in a flow.yaml, with the file's name and the ids of the error inside."""

    def __init__(self, path: str, error: InvalidInputError) -> None:
        super().__init__(f"{path}: {error}")
        self.err_id = error.err_id  # type: ignore[misc]  # the id of the error inside
        self.msg_id = error.msg_id  # type: ignore[misc]


def _from_file(path: Path, name: str | None) -> Flow | FlowModel:
    _content(path)  # raises a clear error for a file that cannot be read
    file = path.resolve()
    if not is_python_file(file):
        raise UsageError(f"{file.name} is neither Python nor YAML", example=_EXAMPLES)
    _make_importable(file.parent)
    module = _running_user_code(str(path), lambda: import_file(file))
    return _choose(_flows_in(module), name, str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        near = file_suggestion(str(path)) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{path}: {error.strerror or error}{near}", example=_EXAMPLES) from error


# --- Modules ---------------------------------------------------------------------------------------------------------


def _from_module(module_name: str, attribute: str, name: str | None) -> Flow | FlowModel:
    if name is not None and name != attribute:
        raise UsageError(f"'{module_name}:{attribute}' names a flow already; leave --flow out", example=_EXAMPLES)
    _make_importable(Path.cwd())
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"'{module_name}' is not the name of a module", example=_EXAMPLES)
    if importlib.util.find_spec(module_name.partition(".")[0]) is None:
        raise UsageError(f"there is no module '{module_name}' here", example=_EXAMPLES)
    module = _running_user_code(module_name, lambda: importlib.import_module(module_name))
    return _choose(_flows_in(module), attribute, module_name)


def _make_importable(folder: Path) -> None:
    """Add the folder as the first one, as Python does for a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _running_user_code(where: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where} cannot be imported: {_described(error)}", example=_EXAMPLES) from error


def _described(error: BaseException) -> str:
    """Describe an error in one line, with the place in the user's code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"  # its text has the place
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen")]
    return f"{text} ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else text


# --- Choosing --------------------------------------------------------------------------------------------------------


def _flows_in(module: ModuleType) -> dict[str, Flow | FlowModel]:
    """Return the flows of a module by variable; a flow with two variables counts once, by the first."""
    found: dict[str, Flow | FlowModel] = {}
    seen: set[int] = set()
    for variable, value in vars(module).items():
        if isinstance(value, Flow | FlowModel) and id(value) not in seen:
            seen.add(id(value))
            found[variable] = value
    return found


def _choose(flows: Mapping[str, Flow | FlowModel], name: str | None, where: str) -> Flow | FlowModel:
    """Choose a flow by the name of its variable, which is unique, else by its own name."""
    if not flows:
        raise UsageError(
            f"{where} has no flow: no variable of the module is a pyoco Flow", example="flow = Flow() >> task"
        )
    if name is None:
        if len(flows) == 1:
            return next(iter(flows.values()))
        raise UsageError(f"{where} has several flows: {_listed(flows)}; choose one", example=_with_flow(flows, where))
    if name in flows:
        return flows[name]
    named = [flow for flow in flows.values() if flow.name == name]
    if len(named) == 1:
        return named[0]
    problem = "several flows named" if named else "no flow"
    near = "" if named else suggestion(name, [*flows, *(flow.name for flow in flows.values())])
    raise UsageError(
        f"{where} has {problem} '{name}', it has: {_listed(flows)}{near}", example=_with_flow(flows, where)
    )


def _listed(flows: Mapping[str, Flow | FlowModel]) -> str:
    return ", ".join(
        variable if variable == flow.name else f"{variable} ('{flow.name}')" for variable, flow in flows.items()
    )


def _with_flow(flows: Mapping[str, Flow | FlowModel], where: str) -> str:
    if where.endswith(".py"):
        return f"pyoco-client run {where} --flow {next(iter(flows))}"
    return f"pyoco-client run {where}:{next(iter(flows))}"
