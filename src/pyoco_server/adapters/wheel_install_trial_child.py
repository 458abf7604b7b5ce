"""Imports modules, and says how each of them fared; a program of its own, since importing runs other people's code.

It reads ``{"path": […], "modules": […]}`` and writes a line when it begins a module and one when it is done with it:
whoever waits for the second knows what has ended, or stopped, this process. Only the standard library is used here.
"""

import importlib
import importlib.util
import json
import os
import pkgutil
import signal
import sys
from pathlib import Path
from typing import Final, TextIO

_LONGEST_PROBLEM: Final = 400


def main() -> None:
    """Import what is asked for, one after the other."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what modules print is no answer
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]
    folder = str(Path.cwd())
    if folder not in sys.path:  # as for a worker: modules in the current directory can be imported
        sys.path.insert(0, folder)
    for name in asked["modules"]:
        _tell(answers, module=name)
        try:
            _load(name)
        except BaseException as error:  # noqa: BLE001 whatever a module raises, an exit too, is the answer
            _tell(answers, module=name, problem=_told(error))
        else:
            _tell(answers, module=name, problem=None)
    if os.getpgrp() == os.getpid():  # nor is any process left that a module has begun
        os.killpg(0, signal.SIGKILL)
    os._exit(0)  # threads a module has begun are not waited for


def _told(error: BaseException) -> str:
    """Cut, and without halves of characters, which names of files may have and nobody could store."""
    text = f"{type(error).__name__}: {error}"
    return text[:_LONGEST_PROBLEM].encode(errors="backslashreplace").decode()


def _tell(answers: TextIO, **fields: object) -> None:
    answers.write(f"{json.dumps(fields)}\n")
    answers.flush()


def _load(name: str) -> None:
    """A module; ``name.*``: a package with all that is in it; or a Python file."""
    if name.endswith(".py"):
        _load_file(Path(name).resolve())
        return
    package = name.removesuffix(".*")
    module = importlib.import_module(package)
    if package != name and hasattr(module, "__path__"):
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith(".__main__"):  # a program: importing it would run it
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
