import asyncio
import contextlib

import pytest

from pyoco_server.adapters.executor import coroutines
from pyoco_server.adapters.executor.coroutines import Coroutines
from pyoco_server.adapters.executor.errors import ControlFlowError
from pyoco_server.app.ports.task_executor import CallWatch
from tests.adapters.executor.leaks import run
from tests.waiting import wait_until


async def forever() -> None:
    await asyncio.sleep(60)


async def endless(until: asyncio.Event, error: BaseException | None = None) -> None:
    while not until.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await until.wait()
    if error is not None:
        raise error


async def throw(error: BaseException) -> None:
    raise error


def test_run_returns_or_raises_what_the_coroutine_does() -> None:
    async def main() -> None:
        runner = Coroutines()
        assert await runner.run(lambda: asyncio.sleep(0, 5), CallWatch(), name="five") == 5
        error = KeyError("k")
        with pytest.raises(KeyError) as caught:
            await runner.run(lambda: throw(error), CallWatch(), name="raises")
        assert caught.value is error

    run(main)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_coroutine_cannot_end_the_loop(kind: type[BaseException]) -> None:
    async def main() -> None:
        with pytest.raises(ControlFlowError, match=kind.__name__):
            await Coroutines().run(lambda: throw(kind()), CallWatch(), name="exits")

    run(main)


def test_a_coroutine_cancelled_before_its_first_step_is_never_made() -> None:
    async def main() -> None:
        made, watch = list[int](), CallWatch()

        async def start() -> None:
            made.append(1)

        call = asyncio.create_task(Coroutines().run(start, watch, name="unborn"))
        await asyncio.sleep(0)
        watch.ask_to_stop()
        await asyncio.wait([call])
        assert call.cancelled()
        assert made == []

    run(main)


def test_an_interrupt_cancels_only_its_own_coroutine() -> None:
    async def main() -> None:
        watch, runner = CallWatch(), Coroutines()
        call = asyncio.create_task(runner.run(forever, watch, name="asked"))
        await wait_until(lambda: watch.interrupt is not None)
        watch.ask_to_stop()
        await asyncio.wait([call])
        assert call.cancelled()
        assert call.cancelling() == 0
        assert (runner.abandoned, watch.interrupt) == (0, None)

    run(main)


def test_a_coroutine_interrupted_before_it_begins_never_begins() -> None:
    async def main() -> None:
        watch = CallWatch()
        watch.ask_to_stop()
        with pytest.raises(asyncio.CancelledError):
            await Coroutines().run(forever, watch, name="late")

    run(main)


@pytest.mark.parametrize("error", [None, ValueError("unheard")], ids=["returns", "raises"])
def test_a_coroutine_that_swallows_its_cancel_is_abandoned_and_counted(
    error: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        runner, until = Coroutines(), asyncio.Event()
        call = asyncio.create_task(runner.run(lambda: endless(until, error), CallWatch(), name="stubborn"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert runner.abandoned == 1
        until.set()
        await wait_until(lambda: runner.abandoned == 0)

    run(main)
    said = [action for record in caplog.records if (action := getattr(record, "action", None)) is not None]
    assert said == ["coroutine_abandoned"]


def test_a_second_cancel_ends_the_wait_for_the_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutines, "STOP_SEC", 60)

    async def main() -> None:
        runner, until = Coroutines(), asyncio.Event()
        call = asyncio.create_task(runner.run(lambda: endless(until), CallWatch(), name="stubborn"))
        for _ in range(4):
            await asyncio.sleep(0)
        call.cancel()
        for _ in range(4):
            await asyncio.sleep(0)
        assert not call.done()
        call.cancel()
        await asyncio.wait([call], timeout=5)
        assert call.cancelled()
        assert runner.abandoned == 1
        until.set()
        await wait_until(lambda: runner.abandoned == 0)

    run(main)


def test_an_exception_of_an_abandoned_coroutine_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def failing_to_clean_up() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while cleaning up")

    async def main() -> None:
        runner = Coroutines()
        call = asyncio.create_task(runner.run(failing_to_clean_up, CallWatch(), name="untidy"))
        for _ in range(3):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert runner.abandoned == 0

    run(main)
    assert caplog.records == []


def test_close_cancels_the_abandoned_coroutines_again() -> None:
    async def main() -> None:
        runner, cancels = Coroutines(), list[int]()

        async def swallow_once() -> None:
            try:
                await forever()
            except asyncio.CancelledError:
                cancels.append(1)
            await forever()

        call = asyncio.create_task(runner.run(swallow_once, CallWatch(), name="once"))
        for _ in range(3):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        assert (runner.abandoned, cancels) == (1, [1])
        await runner.close()
        await wait_until(lambda: runner.abandoned == 0)

    run(main)
