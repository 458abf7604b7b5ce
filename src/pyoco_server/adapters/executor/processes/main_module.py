"""Import the parent's main module in the child, so that functions and classes of a script work there, too.

As with ``multiprocessing``, the child runs the file under the name ``__mp_main__``, so that code under
``if __name__ == "__main__"`` does not run. Unlike ``multiprocessing``, it does so only when a call needs the main
module.
"""

import sys
from types import ModuleType
from typing import NamedTuple

# Also the name multiprocessing uses, so that an object that passes through both is found by both.
ALIAS = "__mp_main__"


class MainModule(NamedTuple):
    """Where the main module comes from: a module's name (``python -m``) or a file."""

    name: str | None
    path: str | None


class _Progress:
    importing = False
    imported = False


def describe_main() -> MainModule | None:
    """Say, in the parent, how the child can import the main module; None if it cannot (a prompt, stdin, ``-c``)."""
    from pathlib import Path  # noqa: PLC0415 (not for the child, which should start fast)

    main = sys.modules["__main__"]
    # What the child sends back names its classes by the alias.
    sys.modules.setdefault(ALIAS, main)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return MainModule(name=spec.name, path=None)
    file = getattr(main, "__file__", None)
    # A program read from stdin has "<stdin>" here.
    if file is None or not Path(file).is_file():
        return None
    return MainModule(name=None, path=str(Path(file).resolve()))


def import_main(main: MainModule | None) -> None:
    """Import the parent's main module, in the child, once. Raises what the import raises."""
    if _Progress.imported:
        return
    if main is None:
        raise ImportError("the main module is not a file (an interactive prompt, stdin or -c) and cannot be imported")
    import runpy  # noqa: PLC0415 (most children never get here)

    _Progress.importing = True
    try:
        if main.name is not None:
            content = runpy.run_module(main.name, run_name=ALIAS, alter_sys=True)
        else:
            content = runpy.run_path(str(main.path), run_name=ALIAS)
    finally:
        _Progress.importing = False
    module = ModuleType(ALIAS)
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules[ALIAS] = module
    _Progress.imported = True


def refuse_while_importing_main() -> None:
    """Refuse a script without a ``__main__`` guard, which would start itself again in each child without end."""
    if _Progress.importing:
        raise RuntimeError(
            "the main module starts its work while it is imported; put the start under: if __name__ == '__main__'"
        )
