"""Takeover of a run whose block has failed, or is about to be recorded as failed."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.app.ports import UnavailableError
from pyoco_server.core import Event, EventType, ExecutionState
from pyoco_server.flows.model import ForEach, Parallel, Repeat
from tests.app.runtime.flows import wait_until
from tests.app.runtime.hooks import hooked, pause, program, replace_hooks, run
from tests.app.runtime.test_blocks_failing import _node_of, error_of, fail_with, side_by_side


class CutLog(MemoryEventLog):
    """Never appends the commit that records the failure of a certain node; sets an event at any other failure."""

    def __init__(self, node_id: str, failed: threading.Event | None = None) -> None:
        super().__init__()
        self.node_id = node_id
        self.is_cut = threading.Event()
        self._failed = failed or threading.Event()

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        failed = {_node_of(event) for event in commit if event.type is EventType.NODE_FAILED}
        if self.node_id in failed:
            self.is_cut.set()
            await asyncio.Event().wait()
        position = await super().append(execution_id, commit, after=after, quiet=quiet)
        if failed:
            self._failed.set()
        return position


def taken_over_before_the_end(
    hooks: dict[str, Any], *branches: Any, failed: threading.Event
) -> tuple[ExecutionState, list[str]]:
    """Take over before the block is recorded as failed; return the state at the end and the tasks called.

    ``failed`` is set when the failure of a task is in the log.
    """
    cut = CutLog(":parallel", failed)
    flow, params = side_by_side(*branches), hooked(hooks)
    with Engine(log=cut) as engine:
        engine.start(flow, params, run_id="run")
        assert cut.is_cut.wait(60)
    called: list[str] = []
    left = MemoryEventLog.load(cut.dump())
    replace_hooks(params, {name: lambda _, name=name: called.append(name) for name in hooks})  # type: ignore[misc]
    with Engine(log=left) as engine:
        return engine.wait(engine.take_up(flow, "run")).state, called


def after(event: threading.Event, then: Any) -> Any:
    """Return a task that calls ``then`` after the event."""

    def body(ctx: Any) -> Any:
        assert event.wait(60)
        return then(ctx)

    return body


def test_taking_over_a_block_that_failed_begins_nothing_new() -> None:
    failed = threading.Event()
    hooks = {
        "slow": after(failed, lambda _: None),
        "next": lambda _: None,
        "bad": fail_with("broken"),
    }
    state, called = taken_over_before_the_end(hooks, [run("slow"), run("next")], [run("bad")], failed=failed)
    assert (state.status, called, error_of(state, ":parallel")) == ("FAILED", [], "broken")


def test_taking_over_a_block_that_failed_reports_the_first_error() -> None:
    failed = threading.Event()
    hooks = {"second": after(failed, fail_with("second")), "first": fail_with("first")}
    state, _ = taken_over_before_the_end(hooks, [run("second")], [run("first")], failed=failed)
    assert error_of(state, ":parallel") == "first"


class SlowLog(MemoryEventLog):
    """Appends slowly, so that decisions gather."""

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        await asyncio.sleep(0.01)
        return await super().append(execution_id, commit, after=after, quiet=quiet)


def test_waits_that_are_about_to_begin_when_a_round_fails_are_not_waited_for() -> None:
    """More rounds than fit in a commit: some waits are added after the failure is on record."""

    def quick(ctx: Any) -> None:
        if ctx.get_var("item") == 140:
            raise ValueError("broken")

    loop = ForEach("$ctx.params.items", (run("quick"), pause("w")), item="item", parallel=150)
    with Engine(log=SlowLog(), threads=64) as engine:
        for _ in range(5):
            params = {**hooked({"quick": quick}), "items": list(range(150))}
            run_id = engine.start(program(loop), params)
            wait_until(lambda run_id=run_id: engine.get(run_id).is_terminal)  # type: ignore[misc]


class HiccupLog(MemoryEventLog):
    """Fails once, when a node inside a block is created."""

    has_failed = False

    @override
    async def append(self, execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        created = [_node_of(event) or "" for event in commit if event.type is EventType.NODE_CREATED]
        if not self.has_failed and any("[0]/" in node_id for node_id in created):
            self.has_failed = True
            raise UnavailableError("the log did not answer")
        return await super().append(execution_id, commit, after=after, quiet=quiet)


@pytest.mark.parametrize(
    "block", [Repeat(2, (run("a"),)), Parallel(((run("a"),), (pause("w"),)))], ids=["repeat", "parallel"]
)
def test_a_network_error_is_not_a_blocks_failure(block: Any) -> None:
    log = HiccupLog()
    with Engine(log=log) as engine:
        run_id = engine.start(program(block), hooked({"a": lambda _: 1}))
        with pytest.raises(UnavailableError):
            engine.wait(run_id)
        assert engine.get(run_id).status == "ACTIVE"
