"""A program that imports modules and reports each result; a process of its own, because an import runs user code.

It reads ``{"path": […], "modules": […]}`` and writes one line when it begins a module and one when it is done, so that
its caller knows which module has ended or blocked the imports. A forked child imports. When that child has ended, in
any way, this program writes ``{"ended": true}``, and the caller kills the session. It uses only the standard library.
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
"""The caller ends this program at once; without a caller, it ends itself after this time."""


def main() -> None:
    """Fork a child that imports, and stay until killed: the session exists as long as this process does."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of modules must not mix with the answers
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    folder = str(Path.cwd())
    if folder not in sys.path:  # as for a worker: modules in the current directory can be imported
        sys.path.insert(0, folder)
    importing = os.fork()
    if importing == 0:
        _import_all(asked["modules"], answers)
        os._exit(0)  # does not wait for threads that a module has started
    os.waitpid(importing, 0)
    with contextlib.suppress(OSError):  # the caller is gone
        _report(answers, ended=True)
        time.sleep(_LINGER_SEC)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _import_all(modules: list[str], answers: TextIO) -> None:
    """Import the modules one after the other, and report each."""
    me = os.getpid()
    os.register_at_fork(after_in_child=answers.close)  # its reader must not wait for forked processes
    for name in modules:
        _report(answers, module=name)
        problem = None
        try:
            _load(name, lambda part: _report(answers, module=name, at=part))  # noqa: B023 called at once
        except BaseException as error:  # noqa: BLE001 what a module raises, also an exit, is its problem
            problem = _text_of(error)
        if os.getpid() != me:  # a module has forked: only one of the two continues
            os._exit(0)
        _report(answers, module=name, problem=problem)


def _text_of(error: BaseException) -> str:
    """Return type and text, cut, and without halves of surrogate pairs, which names of files may have."""
    text = f"{type(error).__name__}: {error}"
    return text[:_LONGEST_PROBLEM].encode(errors="backslashreplace").decode()


def _report(answers: TextIO, **fields: object) -> None:
    answers.write(f"{json.dumps(fields)}\n")
    answers.flush()


def _load(name: str, begin_part: Callable[[str], None]) -> None:
    """Import a module, a Python file, or with ``name.*`` a package with all its parts, each reported before."""
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
