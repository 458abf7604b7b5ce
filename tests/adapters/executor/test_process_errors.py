import errno
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from pyoco_server.adapters.executor.errors import (
    ControlFlowError,
    NotPicklableError,
    ProcessDiedError,
    RemoteError,
)
from pyoco_server.adapters.executor.processes.pool import ProcessSlots
from tests.adapters.executor import jobs
from tests.adapters.executor.leaks import is_gone, run


def failure_of(function: Callable[..., Any], *args: object, **kwargs: object) -> BaseException:
    """What a call raises; the slots must work as before after it."""

    async def main() -> BaseException:
        slots = ProcessSlots(1)
        with pytest.raises(Exception) as caught:  # noqa: PT011 (the tests look at it closely)
            await slots.run(function, args, kwargs)
        assert await slots.run(jobs.add, (1, 1)) == 2
        assert slots.running == 0
        await slots.close()
        return caught.value

    return run(main)


def test_an_exception_comes_back_with_its_remote_traceback() -> None:
    error = failure_of(jobs.throw, "ValueError")
    assert type(error) is ValueError
    assert error.args == ("plain",)
    trace: str = error.remote_traceback  # type: ignore[attr-defined]
    assert trace.startswith("Traceback")
    assert 'raise ValueError("plain")' in trace
    assert "child.py" not in trace
    assert trace in "".join(traceback.format_exception(error))


def test_the_remote_traceback_shows_the_cause_too() -> None:
    error = failure_of(jobs.throw_from_below)
    assert type(error) is KeyError
    assert "direct cause" in error.remote_traceback  # type: ignore[attr-defined]


def test_an_exception_with_its_own_constructor_keeps_its_type() -> None:
    error = failure_of(jobs.throw, "Contrary")
    assert isinstance(error, jobs.Contrary)
    assert (str(error), error.left, error.right) == ("1 is not 2", 1, 2)


def test_an_exception_with_empty_args_keeps_its_attributes() -> None:
    error = failure_of(jobs.throw, "Forgetful")
    assert isinstance(error, jobs.Forgetful)
    assert str(error) == "something"


def test_a_frozen_exception_gets_its_traceback() -> None:
    error = failure_of(jobs.throw, "Frozen")
    assert isinstance(error, jobs.Frozen)
    assert error.code == 7
    assert "Frozen" in error.remote_traceback  # type: ignore[attr-defined]


def test_an_exception_that_cannot_travel_is_described() -> None:
    error = failure_of(jobs.throw, "Holder")
    assert isinstance(error, RemoteError)
    assert (error.type_name, error.message) == ("tests.adapters.executor.jobs.Holder", "holds a lock")
    assert error.remote_traceback is not None
    assert "raise Holder" in error.remote_traceback


def test_an_exception_without_a_text_comes_back() -> None:
    assert isinstance(failure_of(jobs.throw, "Mute"), jobs.Mute)


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "StopIteration"])
def test_an_exception_that_controls_the_loop_is_wrapped(name: str) -> None:
    error = failure_of(jobs.throw, name)
    assert isinstance(error, ControlFlowError)
    assert type(error.original).__name__ == name
    assert error.remote_traceback is not None


def test_a_lambda_is_refused() -> None:
    error = failure_of(lambda: 1)
    assert isinstance(error, NotPicklableError)
    assert error.what.startswith("the function")
    assert "it is a lambda" in str(error)
    assert "top level of a module" in error.remedy


def test_a_local_function_is_refused_even_inside_a_partial() -> None:
    def local() -> None:
        pass

    for function in (local, functools.partial(local)):
        error = failure_of(function)
        assert isinstance(error, NotPicklableError)
        assert error.reason == "it is defined inside another function"


def test_a_function_of_a_module_made_at_run_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_up")
    exec("def f(): pass", module.__dict__)  # noqa: S102 (the point of it)
    monkeypatch.setitem(sys.modules, "made_up", module)
    error = failure_of(module.f)
    assert isinstance(error, NotPicklableError)
    assert "'made_up' was made at run time" in error.reason


def test_a_function_hidden_by_another_of_its_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = jobs.argv
    monkeypatch.setattr(jobs, "argv", jobs.move)
    error = failure_of(hidden)
    assert isinstance(error, NotPicklableError)
    assert error.what == "the function tests.adapters.executor.jobs.argv"
    assert "not the same object" in error.reason


def test_an_argument_that_cannot_travel_is_named() -> None:
    error = failure_of(jobs.add, 1, threading.Lock())
    assert isinstance(error, NotPicklableError)
    assert error.what == "argument 'right', a lock"
    assert "plain data" in error.remedy
    assert failure_of(jobs.move, 1, by=threading.Lock()).what == "argument 'by', a lock"  # type: ignore[attr-defined]
    assert failure_of(max, 1, 2, threading.Lock()).what == "positional argument 3, a lock"  # type: ignore[attr-defined]


def test_an_argument_that_cannot_be_loaded_is_an_error() -> None:
    error = failure_of(jobs.add, jobs.Unloadable())
    assert isinstance(error, NotPicklableError)
    assert error.what == "the arguments"
    assert "does not want to be loaded" in error.reason


def test_a_result_that_cannot_travel_is_an_error() -> None:
    error = failure_of(jobs.generator)
    assert isinstance(error, NotPicklableError)
    assert error.what == "the result, a generator"
    assert "Return plain data" in error.remedy


def test_a_result_that_cannot_be_loaded_here_is_an_error() -> None:
    error = failure_of(jobs.make_homebody)
    assert isinstance(error, NotPicklableError)
    assert error.what == "the result"
    assert "not at home here" in error.reason


@pytest.mark.parametrize(
    ("function", "args", "exit_code", "signal_name"),
    [
        (jobs.segfault, (), None, "SIGSEGV"),
        (jobs.leave, (3,), 3, None),
        (jobs.leave, (0,), 0, None),
        (jobs.kill_self, (), None, "SIGKILL"),
    ],
)
def test_the_error_for_a_dead_child_says_how_it_ended(
    function: Callable[..., None], args: tuple[int, ...], exit_code: int | None, signal_name: str | None
) -> None:
    error = failure_of(function, *args)
    assert isinstance(error, ProcessDiedError)
    assert (error.exit_code, error.signal_name) == (exit_code, signal_name)
    assert is_gone(error.pid)
    assert (signal_name or f"exit code {exit_code}") in str(error)


def test_a_child_that_dies_is_noticed_though_another_process_holds_its_connection() -> None:
    async def main() -> None:
        slots, forks = ProcessSlots(1), list[int]()
        try:
            with pytest.raises(ProcessDiedError, match="exit code 4"):
                await slots.run(jobs.leave_a_fork_behind, on_message=forks.append)
        finally:
            os.kill(forks[0], signal.SIGKILL)
        await slots.close()

    run(main)


def test_without_a_pidfd_the_end_of_a_child_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "an old kernel")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert isinstance(failure_of(jobs.segfault), ProcessDiedError)


def test_a_child_that_dies_while_idle_is_replaced() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        pid = await slots.run(os.getpid)
        (child,) = slots._idle
        os.kill(pid, signal.SIGKILL)
        await child._ended.wait()
        assert await slots.run(os.getpid) != pid
        await slots.close()

    run(main)


def test_a_child_ignores_ctrl_c() -> None:
    async def main() -> None:
        slots = ProcessSlots(1)
        pid = await slots.run(jobs.interrupt_self)
        assert await slots.run(os.getpid) == pid
        await slots.close()

    run(main)
