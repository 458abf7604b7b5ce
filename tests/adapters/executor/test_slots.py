import asyncio

import pytest

from pyoco_server.adapters.executor.errors import SlotsClosedError
from pyoco_server.adapters.executor.slots import FairSlots
from tests.adapters.executor.leaks import run
from tests.waiting import wait_until


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, not 0"):
        FairSlots(0)


def test_slots_are_given_out_in_the_order_they_were_asked_for() -> None:
    async def main() -> None:
        slots, order = FairSlots(1), list[int]()

        async def take(number: int) -> None:
            await slots.acquire()
            order.append(number)
            slots.release()

        await slots.acquire()
        takers = [asyncio.create_task(take(number)) for number in range(5)]
        await wait_until(lambda: slots.waiting == 5)
        takers[2].cancel()
        slots.release()
        # Asked for after the slot went to the first of those who wait: it must not get ahead of the others.
        await take(99)
        await asyncio.gather(*takers, return_exceptions=True)
        assert order == [0, 1, 3, 4, 99]
        assert (slots.in_use, slots.waiting) == (0, 0)

    run(main)


def test_a_slot_handed_to_a_cancelled_task_is_passed_on() -> None:
    async def main() -> None:
        slots = FairSlots(1)
        await slots.acquire()
        first, second = (asyncio.create_task(slots.acquire()) for _ in range(2))
        await wait_until(lambda: slots.waiting == 2)
        slots.release()
        first.cancel()
        await second
        assert first.cancelled()
        slots.release()
        assert await slots.drained(0)

    run(main)


def test_close_refuses_tasks_that_wait_and_later_ones() -> None:
    async def main() -> None:
        slots = FairSlots(1)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await wait_until(lambda: slots.waiting == 1)
        slots.close()
        with pytest.raises(SlotsClosedError):
            await waiting
        with pytest.raises(SlotsClosedError):
            await slots.acquire()
        assert not await slots.drained(0)
        slots.release()
        assert await slots.drained()

    run(main)


def test_a_slot_handed_over_just_before_the_close_is_not_used() -> None:
    async def main() -> None:
        slots = FairSlots(1)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await wait_until(lambda: slots.waiting == 1)
        slots.release()
        slots.close()
        with pytest.raises(SlotsClosedError):
            await waiting
        assert slots.in_use == 0

    run(main)
