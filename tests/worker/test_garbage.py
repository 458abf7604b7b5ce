"""Runs that have ended leave no reference cycles to the garbage collector."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.worker.settlement import Ack
from tests.app.runtime.flows import Calls, fan_flow
from tests.worker.world import World, attempt

OURS = ("pyoco_server.app.", "pyoco_server.worker.")


@contextmanager
def counted_garbage() -> Iterator[Counter[str]]:
    """Count our objects by class that are only referenced by each other."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        kinds = (type(left) for left in gc.garbage)
        found.update(kind.__qualname__ for kind in kinds if kind.__module__.startswith(OURS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def plain_flow(calls: Calls) -> Flow:
    """One task after the other, of which the first reports progress."""
    return Flow("plain") >> calls.task("one", lambda ctx: ctx.progress(50, "half")) >> calls.task("two", lambda _: 2)


@pytest.mark.parametrize("make_flow", [fan_flow, plain_flow])
def test_a_run_that_has_ended_leaves_nothing_to_the_garbage_collector(make_flow: Callable[[Calls], Flow]) -> None:
    async def body(world: World) -> None:
        hand = world.hand({"flow": make_flow(Calls())})
        await world.submit("flow", {"n": 1})
        assert await hand.work() == Ack()
        with counted_garbage() as garbage:
            for _ in range(3):
                await world.submit("flow", {"n": 1})
                assert await hand.work() == Ack()
        assert not garbage

    attempt(body)
