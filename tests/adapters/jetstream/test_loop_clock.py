"""Time limits on replies while the event loop stalls, or hardly turns."""

import asyncio
import time
from collections.abc import Callable

import nats.errors
import pytest

from pyoco_server.adapters.jetstream.durability.connection import Connection
from pyoco_server.adapters.jetstream.primitives.names import Names
from pyoco_server.adapters.jetstream.transport.loop_clock import TICK_SEC, LoopClock
from tests.adapters.conftest import JetStream
from tests.waiting import wait_until


async def passed(busy: Callable[[], None], ticks: int) -> float:
    """Return how far the clock advances in ``ticks`` ticks while each turn of the loop runs ``busy``."""
    seen = list[float]()

    def on_tick(now: float) -> bool:
        seen.append(now)
        return len(seen) <= ticks

    clock = LoopClock(on_tick)
    clock.run()
    while clock.is_running:
        busy()
        await asyncio.sleep(0)
    return clock.now - TICK_SEC


@pytest.mark.parametrize("turn_sec", [0.0, 0.3])
def test_clock_advances_by_one_tick_however_long_a_turn_takes(turn_sec: float) -> None:
    began = time.monotonic()
    assert asyncio.run(passed(lambda: time.sleep(turn_sec), 3)) == pytest.approx(3 * TICK_SEC)
    assert time.monotonic() - began >= 3 * max(turn_sec, TICK_SEC)


def test_limit_that_ends_in_a_stall_takes_effect_after_the_loop_has_turned() -> None:
    events = list[str]()

    async def body() -> None:
        loop = asyncio.get_running_loop()

        def on_tick(now: float) -> bool:
            events.append("over" if now >= TICK_SEC / 2 else "not over")
            return len(events) < 4

        clock = LoopClock(on_tick)
        clock.run()
        loop.call_soon(time.sleep, 5 * TICK_SEC)
        loop.call_later(4 * TICK_SEC, events.append, "read")
        await wait_until(lambda: not clock.is_running)

    asyncio.run(body())
    assert events[:3] == ["not over", "read", "over"]


def test_clock_stops_when_it_is_not_needed_and_can_run_again() -> None:
    async def body() -> None:
        clock = LoopClock(lambda _: False)
        clock.run()
        clock.run()
        await wait_until(lambda: not clock.is_running)
        assert clock.now == TICK_SEC
        clock.run()
        clock.stop()
        clock.stop()
        assert not clock.is_running

    asyncio.run(body())


def test_request_is_answered_while_every_turn_of_the_loop_takes_long(jetstream: JetStream) -> None:
    """Each turn of the loop that the reply needs takes longer than the timeout of the request."""

    async def body(connection: Connection, _names: Names) -> None:
        is_busy = True

        async def hog() -> None:
            while is_busy:
                time.sleep(0.3)  # noqa: ASYNC251 other work has the loop
                await asyncio.sleep(0)

        await connection.nc.request_raw("$JS.API.INFO", b"", b"", timeout=0.2)
        hogging = asyncio.create_task(hog())
        reply = await connection.nc.request_raw("$JS.API.INFO", b"", b"", timeout=0.2)
        assert b"memory" in reply.data
        silent = await connection.nc.subscribe_inline("silent", lambda *_: None)
        with pytest.raises(nats.errors.TimeoutError):
            await connection.nc.request_raw("silent", b"", b"", timeout=0.2)
        is_busy = False
        await hogging
        await connection.nc.unsubscribe_inline(silent)

    jetstream.run(body)
