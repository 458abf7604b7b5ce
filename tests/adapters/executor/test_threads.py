import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref

import pytest

from pyoco_server.adapters.executor.errors import ControlFlowError, SlotsClosedError
from pyoco_server.adapters.executor.threads import ThreadSlots
from tests.adapters.executor.leaks import run
from tests.waiting import wait_until

color = contextvars.ContextVar("color", default="none")


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def throw(error: BaseException) -> None:
    raise error


def test_a_call_runs_in_a_named_daemon_thread_and_its_result_comes_back() -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="named")
        thread = await slots.run(threading.current_thread)
        assert thread.name == "named-1"
        assert thread.daemon
        assert await slots.close(1) == 0

    run(main)


def test_an_exception_comes_back_as_it_was_raised() -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="raising")
        error = KeyError("k")
        with pytest.raises(KeyError) as caught:
            await slots.run(lambda: throw(error))
        assert caught.value is error
        await slots.close(1)

    run(main)


@pytest.mark.parametrize("kind", [StopIteration, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_controls_the_loop_is_wrapped(kind: type[BaseException]) -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="steering")
        with pytest.raises(ControlFlowError, match=kind.__name__) as caught:
            await slots.run(lambda: throw(kind("x")))
        assert isinstance(caught.value.original, kind)
        assert await slots.run(lambda: 1) == 1
        await slots.close(1)

    run(main)


def test_context_variables_are_seen_but_not_changed_by_the_call() -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="context")
        color.set("green")

        def look_and_change() -> str:
            seen = color.get()
            color.set("red")
            return seen

        assert await slots.run(look_and_change) == "green"
        assert color.get() == "green"
        await slots.close(1)

    run(main)


def test_fifty_calls_share_four_threads_in_order() -> None:
    async def main() -> None:
        slots, lock = ThreadSlots(4, name="fifty"), threading.Lock()
        started, now, most = list[int](), 0, 0

        def work(number: int) -> int:
            nonlocal now, most
            with lock:
                started.append(number)
                now += 1
                most = max(most, now)
            time.sleep(0.001)
            with lock:
                now -= 1
            return number

        results = await asyncio.gather(*(slots.run(lambda n=n: work(n)) for n in range(50)))  # type: ignore[misc]
        assert results == list(range(50))
        assert most <= 4
        # Four at a time start in any order, and the machine may pause one of them; but no call starves.
        assert all(abs(number - place) < 25 for place, number in enumerate(started))
        assert len(threads_named("fifty")) <= 4
        assert slots.running == 0
        await slots.close(1)

    run(main)


def test_a_worker_is_reused() -> None:
    async def main() -> None:
        slots = ThreadSlots(4, name="reused")
        assert len({await slots.run(threading.get_ident) for _ in range(20)}) == 1
        await slots.close(1)

    run(main)


def test_all_slots_run_at_the_same_time() -> None:
    async def main() -> None:
        slots = ThreadSlots(16, name="together")
        for _ in range(3):  # with new workers, and with those that were idle
            meeting = threading.Barrier(16, timeout=10)
            assert sorted(await asyncio.gather(*(slots.run(meeting.wait) for _ in range(16)))) == list(range(16))
        await slots.close(1)

    run(main)


def test_a_burst_of_short_calls_needs_few_threads_and_a_long_call_delays_no_other() -> None:
    async def main() -> None:
        slots, gate = ThreadSlots(16, name="burst"), threading.Event()
        long = asyncio.create_task(slots.run(gate.wait))
        for _ in range(50):
            assert await asyncio.gather(*(slots.run(lambda n=n: n) for n in range(15))) == list(range(15))  # type: ignore[misc]
        assert len(threads_named("burst")) <= 16
        gate.set()
        assert await long
        await slots.close(1)

    run(main)


def test_on_begin_is_called_when_the_call_begins() -> None:
    async def main() -> None:
        slots, gate, began = ThreadSlots(1, name="begins"), threading.Event(), list[str]()
        first = asyncio.create_task(slots.run(gate.wait, on_begin=lambda _: began.append("first")))
        second = asyncio.create_task(slots.run(int, on_begin=lambda _: began.append("second")))
        await wait_until(lambda: slots.waiting == 1)
        assert began == ["first"]
        gate.set()
        await asyncio.gather(first, second)
        assert began == ["first", "second"]
        await slots.close(1)

    run(main)


def test_a_call_raises_the_error_of_a_thread_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        slots = ThreadSlots(1, name="refused")
        with monkeypatch.context() as machine:
            machine.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await slots.run(int)
        assert slots.running == 0
        assert await slots.run(lambda: 5) == 5
        await slots.close(1)

    run(main)


def test_an_idle_worker_ends_after_a_while() -> None:
    async def main() -> None:
        slots = ThreadSlots(2, name="idle", idle_sec=0.05)
        await slots.run(int)
        await wait_until(lambda: not threads_named("idle"))
        assert await slots.run(lambda: 5) == 5
        await slots.close(1)

    run(main)


def test_an_idle_worker_does_not_keep_the_last_result_alive() -> None:
    class Thing:
        pass

    async def main() -> None:
        slots = ThreadSlots(1, name="forgets")
        thing = weakref.ref(await slots.run(Thing))
        await wait_until(lambda: gc.collect() >= 0 and thing() is None)
        await slots.close(1)

    run(main)


def test_a_call_cancelled_in_the_queue_never_runs() -> None:
    async def main() -> None:
        slots, gate, ran = ThreadSlots(1, name="queued"), threading.Event(), list[int]()
        first = asyncio.create_task(slots.run(gate.wait))
        second = asyncio.create_task(slots.run(lambda: ran.append(2)))
        await wait_until(lambda: slots.waiting == 1)
        second.cancel()
        await asyncio.wait([second])
        gate.set()
        assert await first
        await slots.run(lambda: ran.append(3))
        assert second.cancelled()
        assert ran == [3]
        await slots.close(1)

    run(main)


def test_calls_cancelled_while_their_worker_wakes_do_not_stop_the_worker() -> None:
    async def main() -> None:
        slots = ThreadSlots(1, name="on-its-way")
        for _ in range(300):
            task = asyncio.create_task(slots.run(int))
            await asyncio.sleep(0)  # the call is handed over; whether the worker has it yet is a race, on purpose
            task.cancel()
            await asyncio.wait([task])
        await wait_until(lambda: slots.abandoned == 0)
        assert await slots.run(lambda: 7) == 7
        await wait_until(lambda: len(threads_named("on-its-way")) == 1)
        await slots.close(1)

    run(main)


def test_a_call_cancelled_while_it_sleeps_in_c_is_abandoned_and_its_slot_is_free_at_once() -> None:
    async def main() -> None:
        slots, started, released = ThreadSlots(1, name="stuck"), threading.Event(), threading.Event()

        def sleep() -> None:
            started.set()
            released.wait()

        task = asyncio.create_task(slots.run(sleep))
        await wait_until(started.is_set)
        task.cancel()
        await asyncio.wait([task])
        assert await slots.run(lambda: "free") == "free"
        assert slots.abandoned == 1
        assert len(threads_named("stuck")) == 2
        released.set()
        await wait_until(lambda: slots.abandoned == 0)
        await wait_until(lambda: len(threads_named("stuck")) == 1)
        await slots.close(1)

    run(main)


def test_an_abandoned_call_may_end_after_the_loop_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    started, gate, slots = threading.Event(), threading.Event(), ThreadSlots(1, name="outlives")

    async def main() -> None:
        def wait() -> None:
            started.set()
            gate.wait()

        task = asyncio.create_task(slots.run(wait))
        await wait_until(started.is_set)
        task.cancel()
        await asyncio.wait([task])
        await slots.close(1)

    asyncio.run(main())
    assert slots.abandoned == 1
    gate.set()
    asyncio.run(wait_until(lambda: not threads_named("outlives")))
    assert slots.abandoned == 0
    assert capfd.readouterr().err == ""


def test_a_call_may_end_after_a_loop_that_was_closed_without_a_cancel(capfd: pytest.CaptureFixture[str]) -> None:
    gate, slots = threading.Event(), ThreadSlots(1, name="orphan", idle_sec=0.01)
    loop = asyncio.new_event_loop()
    task = loop.create_task(slots.run(gate.wait))
    loop.run_until_complete(wait_until(lambda: threads_named("orphan")))
    loop.close()
    gate.set()
    asyncio.run(wait_until(lambda: not threads_named("orphan")))
    assert capfd.readouterr().err == ""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # that asyncio minds is not the point here


def test_close_refuses_new_and_queued_calls_and_waits_for_running_ones() -> None:
    async def main() -> None:
        slots, gate = ThreadSlots(1, name="closing"), threading.Event()
        running = asyncio.create_task(slots.run(lambda: gate.wait() and "done"))
        waiting = asyncio.create_task(slots.run(int))
        await wait_until(lambda: slots.waiting == 1)
        closing = asyncio.create_task(slots.close(5))
        with pytest.raises(SlotsClosedError):
            await waiting
        with pytest.raises(SlotsClosedError):
            await slots.run(int)
        gate.set()
        assert await closing == 0
        assert await running == "done"

    run(main)


def test_close_leaves_calls_that_do_not_end_in_time() -> None:
    async def main() -> None:
        slots, gate = ThreadSlots(2, name="leaving"), threading.Event()
        task = asyncio.create_task(slots.run(gate.wait))
        await wait_until(lambda: threads_named("leaving"))
        assert await slots.close(0.01) == 1
        gate.set()
        assert await task

    run(main)


def test_a_thousand_calls_over_warm_threads() -> None:
    async def main() -> None:
        slots = ThreadSlots(4, name="many")
        await slots.run(int)
        begin = time.perf_counter()
        for _ in range(1000):
            await slots.run(int)
        one_by_one = time.perf_counter() - begin
        begin = time.perf_counter()
        await asyncio.gather(*(slots.run(int) for _ in range(1000)))
        at_once = time.perf_counter() - begin
        sys.stdout.write(f"\nthreads: {one_by_one * 1000:.0f} µs a call, {at_once * 1000:.0f} µs when many wait\n")
        await slots.close(1)

    run(main)
