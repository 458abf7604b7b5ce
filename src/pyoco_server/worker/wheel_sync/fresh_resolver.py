"""Flows whose code can change while the worker runs."""

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyoco_server.worker.flow_source import Flows, Resolver, ResolverError


class FreshResolver:
    """Finds flows as ``make`` does, which is called when the first flow is wanted, and again after every change.

    With wheels, the modules of the flows may appear and change while the worker runs. What cannot be imported now has
    no flows now: that is no reason to stop. The modules that ``make`` was given (names, or files) are imported again,
    whether they are in a wheel or only use one.
    """

    def __init__(self, make: Callable[[], Resolver], modules: Sequence[str]) -> None:
        self._make = make
        self.modules = modules
        """The modules and files with flows, or that of the resolver."""
        self._made: Resolver | None = None
        self._making = threading.Lock()

    @property
    def loaded(self) -> Flows | None:
        """The flows found, until the code changes; None for a resolver of the user's, which is called every time."""
        return self._made if isinstance(self._made, Flows) else None

    def __call__(self, flow_name: str) -> Any:  # noqa: ANN401 whatever the user's resolver returns
        """The flow of that name; KeyError if there is none."""
        try:
            made = self._make_once()
        except ResolverError as error:
            raise KeyError(f"{flow_name}: {error}") from error
        return made(flow_name)

    def _make_once(self) -> Resolver:
        """Make the resolver in one thread; other threads wait, and get the same one."""
        with self._making:
            return self.make() if self._made is None else self._made

    def make(self) -> Resolver:
        """Import all flows there are now; ResolverError if something cannot be imported."""
        self._made = made = self._make()
        return made

    def renew(self) -> None:
        """Forget what was imported, since the code has changed."""
        self._made = None
        names = {where for where in self.modules if not where.endswith(".py")}
        files = {str(Path(where).resolve()) for where in self.modules if where.endswith(".py")}
        for name, module in [*sys.modules.items()]:
            within = any(name == given or name.startswith(f"{given}.") for given in names)
            if within or getattr(module, "__file__", None) in files:
                del sys.modules[name]
        importlib.invalidate_caches()
