"""Registers the cases, and runs them where they are recorded: in the engine, or on a platform in memory."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server.adapters.memory.registries import MemoryGraphRegistry
from pyoco_server.app.ports import OutputStore
from pyoco_server.app.runs.commands import CommandResult, RunCommands, Sender
from pyoco_server.core import (
    Actor,
    ActorKind,
    Commit,
    Event,
    ExecutionState,
    Graph,
    cancel_node,
    fold,
    graph_to_dict,
)
from pyoco_server.core.payloads import NodeSucceeded
from pyoco_server.flows.model import FlowModel
from pyoco_server.testing import FlowTester
from tests.golden.files import Recorded
from tests.worker.world import World, attempt


class Case(NamedTuple):
    """What a case shows, and the function that makes its run."""

    about: str
    record: Callable[[], Recorded]


CASES: Final[dict[str, Case]] = {}


def case(about: str) -> Callable[[Callable[[], Recorded]], Callable[[], Recorded]]:
    """Register a case under the name of its function."""

    def register(record: Callable[[], Recorded]) -> Callable[[], Recorded]:
        name = record.__name__.replace("_", "-")
        assert name not in CASES, f"there are two cases '{name}'"
        CASES[name] = Case(about, record)
        return record

    return register


def task(name: str, value: Callable[..., Any] | Any = None, **fields: Any) -> TaskWrapper:
    """A task that returns ``value``, or what it returns."""
    body = value if callable(value) else lambda ctx: value  # noqa: ARG005 as tasks are called
    made = Task(func=body, name=name)
    for field, given in fields.items():
        setattr(made, field, given)
    return TaskWrapper(made)


def fails(name: str, error: Exception | None = None, **fields: Any) -> TaskWrapper:
    """A task that raises."""

    def body(ctx: Any) -> None:  # noqa: ARG001 as tasks are called
        raise error or ValueError("no good")

    return task(name, body, **fields)


# --- In the engine ---------------------------------------------------------------------------------------------------


def run(flow: Flow | FlowModel, params: Mapping[str, Any] | None = None) -> Recorded:
    """Run a flow to its end, in virtual time."""
    return run_with(flow, params)


def run_with(
    flow: Flow | FlowModel,
    params: Mapping[str, Any] | None = None,
    meanwhile: Callable[[FlowTester, str], None] = lambda tester, run_id: None,  # noqa: ARG005 nothing happens
    *,
    to_the_end: bool = True,
) -> Recorded:
    """Run a flow, and call ``meanwhile`` after its start."""
    with FlowTester() as tester:
        run_id = tester.start(flow, params)
        meanwhile(tester, run_id)
        if to_the_end:
            tester.wait(run_id)
        return Recorded(tester.events(run_id))


# --- On a platform in memory -----------------------------------------------------------------------------------------


def on_a_platform(body: Callable[[World], Awaitable[str]], **options: Any) -> Recorded:
    """Record the run whose id ``body`` returns, with the outputs that are stored beside its log."""

    async def recorded(world: World) -> Recorded:
        events = await world.events(await body(world))
        return Recorded(events, await _stored(events, world.outputs))

    return attempt(recorded, **options)


async def _stored(events: Sequence[Event], outputs: OutputStore) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for event in events:
        if isinstance(event.payload, NodeSucceeded) and "stored" in (event.payload.output or {}):
            name: str = (event.payload.output or {})["stored"]["name"]
            body = await outputs.get(name)
            assert body is not None
            found[name] = body
    return found


ANN: Final = Actor(ActorKind.USER, "ann")


class Outside:
    """A client that drives an execution by commands, as over HTTP."""

    def __init__(self, world: World, graph: Graph) -> None:
        self.world = world
        self.graph = graph
        self._graphs = MemoryGraphRegistry()
        self.commands = RunCommands(world.run_log, self._graphs)
        self.execution_id = ""

    async def begin(self, *, start: bool = True, **fields: Any) -> None:
        """Register the graph, create an execution on it, and start it."""
        await self._graphs.put(self.graph.graph_id, msgspec.json.encode(graph_to_dict(self.graph)))
        created = await self.commands.create_from({"graphId": self.graph.graph_id, **fields}, self._sender())
        self.execution_id = created.execution_id
        if start:
            await self.do("StartExecution")

    async def do(
        self, command: str, node_id: str | None = None, *, key: str | None = None, **fields: Any
    ) -> CommandResult:
        """Give a command, one second after the previous one."""
        await self.world.pass_time(1)
        node = {"nodeId": node_id} if node_id is not None else {}
        return await self.commands.give_from(self.execution_id, {"type": command, **node, **fields}, self._sender(key))

    async def cancel_node(self, node_id: str, reason: str | None) -> None:
        """Cancel one node, as a policy does: no command does it."""
        await self.world.pass_time(1)
        run = await self.world.run_log.open(self.execution_id)

        def decision(state: ExecutionState) -> Commit:
            by, now, new_id = Actor(ActorKind.SCHEDULER, "limits"), self.world.clock.now(), self.world.new_id
            events = cancel_node(self.graph, state, node_id, actor=by, now=now, new_id=new_id, reason=reason)
            return Commit(events, fold(events, state))

        await run.execution.decide(decision)

    async def succeed(self, *node_ids: str) -> None:
        """Start these nodes and let them succeed, one after the other."""
        for node_id in node_ids:
            await self.do("StartNode", node_id, workerId="ruby-1")
            await self.do("SucceedNode", node_id, attempt=1, output={"by": node_id})

    async def fail(self, node_id: str, **fields: Any) -> None:
        """Start a node and let it fail."""
        await self.do("StartNode", node_id)
        await self.do("FailNode", node_id, error={"code": "E", "message": "broke"}, **fields)

    @staticmethod
    def _sender(key: str | None = None) -> Sender:
        return Sender(actor=ANN, key=key, tenant_id="acme", api_key_id="k0123456789abcdef")


def from_outside(graph: Graph, script: Callable[[Outside], Awaitable[object]]) -> Recorded:
    """Record an execution on the graph, driven by the script."""

    async def body(world: World) -> str:
        outside = Outside(world, graph)
        await script(outside)
        return outside.execution_id

    return on_a_platform(body)
