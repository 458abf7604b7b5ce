import asyncio
import time
from pathlib import Path

import pytest

from pyoco_server.adapters.executor.processes.pool import ProcessSlots
from tests.adapters.executor import jobs
from tests.adapters.executor.leaks import child_pids, is_gone, run
from tests.waiting import wait_until


async def cancel(task: asyncio.Task[None]) -> float:
    """Cancel and wait for the end of it; how long that took."""
    begin = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - begin


def test_a_busy_loop_is_killed_before_the_caller_gets_the_cancellation() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        task = asyncio.create_task(slots.run(jobs.send_pid_and_spin, on_message=pids.append))
        await wait_until(lambda: pids)
        await cancel(task)
        assert is_gone(pids[0])
        assert slots.pids == frozenset()
        assert await slots.run(jobs.add, (1, 1)) == 2
        assert pids[0] not in slots.pids
        await slots.close()

    run(main)


def test_a_function_that_ignores_sigterm_is_killed() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        task = asyncio.create_task(slots.run(jobs.send_pid_and_ignore_sigterm, on_message=pids.append))
        await wait_until(lambda: pids)
        assert await cancel(task) >= 0.5
        assert is_gone(pids[0])
        await slots.close()

    run(main)


def test_processes_that_the_function_started_are_killed_with_it() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        task = asyncio.create_task(slots.run(jobs.start_a_sleeper, on_message=pids.extend))
        await wait_until(lambda: pids)
        await cancel(task)
        assert is_gone(pids[0])
        await wait_until(lambda: is_gone(pids[1]) or not Path(f"/proc/{pids[1]}/cmdline").read_bytes())
        await slots.close()

    run(main)


def test_a_function_that_stops_when_asked_keeps_its_child(tmp_path: Path) -> None:
    async def main() -> None:
        slots, pids, seen = ProcessSlots(1), list[int](), tmp_path / "seen"
        call = slots.run(jobs.send_pid_and_wait_for_cancel, (str(seen),), on_message=pids.append, grace_sec=600)
        task = asyncio.create_task(call)
        await wait_until(lambda: pids)
        await cancel(task)
        assert seen.read_text() == "True"
        assert slots.pids == set(pids)
        assert await slots.run(jobs.add, (2, 2)) == 4
        await slots.close()

    run(main)


def test_a_function_that_does_not_stop_when_asked_is_killed_after_the_grace() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        task = asyncio.create_task(slots.run(jobs.send_pid_and_spin, on_message=pids.append, grace_sec=0.2))
        await wait_until(lambda: pids)
        assert await cancel(task) >= 0.2
        assert is_gone(pids[0])
        await slots.close()

    run(main)


def test_a_call_cancelled_in_the_queue_never_runs(tmp_path: Path) -> None:
    async def main() -> None:
        slots, gate, ran = ProcessSlots(1), tmp_path / "gate", list[object]()
        first = asyncio.create_task(slots.run(jobs.hold, (str(gate),)))
        second = asyncio.create_task(slots.run(jobs.send_all, ([1],), on_message=ran.append))
        await wait_until(lambda: slots.waiting == 1)
        second.cancel()
        await asyncio.wait([second])
        gate.touch()
        await first
        assert slots.waiting == 0
        assert ran == []
        await slots.close()

    run(main)


def test_a_call_cancelled_while_its_child_starts_leaves_nothing() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        for turns in range(4):  # each time a little further on its way
            task = asyncio.create_task(slots.run(time.sleep, (60,)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert slots.running == 0
        await slots.close()

    run(main)


def test_a_second_cancel_does_not_save_the_child() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        task = asyncio.create_task(slots.run(jobs.send_pid_and_ignore_sigterm, on_message=pids.append))
        await wait_until(lambda: pids)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert slots.running == 1  # the child is on its way out and still counts
        await wait_until(lambda: slots.running == 0)
        assert is_gone(pids[0])
        await slots.close()

    run(main)


def test_a_loop_that_ends_during_a_cancel_kills_the_child() -> None:
    pids, before = list[int](), child_pids()

    async def main() -> None:
        slots = ProcessSlots(1)
        _task = asyncio.create_task(slots.run(jobs.send_pid_and_ignore_sigterm, on_message=pids.append, grace_sec=60))
        await wait_until(lambda: pids)
        _task.cancel()
        await asyncio.sleep(0)  # let the ending begin; asyncio.run cancels that too

    asyncio.run(main())
    assert is_gone(pids[0])
    assert child_pids() <= before


def test_a_cancel_that_comes_with_the_result_keeps_the_child() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        await slots.run(int)
        warm = slots.pids
        task = asyncio.create_task(slots.run(int))
        await asyncio.sleep(0)  # the call is on its way
        (child,) = slots._busy
        await child._free.wait()  # the answer has arrived, the task has not run yet
        task.cancel()
        await asyncio.wait([task])
        assert slots.pids == warm
        await slots.close()

    run(main)
