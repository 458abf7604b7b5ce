"""Which functions a flow.yaml of a client may name: those that the operator of the worker allows.

A client chooses the text ``module:function``. By default it may reach only modules that come with the worker's flow
files or with synced wheels; ``PYOCO_CALLABLES`` allows more, and denies. A path is judged twice: its module before it
is imported, because an import runs code, and the object that it leads to, because a module also has the names that it
imported (``from os import system``). ``callable_origins`` follows that object to the functions that a call runs.
"""

import importlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from pyoco_server.flows.callable_origins import ObjectOrigin, callable_origins

_OWN: Final = frozenset({"pyoco", "pyoco_server"})
"""The platform's own packages: they are never code of a flow, wherever they are installed."""
_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})
_INSTEAD: Final = "name a function of a module that comes with the worker's flow files or with a wheel"


class CallableRefusal(msgspec.Struct, frozen=True):
    """Why a path may not be called, and what to write instead."""

    problem: str
    remedy: str


class CallablePattern(msgspec.Struct, frozen=True):
    """One entry of ``PYOCO_CALLABLES``; ``*`` in it is any text."""

    module: str
    name: str | None
    """None: all names of the module and of the modules in it."""
    is_deny: bool

    @classmethod
    def of(cls, text: str) -> "CallablePattern":
        """Read a pattern, which ``settings`` has checked."""
        module, _, name = text.removeprefix("!").partition(":")
        return cls(module, name or None, text.startswith("!"))

    @property
    def is_exact(self) -> bool:
        """Whether it names one object, and so allows it wherever it was made."""
        return self.name is not None and "*" not in self.module and "*" not in self.name

    def fits_module(self, module: str) -> bool:
        """Whether some object of the module fits."""
        if fnmatchcase(module, self.module):
            return True
        return self.name is None and fnmatchcase(module, f"{self.module}.*")

    def names(self, private: Collection[str]) -> bool:
        """Whether it names all these parts itself, or is the pattern for everything."""
        return self.module == "*" or {*private} <= {*self.module.split("."), self.name}

    def fits(self, module: str, name: str) -> bool:
        """Whether ``module:name`` fits."""
        return self.fits_module(module) and (self.name is None or fnmatchcase(name, self.name))


class CallablePolicy:
    """What one worker may call for a flow.yaml of a client; a gateway knows only the patterns."""

    def __init__(
        self, patterns: Sequence[str] = (), *, places: Sequence[str] = (), folders: Sequence[Path] = ()
    ) -> None:
        """``places`` are the modules and files with flows; ``folders`` are where wheels are installed."""
        read = [CallablePattern.of(text) for text in patterns]
        self._allow = [pattern for pattern in read if not pattern.is_deny]
        self._deny = [pattern for pattern in read if pattern.is_deny]
        self._places = tuple(places)
        self._folders = tuple(folder.resolve() for folder in folders)

    def refusal_by_name(self, path: str) -> CallableRefusal | None:
        """Judge a path by its text alone, as a gateway can; None if a worker may allow it."""
        module, _, name = path.partition(":")
        if any(pattern.fits(module, name) for pattern in self._deny):
            return CallableRefusal(f"'{path}' is denied by PYOCO_CALLABLES", _INSTEAD)
        allowing = [pattern for pattern in self._allow if pattern.fits(module, name)]
        private = [part for part in [*module.split("."), name] if part.startswith("_")]
        if private and not any(pattern.names(private) for pattern in allowing):
            return _refusal(path, f"'{private[0]}' is private, because it begins with '_'", path)
        if allowing:
            return None
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names:
            return _refusal(path, f"'{top}' is a module of Python's standard library", path)
        if top in _OWN:
            return _refusal(path, f"'{top}' is a part of the platform", path)
        return None

    def refusal_to_import(self, path: str) -> CallableRefusal | None:
        """Judge the module of a path, and import it if it may be; ImportError if it cannot be imported."""
        module, _, name = path.partition(":")
        refusal = self.refusal_by_name(path)
        if refusal is not None:
            return refusal
        if not any(pattern.fits(module, name) for pattern in self._allow):
            parts = module.split(".")
            for level in range(1, len(parts) + 1):
                prefix = ".".join(parts[:level])
                if not self._is_of_flows(prefix):
                    return _refusal(path, f"the module '{prefix}' does not come with them", path)
                importlib.import_module(prefix)
        importlib.import_module(module)
        return None

    def refusal_to_call(self, path: str, found: object) -> CallableRefusal | None:
        """Judge the object that an imported path leads to, by the functions that a call of it runs."""
        module, _, name = path.partition(":")
        origins = callable_origins(found)
        denied = next((origin for origin in origins if self._is_denied(origin)), None)
        if denied is not None:
            return CallableRefusal(f"'{path}' is {denied.shown}, which PYOCO_CALLABLES denies", _INSTEAD)
        if any(pattern.is_exact and pattern.fits(module, name) for pattern in self._allow):
            return None
        strange = next((origin for origin in origins if not self._is_allowed(origin)), None)
        if strange is None:
            return None
        return _refusal(path, f"it is {strange.shown}, which does not come with them", path)

    def _is_allowed(self, origin: ObjectOrigin) -> bool:
        if origin.is_wrapper or any(p.fits(module, origin.name) for module in origin.modules for p in self._allow):
            return True
        return origin.file is not None and self._is_flow_file(Path(origin.file))

    def _is_denied(self, origin: ObjectOrigin) -> bool:
        if any(pattern.fits(module, origin.name) for module in origin.modules for pattern in self._deny):
            return True
        return any(
            value is origin.found
            for pattern in self._deny
            if pattern.name is not None or origin.file is None  # not what a module has only imported
            for value in _named(pattern)
        )

    def _is_of_flows(self, module: str) -> bool:
        """Whether the module, which need not be imported yet, comes with the flows; its parents are imported."""
        loaded = sys.modules.get(module)
        spec = _spec_of(module)
        if loaded is None and spec is None:
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)
        files = [*_files_of(loaded), *_files_of_spec(spec)]
        is_namespace = not files and spec is not None and bool(spec.submodule_search_locations)
        return is_namespace or (bool(files) and all(self._is_flow_file(Path(file)) for file in files))

    def _is_flow_file(self, file: Path) -> bool:
        if not file.is_absolute():  # "built-in", "frozen", "<string>"
            return False
        file = file.resolve()
        return any(_is_within(file, root) for root in (*self._folders, *self._roots()))

    def _roots(self) -> Iterator[Path]:
        """Yield where modules that come with the flows are: looked up each time, because wheels move modules."""
        for place in self._places:
            if place.endswith((".py", ".yaml", ".yml")):
                yield _beside(Path(place))
            else:
                yield from _home_of(place)


def _refusal(path: str, problem: str, allow: str) -> CallableRefusal:
    """Return the refusal of what the operator has not allowed."""
    return CallableRefusal(
        f"'{path}' may not be called: {problem}",
        f"{_INSTEAD}, or let the operator allow it with PYOCO_CALLABLES={allow}",
    )


def _named(pattern: CallablePattern) -> Iterator[object]:
    """Yield the objects that a pattern names, whatever they call themselves: ``os:system`` is ``posix:system``."""
    for known, module in [*sys.modules.items()]:
        if pattern.fits_module(known) and isinstance(module, ModuleType):
            yield from (value for name, value in [*vars(module).items()] if pattern.fits(known, name))


def _spec_of(module: str) -> ModuleSpec | None:
    """Return how a module was or would be found, without importing it; its parents are imported."""
    loaded = sys.modules.get(module)
    spec: ModuleSpec | None = importlib.util.find_spec(module) if loaded is None else getattr(loaded, "__spec__", None)
    return spec


def _files_of(module: ModuleType | None) -> Iterator[str]:
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        yield file


def _files_of_spec(spec: ModuleSpec | None) -> list[str]:
    """Return where a module would be loaded from; ``built-in`` or ``frozen`` if from no file."""
    if spec is None or (spec.origin is None and spec.submodule_search_locations):
        return []
    return [spec.origin or "built-in"]


def _home_of(place: str) -> Iterator[Path]:
    """Yield the folder of the first regular package on the way to a module, or the folder of a plain module."""
    parts = place.split(".")
    for level in range(1, len(parts) + 1):
        name = ".".join(parts[:level])
        try:
            spec = _spec_of(name)
        except ImportError:
            return
        file = next(_files_of(sys.modules.get(name)), spec.origin if spec is not None else None)
        if file is None:
            continue  # a namespace: it has no file of its own
        is_package = spec is not None and spec.submodule_search_locations is not None
        yield Path(file).resolve().parent if is_package else _beside(Path(file))
        return


def _beside(file: Path) -> Path:
    """Return the folder of a file with flows, or of the whole package if it is in one.

    Of a file among installed packages it is the file alone.
    """
    file = file.resolve()
    folder = file.parent
    while (folder.parent / "__init__.py").is_file() and (folder / "__init__.py").is_file():
        folder = folder.parent
    return file if folder in _installed() or folder.name in _PACKAGES else folder


def _is_within(file: Path, root: Path) -> bool:
    """Whether a file is below a folder, and not in an environment of installed packages inside it."""
    if not file.is_relative_to(root) or not _PACKAGES.isdisjoint(file.relative_to(root).parts):
        return False
    inside = (folder for folder in _installed() if folder != root and folder.is_relative_to(root))
    return not any(file.is_relative_to(folder) for folder in inside)


@cache
def _installed() -> frozenset[Path]:
    """Return the folders of the standard library, of installed packages, and of the platform itself."""
    paths = sysconfig.get_paths()
    named = [paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [*named, *site.getsitepackages(), site.getusersitepackages()]
    return frozenset({*(Path(path).resolve() for path in found), Path(__file__).resolve().parents[1]})
