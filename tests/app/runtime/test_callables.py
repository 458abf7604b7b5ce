"""Every callable can be a task: how each kind of callable gets its arguments, and where it runs."""

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server import Engine, options
from pyoco_server.app.runtime import argument_binding as calling
from pyoco_server.engine import RunResult
from tests.adapters.executor import tasks
from tests.app.runtime.flows import wait_until
from tests.app.runtime.pyoco_side import Built, agree, step

PARAMS = {"x": 1, "y": 2, "self": 3, "function": 4, "isolation": 5, "kwargs": 6, "args": [7, 8], "task": 9, "watch": 10}


class Counter:
    """Callable in every way a class and its objects can be."""

    def __init__(self, x: int, y: int = 10) -> None:
        self.sum = x + y

    def __eq__(self, other: object) -> bool:  # type: ignore[explicit-override]
        return isinstance(other, Counter) and other.sum == self.sum

    __hash__ = None  # type: ignore[assignment]  # an object that can be called need not be hashable

    def __reduce__(self) -> str:  # type: ignore[explicit-override]
        raise TypeError("Counter does not travel")

    def __call__(self, x: int) -> int:
        return self.sum + x

    def method(self, x: int, *, y: int) -> tuple[int, int, int]:
        return self.sum, x, y

    @classmethod
    def made(cls, x: int) -> int:
        return cls(x).sum

    @staticmethod
    def plain(x: int) -> int:
        return -x


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return ["around", function(*args, **kwargs)]

    return around


def three(x: int, y: int, z: int = 100) -> list[int]:
    return [x, y, z]


def internal(self: int, function: int, isolation: int, task: int, watch: int) -> list[int]:
    return [self, function, isolation, task, watch]


LIKE_PYOCO: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "function": (three, {}),
    "default": (lambda x, other=5: [x, other], {}),
    "keyword only": (lambda *, x, other=5: [x, other], {}),
    "input over parameter": (three, {"x": "$ctx.params.y", "z": 0}),
    "partial": (functools.partial(three, 50), {}),
    "partial with keyword": (functools.partial(three, z=50), {}),
    "partial of partial": (functools.partial(functools.partial(three, 50), 51), {"z": 52}),
    "partial of object": (functools.partial(Counter(1)), {}),
    "object": (Counter(1, 2), {}),
    "class": (Counter, {}),
    "method": (Counter(1).method, {}),
    "class method": (Counter.made, {}),
    "static method": (Counter.plain, {}),
    "decorated": (decorated(three), {}),
    "keywords": (lambda **others: others, {"a": 1, "x": "$ctx.params.x"}),
    "keywords besides": (lambda x, **others: [x, others], {"a": 1}),
    "keywords called like a parameter": (lambda **kwargs: kwargs, {}),
    "names of our own": (internal, {}),
    "context by keyword": (lambda *, ctx: ctx.params["x"], {}),
    "context declared as something else": (lambda ctx: ctx.params["x"], {"ctx": 1}),
    "input called ctx": (lambda **others: others, {"ctx": 1}),
    "argument missing": (lambda nothing: nothing, {}),
    "input without a parameter": (lambda: 1, {"a": 1}),
    "nothing": (lambda: None, {}),
}


@pytest.mark.parametrize("kind", LIKE_PYOCO)
def test_a_callable_is_called_as_pyoco_calls_it(engine: Engine, kind: str) -> None:
    function, inputs = LIKE_PYOCO[kind]
    agree(engine, lambda: Built(Flow() >> step(function, "t", inputs=inputs), dict(PARAMS)))


def run(engine: Engine, function: Callable[..., Any], inputs: dict[str, Any] | None = None, **more: Any) -> RunResult:
    return engine.run(Flow() >> options(step(function, "t", inputs=inputs or {}), **more), dict(PARAMS))


def result_of(engine: Engine, function: Callable[..., Any], inputs: dict[str, Any] | None = None, **more: Any) -> Any:
    result = run(engine, function, inputs, **more)
    assert (result.status, result.state.failure) == ("COMPLETED", None)
    return result.results["t"]


def error_of(engine: Engine, function: Callable[..., Any], inputs: dict[str, Any] | None = None, **more: Any) -> Any:
    result = run(engine, function, inputs, **more)
    assert result.status == "FAILED"
    return result.state.nodes["t"].error


# --- Beyond pyoco: by position ---------------------------------------------------------------------------------------

BY_POSITION: dict[str, tuple[Callable[..., Any], dict[str, Any], Any]] = {
    "positional only": (lambda x, y, /: [x, y], {}, [1, 2]),
    "and others": (lambda x, /, y, *, function: [x, y, function], {}, [1, 2, 4]),
    "default at the end": (lambda x, z=5, /: [x, z], {}, [1, 5]),
    "default in between": (lambda z=5, y=6, /: [z, y], {}, [5, 2]),
    "the same name among the keywords": (lambda x, /, **more: [x, more], {"a": 0}, [1, {"a": 0}]),
    "context": (lambda ctx, /: ctx.params["x"], {}, 1),
    "declared rest": (lambda x, *rest, y: [x, *rest, y], {"rest": [5, 6]}, [1, 5, 6, 2]),
    "declared rest after a default": (lambda x, z=3, *rest: [x, z, *rest], {"rest": (5,)}, [1, 3, 5]),
    "rest of the same name as a parameter of the run": (lambda x, *args: [x, *args], {}, [1]),
    "builtin of one argument": (len, {"obj": [1, 2]}, 2),
    "builtin with defaults": (sorted, {"iterable": [1, 3, 2], "reverse": True}, [3, 2, 1]),
    "builtin without a signature": (dict, {"a": 1}, {"a": 1}),
    "builtin without arguments": (int, {}, 0),
    "method of a builtin": ("a-b".split, {"sep": "-"}, ["a", "b"]),
}


@pytest.mark.parametrize("kind", BY_POSITION)
def test_positional_only_arguments_are_passed_by_position(engine: Engine, kind: str) -> None:
    function, inputs, expected = BY_POSITION[kind]
    assert result_of(engine, function, inputs) == expected


def test_a_missing_positional_argument_is_named(engine: Engine) -> None:
    error = error_of(engine, lambda nothing, x, /: [nothing, x])
    assert error["code"] == "UnfitFunctionError"
    assert "needs 'nothing': declare it under the task's inputs" in error["message"]


def test_the_rest_must_be_a_list(engine: Engine) -> None:
    error = error_of(engine, lambda *rest: rest, {"rest": 5})
    assert "takes '*rest': give it a list, not a int" in error["message"]


# --- Beyond pyoco: coroutines ----------------------------------------------------------------------------------------


async def triple(x: int) -> int:
    await asyncio.sleep(0)
    return 3 * x


class Async:
    async def __call__(self, x: int) -> int:
        return await triple(x)

    async def method(self, x: int) -> int:
        return await triple(x)


class Promise:
    """Can be awaited, and is neither a coroutine nor a future."""

    def __init__(self, x: int) -> None:
        self._x = x

    def __await__(self) -> Any:
        return triple(self._x).__await__()


def hand_on(x: int) -> Any:
    return triple(x)


def decorated_plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return around


COROUTINES: dict[str, Callable[..., Any]] = {
    "function": triple,
    "partial": functools.partial(triple, x=1),
    "method": Async().method,
    "object": Async(),
    "partial of object": functools.partial(Async(), 1),
    "decorated by a plain function": decorated_plainly(triple),
    "handed on by a plain function": hand_on,
    "something else that can be awaited": Promise,
}


@pytest.mark.parametrize("kind", COROUTINES)
def test_an_awaitable_result_is_awaited(engine: Engine, kind: str) -> None:
    assert result_of(engine, COROUTINES[kind], timeout_sec=30) == 3


def test_a_coroutine_handed_on_by_a_thread_is_cancelled_like_any(engine: Engine) -> None:
    running, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    run_id = engine.start(Flow() >> step(decorated_plainly(wait), "t"))
    assert running.wait(60)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"
    assert ended.is_set()


def test_a_coroutine_handed_on_after_a_cancel_never_begins() -> None:
    running, gate, began = threading.Event(), threading.Event(), threading.Event()

    async def late() -> None:
        began.set()

    def slow() -> Any:
        running.set()
        gate.wait(5)
        return late()

    with Engine(cancel_grace_sec=5) as engine:
        run_id = engine.start(Flow() >> step(slow, "t"))
        assert running.wait(60)
        engine.cancel(run_id)
        gate.set()
        assert engine.wait(run_id).status == "CANCELED"
    assert not began.is_set()


async def items() -> AsyncIterator[int]:
    yield 1


class Items:
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize("function", [items, functools.partial(items), Items()], ids=["function", "partial", "object"])
@pytest.mark.parametrize("isolation", ["auto", "process"])
def test_an_async_generator_is_refused_with_a_remedy(engine: Engine, function: Any, isolation: str) -> None:
    error = error_of(engine, function, isolation=isolation)
    assert error["code"] == "UnfitFunctionError"
    assert "is an async generator, which yields and does not return" in error["message"]
    assert "returns a list" in error["message"]


# --- In processes ----------------------------------------------------------------------------------------------------

IN_PROCESSES: dict[str, tuple[Callable[..., Any], dict[str, Any], Any]] = {
    "async function": (tasks.doubled, {}, 2),
    "object with an async call": (tasks.Adder(5), {}, 6),
    "method": (tasks.Adder(5).add, {}, 6),
    "partial": (functools.partial(tasks.doubled, x=4), {"x": 5}, 10),
    "class": (tasks.Adder, {"more": 2}, None),
    "builtin": (sorted, {"iterable": [2, 1]}, [1, 2]),
    "names of our own": (tasks.oddly_named, {}, [3, 4, 5, 6, 3]),
    "by position": (tasks.by_position, {"rest": [5]}, [1, 1, 5]),
}


@pytest.mark.parametrize("kind", IN_PROCESSES)
def test_a_callable_can_be_called_in_a_process(engine: Engine, kind: str) -> None:
    function, inputs, expected = IN_PROCESSES[kind]
    result = result_of(engine, function, inputs, isolation="process")
    assert (result.more if isinstance(result, tasks.Adder) else result) == (expected or 2)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x, "it is a lambda"),
        (functools.partial(lambda x: x), "it is a lambda"),
        (Counter(1).__call__, "TypeError: Counter does not travel"),
    ],
    ids=["lambda", "partial of a lambda", "method of what does not travel"],
)
def test_a_function_no_process_can_find_is_refused_with_a_remedy(engine: Engine, function: Any, why: str) -> None:
    error = error_of(engine, function, isolation="process")
    assert error["code"] == "NotPicklableError"
    assert why in error["message"]
    assert "Define the function at the top level of a module" in error["message"]


def test_a_coroutine_in_a_process_is_cancelled_and_may_clean_up(engine: Engine, tmp_path: Path) -> None:
    run_id = engine.start(
        Flow() >> options(step(tasks.wait_to_be_cancelled, "t", inputs={"marks": str(tmp_path)}), isolation="process")
    )
    wait_until((tmp_path / "running").exists)
    engine.cancel(run_id)
    assert engine.wait(run_id).status == "CANCELED"
    assert (tmp_path / "cancelled").read_text() == "True"


# --- What is kept of a function --------------------------------------------------------------------------------------


def test_a_function_is_looked_at_once_and_forgotten_with_its_last_use() -> None:
    def mine(x: int) -> int:
        return x

    shape, gone = calling.shape_of(mine), weakref.ref(mine)
    assert calling.shape_of(mine) is shape
    known = len(calling._known)
    del mine
    gc.collect()
    assert gone() is None
    assert len(calling._known) < known


def test_an_object_that_cannot_be_referred_to_weakly_can_be_called(engine: Engine) -> None:
    class Slim:
        __slots__ = ()

        def __call__(self, x: int) -> int:
            return x + 1

    assert result_of(engine, Slim()) == 2
