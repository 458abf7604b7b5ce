import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from pyoco_server.adapters.executor.errors import MessageTooLargeError, SlotsClosedError
from pyoco_server.adapters.executor.processes.child import child_control
from pyoco_server.adapters.executor.processes.pool import ProcessSlots
from tests.adapters.executor import jobs
from tests.adapters.executor.leaks import is_gone, run
from tests.waiting import wait_until


def test_a_function_runs_in_another_process_and_its_result_comes_back() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        assert await slots.run(jobs.move, (jobs.Point(1, 2),), {"by": 3}) == jobs.Point(4, 5)
        pid = await slots.run(os.getpid)
        assert pid != os.getpid()
        assert slots.pids == {pid}
        await slots.close()
        assert is_gone(pid)

    run(main)


def test_a_child_gets_no_settings_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYOCO_AUTH_PEPPER", "pepper")
    monkeypatch.setenv("MODEL_KEY", "of the task")

    async def main() -> None:
        slots = ProcessSlots(1)
        assert await slots.run(os.getenv, ("PYOCO_AUTH_PEPPER",)) is None
        assert await slots.run(os.getenv, ("MODEL_KEY",)) == "of the task"
        await slots.close()

    run(main)


def test_children_are_started_when_needed_and_reused() -> None:
    async def main() -> None:
        slots = ProcessSlots(4)
        assert slots.pids == frozenset()
        assert len({await slots.run(os.getpid) for _ in range(5)}) == 1
        await slots.close()

    run(main)


def test_fifty_calls_share_four_children() -> None:
    async def main() -> None:
        slots = ProcessSlots(4)
        calls = [asyncio.create_task(slots.run(jobs.add, (n,), {"right": 1})) for n in range(50)]
        most = 0
        for call in calls:
            await call
            most = max(most, len(slots.pids))
        assert [call.result() for call in calls] == list(range(1, 51))
        assert most == 4
        assert (slots.running, slots.waiting) == (0, 0)
        await slots.close()

    run(main)


def test_only_so_many_children_are_kept_warm(tmp_path: Path) -> None:
    async def main() -> None:
        slots = ProcessSlots(2, keep_warm=1)
        gate = tmp_path / "gate"
        calls = [asyncio.create_task(slots.run(jobs.hold, (str(gate),))) for _ in range(2)]
        await wait_until(lambda: len(slots.pids) == 2)
        gate.touch()
        pids = await asyncio.gather(*calls)
        await wait_until(lambda: slots.running == 0)
        assert len(slots.pids) == 1
        await wait_until(lambda: sum(is_gone(pid) for pid in pids) == 1)
        await slots.close()

    run(main)


def test_without_warm_children_each_call_has_its_own() -> None:
    async def main() -> None:
        slots = ProcessSlots(1, keep_warm=0)
        first = await slots.run(os.getpid)
        second = await slots.run(os.getpid)
        assert first != second
        assert is_gone(first)
        await slots.close()

    run(main)


@pytest.mark.parametrize("settings", [{"limit": 0}, {"limit": 1, "keep_warm": -1}])
def test_an_invalid_limit_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        ProcessSlots(**settings)


def test_messages_reach_the_parent_in_order_and_before_the_result() -> None:
    async def main() -> None:
        slots, got = ProcessSlots(1), list[object]()
        sent: list[object] = [1, "two", {"three": 3}, b"4" * 300_000, *range(200)]
        assert await slots.run(jobs.send_all, (sent,), on_message=got.append) == len(sent)
        assert got == sent
        assert await slots.run(jobs.send_all, (sent,)) == len(sent)  # a listener is optional
        await slots.close()

    run(main)


def test_a_slow_listener_gets_all_messages_in_order_and_slows_the_sender() -> None:
    async def main() -> None:
        slots, got, gate = ProcessSlots(1), list[object](), asyncio.Event()

        async def listen(obj: object) -> None:
            await gate.wait()
            got.append(obj)

        sent: list[object] = list(range(100_000))
        call = asyncio.create_task(slots.run(jobs.send_all, (sent,), on_message=listen))
        await wait_until(lambda: slots.pids)
        (child,) = slots._busy
        await wait_until(lambda: child._transport is not None and not child._transport.is_reading())
        assert child._messages is not None
        assert len(child._messages._pending) < 50_000
        gate.set()
        assert await call == len(sent)
        assert got == sent
        await slots.close()

    run(main)


def test_a_cancel_does_not_wait_for_a_listener() -> None:
    async def main() -> None:
        slots, received = ProcessSlots(1), asyncio.Event()

        async def listen(_: object) -> None:
            received.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(slots.run(jobs.send_all, ([1, 2],), on_message=listen))
        await received.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert await slots.run(jobs.add, (1,)) == 1
        await slots.close()

    run(main)


def test_a_message_that_cannot_be_sent_fails_where_it_is_sent() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        assert "cannot pickle" in await slots.run(jobs.send_the_unsendable)
        await slots.close()

    run(main)


def test_a_message_sent_after_its_call_has_ended_does_not_reach_the_next_call() -> None:
    async def main() -> None:
        slots, got = ProcessSlots(1), list[object]()
        await slots.run(jobs.send_too_late)
        errors = await slots.run(jobs.what_became_of_the_late, on_message=got.append)
        assert errors == ["The call this message belongs to has ended."]
        assert got == []
        await slots.close()

    run(main)


def test_a_callback_that_raises_harms_neither_the_call_nor_the_child() -> None:
    async def main() -> None:
        problems = list[BaseException]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
        slots = ProcessSlots(1)

        def refuse(obj: object) -> None:
            raise LookupError(obj)

        assert await slots.run(jobs.send_all, ([1, 2],), on_message=refuse) == 2
        assert [type(problem) for problem in problems] == [LookupError, LookupError]
        await slots.close()

    run(main)


def test_child_control_exists_only_in_a_child() -> None:
    with pytest.raises(RuntimeError, match="only inside a function that runs in a ProcessSlots child"):
        child_control()


def test_ten_megabytes_each_way_do_not_block_the_loop() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        await slots.run(int)
        data, turns = os.urandom(10_000_000), 0
        call = asyncio.create_task(slots.run(jobs.double, (data,)))
        while not call.done():
            turns += 1
            await asyncio.sleep(0)
        assert call.result() == data + data
        assert turns > 20
        await slots.close()

    run(main)


def test_a_message_that_is_too_large_is_refused_in_both_directions() -> None:
    async def main() -> None:
        slots = ProcessSlots(1, max_message_bytes=1000)
        with pytest.raises(MessageTooLargeError, match=r"the call.*the limit is 1000") as caught:
            await slots.run(len, (b"x" * 1000,))
        assert caught.value.size > 1000
        with pytest.raises(MessageTooLargeError, match="the answer"):
            await slots.run(jobs.double, (b"x" * 600,))
        with pytest.raises(ValueError, match="The message has"):
            await slots.run(jobs.send_text, (2000,))
        assert await slots.run(jobs.add, (1,)) == 1
        await slots.close()

    run(main)


def test_the_output_of_a_function_is_visible_when_it_returns(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> str:
        slots = ProcessSlots(1)
        await slots.run(jobs.say, ("hello from the child",))
        out = capfd.readouterr().out
        await slots.close()
        return out

    assert run(main) == "hello from the child"


def test_a_child_sees_the_arguments_of_the_program_but_not_its_input() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        assert await slots.run(jobs.argv) == sys.argv
        assert await slots.run(jobs.stdin_text) == ""
        await slots.close()

    run(main)


def test_close_refuses_new_calls_and_ends_running_ones() -> None:
    async def main() -> None:
        slots, pids = ProcessSlots(1), list[int]()
        running = asyncio.create_task(slots.run(jobs.send_pid_and_spin, on_message=pids.append))
        waiting = asyncio.create_task(slots.run(int))
        await wait_until(lambda: pids)
        await slots.close()
        assert is_gone(pids[0])
        for call in (running, waiting, slots.run(int)):
            with pytest.raises(SlotsClosedError):
                await call
        await slots.close()

    run(main)


def test_close_waits_for_running_calls_if_it_has_a_timeout(tmp_path: Path) -> None:
    async def main() -> None:
        slots, gate = ProcessSlots(1), tmp_path / "gate"
        running = asyncio.create_task(slots.run(jobs.hold, (str(gate),)))
        await wait_until(lambda: slots.pids)
        closing = asyncio.create_task(slots.close(timeout_sec=5))
        gate.touch()
        await closing
        assert isinstance(await running, int)

    run(main)


def test_close_during_the_start_of_a_child_ends_it() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        call = asyncio.create_task(slots.run(int))
        await asyncio.sleep(0)  # just far enough to have the slot
        assert slots.running == 1
        assert not slots.pids
        await slots.close()
        with pytest.raises(SlotsClosedError):
            await call

    run(main)


def test_a_thousand_calls_over_warm_children() -> None:
    async def main() -> None:
        slots = ProcessSlots(2)
        begin = time.perf_counter()
        await slots.run(int)
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in range(1000):
            await slots.run(int)
        one_by_one = time.perf_counter() - begin
        begin = time.perf_counter()
        await asyncio.gather(*(slots.run(int) for _ in range(1000)))
        at_once = time.perf_counter() - begin
        sys.stdout.write(
            f"\nprocesses: {first * 1000:.0f} ms for the first call, then {one_by_one * 1000:.0f} µs a call, "
            f"{at_once * 1000:.0f} µs when many wait\n"
        )
        await slots.close()

    run(main)
