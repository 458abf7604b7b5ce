"""Imports a Python file by its path.

The file is imported by Python's import system under a name of its own, so its locks apply: a second thread that imports
the same file waits until the module is complete, and a module that fails to import is removed.
"""

import importlib
import importlib.util
import itertools
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, all_suffixes
from pathlib import Path
from types import ModuleType
from typing import Final


def import_file(path: Path) -> ModuleType:
    """Return the module of a Python file, completely imported; raises what the file's code raises.

    A file that is imported already is not imported again. May be called from several threads.
    """
    file = path.resolve()
    while True:
        with _choosing:
            name = _known_name(file) or _free_name(file.stem)
            place = _place_on_path(file.stem)
            if str(file.parent) not in sys.path:  # as Python does for a script, so that it can import its neighbours
                sys.path.insert(place, str(file.parent))
            if _FINDER not in sys.meta_path:
                sys.meta_path.insert(0, _FINDER)
        with _FINDER.serving(name, file):
            module = importlib.import_module(name)
        if getattr(module, "__file__", None) == str(file):
            return module
        # Another thread has imported another file under this name meanwhile: choose another name.


def is_python_file(path: Path) -> bool:
    """Can Python import a file with this suffix?"""
    return path.name.endswith(tuple(all_suffixes()))


class _Finder(MetaPathFinder):
    """Finds the file that the current thread imports by path; other threads do not see it."""

    def __init__(self) -> None:
        self._served = threading.local()

    def find_spec(  # type: ignore[explicit-override]  # needs Python 3.12
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return the spec of the file that is served under this name in this thread."""
        del path, target
        files: dict[str, Path] = getattr(self._served, "files", {})
        file = files.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)

    @contextmanager
    def serving(self, name: str, file: Path) -> Iterator[None]:
        """Serve a file under a name in this thread; imports by path may be nested."""
        before: dict[str, Path] = getattr(self._served, "files", {})
        self._served.files = {**before, name: file}
        try:
            yield
        finally:
            self._served.files = before


_choosing: Final = threading.Lock()
_FINDER: Final = _Finder()


def _known_name(file: Path) -> str | None:
    """Return the name under which the file is imported, or is being imported, already."""
    modules = [*sys.modules.items()]
    return next((name for name, module in modules if getattr(module, "__file__", None) == str(file)), None)


def _free_name(stem: str) -> str:
    """Return the file's own name, so that child processes find its functions, unless another module has that name."""
    if "." not in stem and not _is_taken(stem):
        return stem
    plain = f"pyoco_flows_{stem.replace('.', '_')}"
    numbered = (f"{plain}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([plain], numbered) if not _is_taken(name))


def _is_taken(name: str) -> bool:
    return name in sys.modules or name in sys.builtin_module_names


def _place_on_path(stem: str) -> int:
    """Return the index in ``sys.path`` for a file's folder: 0, or behind the folder of a module with the same name.

    A child process looks for that module by its name, and would otherwise find the wrong file.
    """
    holder = getattr(sys.modules.get(stem), "__file__", None)
    folder = str(Path(holder).parent) if holder else ""
    return sys.path.index(folder) + 1 if folder in sys.path else 0
