"""Runs that one process left in the middle of their last task, for another process to finish."""

import threading
from collections.abc import Callable
from typing import Any

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.engine import RunResult
from tests.app.runtime.flows import Calls, wait_until

Make = Callable[[Calls], Flow]
RUN = "run"


class _Doomed(Calls):
    """The tasks of the first process: ``use`` runs until the process is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    @override
    def task(self, name: str, value: Callable[..., Any] | Any = None) -> TaskWrapper:
        return super().task(name, (lambda _: self.over.wait(20)) if name == "use" else value)


class Left:
    """The log and outputs that a process leaves behind in the middle of the flow's last task, ``use``."""

    def __init__(self, make: Make, params: dict[str, Any] | None = None) -> None:
        self.make = make
        self.store = MemoryOutputStore()
        log, doomed = MemoryEventLog(), _Doomed()
        with Engine(log=log, outputs=self.store) as engine:
            engine.start(make(doomed), params, run_id=RUN)
            wait_until(lambda: doomed.count("use") == 1)
            self.log = MemoryEventLog.load(log.dump())
            doomed.over.set()

    def finish_elsewhere(self) -> tuple[RunResult, Calls]:
        """Finish the run in another process; return the result and what that process called."""
        calls = Calls()
        with Engine(log=self.log, outputs=self.store) as engine:
            return engine.wait(engine.take_up(self.make(calls), RUN)), calls
