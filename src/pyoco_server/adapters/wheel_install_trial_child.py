"""Imports modules, and says how each of them fared; a program of its own, since importing runs other people's code.

It reads ``{"path": […], "modules": […]}`` and writes a line when it begins a module and one when it is done with it:
whoever waits for the second knows what has ended, or stopped, the imports. They are done by a process of their own.
When that has ended, however it did, ``{"ended": true}`` is written, and whoever asked ends all there is. Only the
standard library is used here.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

_LONGEST_PROBLEM: Final = 400
_LINGER_SEC: Final = 10.0
"""Whoever asked ends this at once; if they are gone, it ends itself."""


def main() -> None:
    """Have imported what is asked for, and stay until ended: as long as this is there, so is its session."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what modules print is no answer
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    folder = str(Path.cwd())
    if folder not in sys.path:  # as for a worker: modules in the current directory can be imported
        sys.path.insert(0, folder)
    importing = os.fork()
    if importing == 0:
        _import_all(asked["modules"], answers)
        os._exit(0)  # threads a module has begun are not waited for
    os.waitpid(importing, 0)
    with contextlib.suppress(OSError):  # nobody listens any more
        _tell(answers, ended=True)
        time.sleep(_LINGER_SEC)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _import_all(modules: list[str], answers: TextIO) -> None:
    """One after the other."""
    me = os.getpid()
    os.register_at_fork(after_in_child=answers.close)  # whoever reads them waits for nobody else
    for name in modules:
        _tell(answers, module=name)
        problem = None
        try:
            _load(name, lambda part: _tell(answers, module=name, at=part))  # noqa: B023 called at once
        except BaseException as error:  # noqa: BLE001 whatever a module raises, an exit too, is the answer
            problem = _told(error)
        if os.getpid() != me:  # a module has forked: one of the two goes on
            os._exit(0)
        _tell(answers, module=name, problem=problem)


def _told(error: BaseException) -> str:
    """Cut, and without halves of characters, which names of files may have and nobody could store."""
    text = f"{type(error).__name__}: {error}"
    return text[:_LONGEST_PROBLEM].encode(errors="backslashreplace").decode()


def _tell(answers: TextIO, **fields: object) -> None:
    answers.write(f"{json.dumps(fields)}\n")
    answers.flush()


def _load(name: str, begin_part: Callable[[str], None]) -> None:
    """A module; ``name.*``: a package with all that is in it, and which part comes next is told; or a Python file."""
    if name.endswith(".py"):
        _load_file(Path(name).resolve())
        return
    package = name.removesuffix(".*")
    module = importlib.import_module(package)
    if package != name and hasattr(module, "__path__"):
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith(".__main__"):  # a program: importing it would run it
                begin_part(found.name)
                importlib.import_module(found.name)


def _load_file(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"'{file}' is not a Python file")
    sys.path.insert(0, str(file.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
