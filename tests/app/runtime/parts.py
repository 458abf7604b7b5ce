"""The parts of one run, assembled on a log in memory, for tests of single parts."""

import random
from collections.abc import Mapping
from pathlib import Path

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.adapters.system import SystemClock, uuid_maker
from pyoco_server.app.runtime.attempt import Function
from pyoco_server.app.runtime.context import RunScope
from pyoco_server.app.runtime.crashes import CrashHistory
from pyoco_server.app.runtime.driver import RunDriver
from pyoco_server.app.runtime.execution import Execution
from pyoco_server.app.runtime.node_commands import NodeCommands
from pyoco_server.app.runtime.node_executor import NodeExecutor
from pyoco_server.app.runtime.outputs import Outputs
from pyoco_server.app.runtime.plan_cache import PlanCache, RunPlan
from pyoco_server.app.runtime.results import ResultKeeper
from pyoco_server.core import Actor, ActorKind, Event
from pyoco_server.core.commands import CreateExecution, StartExecution
from pyoco_server.flows.from_pyoco import read_flow

USER = Actor(ActorKind.USER, "ann")
RUN_ID = "run"


class RememberingStore(MemoryOutputStore):
    """Remembers under which names there are objects."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.put_names: list[str] = []

    @override
    async def put(self, name: str, data: bytes) -> None:
        await super().put(name, data)
        self.names.add(name)
        self.put_names.append(name)

    @override
    async def delete(self, name: str) -> None:
        await super().delete(name)
        self.names.discard(name)


class Parts:
    """One worker's parts; several share a run by sharing its log. ``functions`` replaces those of the flow."""

    def __init__(
        self,
        flow: Flow,
        worker_id: str,
        *,
        log: MemoryEventLog | None = None,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        model, own = read_flow(flow)
        self.functions = own if functions is None else functions
        self.log = log or MemoryEventLog()
        self.store = RememberingStore()
        plan, clock = PlanCache().of(model), SystemClock()
        self.execution = Execution(RUN_ID, plan.graph, log=self.log, clock=clock, new_id=uuid_maker())
        self.commands = NodeCommands(RUN_ID, self.functions, worker_mark=worker_id, clock=clock)
        self.commands.drive_on(RunPlan(plan.graph, plan.steps, frozenset(), {}))
        self.crashes = CrashHistory()
        scope = RunScope(RUN_ID, model.name, {}, str(Path("unused")))
        keeper = ResultKeeper(scope, RUN_ID)
        for listen in (self.commands.listen, self.crashes.listen, keeper.listen):
            self.execution.subscribe(listen)
        self.nodes = NodeExecutor(
            self.execution,
            self.commands,
            self.functions,
            scope,
            keeper,
            executor=LocalExecutor(threads=2, processes=1),
            outputs=Outputs(self.store, inline_max_bytes=20),
            chance=random.Random(0),
        )
        self.driver = RunDriver(
            self.execution,
            self.commands,
            self.nodes,
            crashes=self.crashes,
            chance=random.Random(0),
            grace_sec=0.1,
        )

    async def start(self) -> None:
        """Create and start the run; its first nodes start in the same commit."""
        await self.execution.do(CreateExecution(execution_id=RUN_ID, actor=USER, graph_id="flow", input={}))
        self.execution.follow_ups = self.commands.follow_ups
        await self.execution.do(StartExecution(execution_id=RUN_ID, actor=USER))
        self.execution.follow_ups = None

    async def events(self, kind: str) -> list[Event]:
        """The events of one type in the log, without those of control nodes."""
        events = [event for event in (await self.log.read(RUN_ID))[0] if event.type.value == kind]
        return [event for event in events if not getattr(event.payload, "node_id", "").startswith(":")]
