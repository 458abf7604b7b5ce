"""Code of users that runs when a value is loaded, compared, written or shown: never on the event loop of the worker.

It runs in a thread or process of the task or block that needs the value, after an event of that node is in the log. So
code that never returns stops only its run, and code that ends the process counts as a crash of that node.
"""

import enum
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import Engine, options, wait
from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.core import Event
from pyoco_server.core.payloads import ExecutionFailed, NodeProgressReported, NodeStarted, NodeWaiting
from pyoco_server.engine import RunResult
from tests.app.runtime.flows import Calls, wait_until
from tests.app.runtime.leaving import RUN, Left, Make


class Seen:
    """Where user code ran, and what the log had by then."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.starts: list[int] = []
        self.count_starts: Callable[[], int] = lambda: 0

    def note(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.starts.append(self.count_starts())

    @property
    def is_on_loop(self) -> bool:
        return any(not name.startswith("pyoco-task") for name in self.threads)


_seen = Seen()


@pytest.fixture(autouse=True)
def seen() -> Iterator[Seen]:
    global _seen  # noqa: PLW0603 what is pickled finds it only by its name
    _seen = Seen()
    yield _seen
    assert not _seen.is_on_loop, _seen.threads


def note() -> None:
    _seen.note()


class Color(enum.Enum):
    RED = 7


def load(value: int) -> "Loaded":
    _seen.note()
    if value < 0:
        raise RuntimeError("it cannot be read")
    return Loaded(value)


class Loaded:
    """Its pickle calls a function of the user."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:  # type: ignore[explicit-override]
        _seen.note()
        return load, (self.value,)

    @property
    def doubled(self) -> int:
        _seen.note()
        return 2 * self.value


def finished_elsewhere(make: Make, seen: Seen) -> tuple[RunResult, Calls]:
    """Finish a run in another process; ``seen`` counts its starts of ``use`` from then on."""
    left, calls = Left(make), Calls()
    seen.starts.clear()
    with Engine(log=left.log, outputs=left.store) as engine:
        seen.count_starts = lambda: starts_of(engine, "use") - 1  # without that of the first process
        return engine.wait(engine.take_up(make(calls), RUN)), calls


def starts_of(engine: Engine, node_id: str) -> int:
    events = engine.events(RUN)
    return sum(isinstance(event.payload, NodeStarted) and event.payload.node_id == node_id for event in events)


def by_name(calls: Calls) -> TaskWrapper:
    return held(calls, lambda make: make.value)


def by_input(calls: Calls) -> TaskWrapper:
    return held(calls, lambda given: given.value, given="$node.make.output")


def by_part(calls: Calls) -> TaskWrapper:
    return held(calls, lambda given: given // 2, given="$node.make.output.doubled")


def by_position(calls: Calls) -> TaskWrapper:
    def function(make: Any, /) -> Any:
        return make.value

    return held(calls, function)


def by_rest(calls: Calls) -> TaskWrapper:
    def function(*make: Any) -> Any:
        return make[0].value

    return held(calls, function, make="$node.make.output")


def by_coroutine(calls: Calls) -> TaskWrapper:
    async def function(make: Any) -> Any:
        return make.value

    return held(calls, function)


def by_coroutine_with_context(calls: Calls) -> TaskWrapper:
    async def function(ctx: Any) -> Any:
        return ctx.results["make"].value

    return held(calls, function)


def by_context(calls: Calls) -> TaskWrapper:
    return held(calls, lambda ctx: ctx.results["make"].value)


def held(calls: Calls, function: Callable[..., Any], **inputs: str) -> TaskWrapper:
    """A step ``use`` with this function; in the first process it only waits to be left."""
    step = calls.task("use")
    wait = step.task.func
    step.task.inputs = inputs
    step.task.func = function if type(calls) is Calls else lambda ctx, **_: wait(ctx)
    return step


def take_apart(given: Any) -> Any:
    return given // 2


def take_from_context(ctx: Any) -> Any:
    return ctx.results["make"].value


READERS = [by_name, by_input, by_part, by_position, by_rest, by_coroutine, by_coroutine_with_context, by_context]


@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_is_loaded_by_the_task_that_reads_it_once_it_has_started(
    reader: Callable[[Calls], TaskWrapper], seen: Seen
) -> None:
    def make(calls: Calls) -> Flow:
        value: Any = [Loaded(7)] if reader is by_rest else Loaded(7)
        return Flow("l") >> calls.task("make", lambda _: value) >> reader(calls)

    result, _ = finished_elsewhere(make, seen)
    assert (result.status, result.results["use"]) == ("COMPLETED", 7)
    assert seen.starts
    assert set(seen.starts) == {1}


@pytest.mark.parametrize("reader", [by_name, by_part, by_coroutine])
def test_a_result_that_cannot_be_loaded_is_computed_again(reader: Callable[[Calls], TaskWrapper], seen: Seen) -> None:
    def make(calls: Calls) -> Flow:
        value = Loaded(7 if type(calls) is Calls else -7)
        return Flow("l") >> options(calls.task("make", lambda _: value), recompute=True) >> reader(calls)

    result, calls = finished_elsewhere(make, seen)
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", 7, ["make"])
    assert set(seen.starts) == {1}


@pytest.mark.parametrize("function", [take_apart, take_from_context])
def test_a_pickle_is_loaded_in_the_process_of_the_task_that_reads_it(function: Callable[..., Any], seen: Seen) -> None:
    log, store = MemoryEventLog(), MemoryOutputStore()
    use = TaskWrapper(Task(func=function, name="use"))
    if function is take_apart:
        use.task.inputs = {"given": "$node.make.output.doubled"}
    flow = Flow("l") >> Calls().task("make", lambda _: Loaded(7)) >> wait("ok") >> options(use, isolation="process")
    with Engine(log=log, outputs=store) as engine:
        engine.start(flow, run_id=RUN)
        wait_until(lambda: any(isinstance(event.payload, NodeWaiting) for event in engine.events(RUN)))
        log = MemoryEventLog.load(log.dump())
    written = [*seen.threads]
    with Engine(log=log, outputs=store) as engine:
        engine.take_up(flow, RUN)
        engine.resume(RUN, "ok")
        result = engine.wait(RUN)
    assert (result.status, result.results["use"], seen.threads) == ("COMPLETED", 7, written)


def test_a_module_is_imported_by_the_task_that_reads_an_object_of_its_class(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(calls: Calls) -> Flow:
        return Flow("l") >> calls.task("make", lambda _: Color.RED) >> held(calls, lambda make: make.value)

    left, calls = Left(make), Calls()
    (tmp_path / "pyoco_colors.py").write_text(
        f"import enum\nfrom {__name__} import note\nnote()\nclass Color(enum.Enum):\n    RED = 7\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    here = msgspec.json.encode(f"{__name__}:Color")
    lines = msgspec.msgpack.decode(left.log.dump(), type=dict[str, list[Any]])
    assert any(here in line for line in lines[RUN])
    lines[RUN] = [line.replace(here, b'"pyoco_colors:Color"') for line in lines[RUN]]
    with Engine(log=MemoryEventLog.load(msgspec.msgpack.encode(lines)), outputs=left.store) as engine:
        seen.count_starts = lambda: starts_of(engine, "use") - 1
        result = engine.wait(engine.take_up(make(calls), RUN))
    assert (result.status, result.results["use"], seen.starts) == ("COMPLETED", 7, [1])


def test_a_result_that_cannot_be_loaded_fails_the_task_that_reads_it(seen: Seen) -> None:
    def make(calls: Calls) -> Flow:
        return Flow("l") >> calls.task("make", lambda _: Loaded(-7)) >> by_name(calls)

    result, _ = finished_elsewhere(make, seen)
    error = dict(result.state.nodes["use"].error or {})
    assert (result.status, error["code"], set(seen.starts)) == ("FAILED", "RESULT_LOST", {1})
    assert "it cannot be loaded here: RuntimeError: it cannot be read" in error["message"]


# --- Blocks and waits ------------------------------------------------------------------------------------------------


class Choice:
    """An object whose every method is code of the user."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> Any:  # type: ignore[explicit-override]
        note()
        return remake, (self.value,)

    @override
    def __eq__(self, other: object) -> bool:
        note()
        return self.value == other

    @override
    def __hash__(self) -> int:
        note()
        return hash(self.value)

    def __bool__(self) -> bool:
        note()
        return True

    @override
    def __repr__(self) -> str:
        note()
        return "a choice"

    def __getattr__(self, name: str) -> int:
        note()
        if name != "two":
            raise AttributeError(name)
        return 2


def remake(value: int) -> Choice:
    note()
    return Choice(value)


class Items(list[Any]):
    """A list whose methods are code of the user."""

    @override
    def __iter__(self) -> Iterator[Any]:
        note()
        return super().__iter__()

    @override
    def __len__(self) -> int:
        note()
        return super().__len__()


BLOCKS: dict[str, tuple[Callable[[], Any], Callable[[TaskWrapper], Any]]] = {
    "switch": (lambda: Choice(1), lambda use: switch("$ctx.results.make")[1 >> use]),
    "comparison": (
        lambda: Choice(1),
        lambda use: switch("$ctx.results.make == 1 and not not $ctx.results.make")[True >> use],
    ),
    "part": (lambda: Choice(1), lambda use: switch("$ctx.results.make.two")[2 >> use]),
    "inside": (lambda: {"a": [Choice(1)]}, lambda use: switch("1 in $ctx.results.make.a")[True >> use]),
    "for_each": (lambda: Items([1]), lambda use: use["$ctx.results.make as item"]),
    "items": (lambda: [Choice(1)], lambda use: use["$ctx.results.make as item"]),
    "until": (lambda: Choice(1), lambda use: use % ("$ctx.results.make", 3)),
    "large": (lambda: [1.5] * 20_000, lambda use: switch("2 in $ctx.results.make")[False >> use]),
}


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["here", "taken over"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_evaluates_in_a_thread_what_needs_code_of_users(kind: str, is_taken_over: bool, seen: Seen) -> None:
    value, block = BLOCKS[kind]
    calls = Calls()
    use = calls.task("use", 1)
    flow = Flow("b") >> calls.task("make", lambda _: value()) >> wait("ok") >> block(use) >> wait("then") >> block(use)
    result, events = parked_twice(flow, is_taken_over=is_taken_over)
    assert result.status == "COMPLETED", result.state
    assert calls.count("use") >= 2
    assert (kind == "large") is not bool(seen.threads)
    notes = [(name_of(event), event.payload.extra["evaluating"]) for event in events if is_evaluation(event)]
    assert notes[::2] == [(name, True) for name, _ in notes[::2]]
    assert notes[1::2] == [(name, False) for name, _ in notes[::2]]


def is_evaluation(event: Event) -> bool:
    return isinstance(event.payload, NodeProgressReported) and "evaluating" in event.payload.extra


def name_of(event: Event) -> str:
    return str(getattr(event.payload, "node_id", ""))


def parked_twice(flow: Flow, *, is_taken_over: bool) -> tuple[RunResult, list[Event]]:
    """Run a flow through its waits ``ok`` and ``then``, each in another process if ``is_taken_over``."""
    log, store = MemoryEventLog(), MemoryOutputStore()
    engine = Engine(log=log, outputs=store)
    try:
        engine.start(flow, run_id=RUN)
        for node_id in ("ok", "then"):
            wait_until(partial(waits_at, engine, node_id))
            if is_taken_over:
                log = MemoryEventLog.load(log.dump())
                engine.close()
                engine = Engine(log=log, outputs=store)
                engine.take_up(flow, RUN)
            engine.resume(RUN, node_id)
        return engine.wait(RUN), engine.events(RUN)
    finally:
        engine.close()


def waits_at(engine: Engine, node_id: str) -> bool:
    """Does the run wait there, or has it ended?"""
    ends = (NodeWaiting, ExecutionFailed)
    return any(isinstance(event.payload, ends) and name_of(event) in {node_id, ""} for event in engine.events(RUN))


@pytest.mark.parametrize("template", ["{{ results.make.two }}", "it is {{ results.make.two }}"])
def test_a_prompt_is_rendered_in_a_thread_if_that_needs_code_of_users(template: str, seen: Seen) -> None:
    calls = Calls()
    flow = (
        Flow("p")
        >> calls.task("make", lambda _: Choice(1))
        >> wait("ok", prompt={"question": template})
        >> wait("then")
    )
    result, events = parked_twice(flow, is_taken_over=True)
    (asked,) = [event.payload for event in events if isinstance(event.payload, NodeWaiting) and name_of(event) == "ok"]
    assert (result.status, asked.prompt) == (
        "COMPLETED",
        {"question": template.replace("{{ results.make.two }}", "2") if "it" in template else 2},
    )
    assert seen.threads


# --- Processes and exceptions ----------------------------------------------------------------------------------------


def return_loaded() -> Loaded:
    return Loaded(7)


def take_made(make: Any) -> int:
    return int(make.value)


class LoadedError(Exception):
    """To load it, and to show it, runs code of the user."""

    @override
    def __str__(self) -> str:
        note()
        return "no good"

    @override
    def __reduce__(self) -> Any:
        note()
        return make_error, ()


def make_error() -> LoadedError:
    note()
    return LoadedError()


def raise_loaded() -> None:
    raise LoadedError


def test_what_travels_to_a_process_and_back_is_pickled_and_loaded_in_threads(seen: Seen) -> None:
    make = options(TaskWrapper(Task(func=return_loaded, name="make")), isolation="process")
    use = options(TaskWrapper(Task(func=take_made, name="use")), isolation="process")
    look = options(TaskWrapper(Task(func=take_from_context, name="look")), isolation="process")
    with Engine() as engine:
        result = engine.run(Flow("p") >> make >> use >> look)
    assert (result.status, result.results["use"], result.results["look"]) == ("COMPLETED", 7, 7)
    assert len(seen.threads) >= 3


@pytest.mark.parametrize("isolation", ["thread", "process", "auto"])
def test_the_text_of_an_exception_is_read_in_a_thread(isolation: Any, seen: Seen) -> None:
    async def raise_here() -> None:
        raise LoadedError

    function = raise_here if isolation == "auto" else raise_loaded
    with Engine() as engine:
        result = engine.run(Flow("e") >> options(TaskWrapper(Task(func=function, name="work")), isolation=isolation))
    error = dict(result.state.nodes["work"].error or {})
    assert (error["code"], error["message"]) == ("LoadedError", "no good")
    assert seen.threads


class Leaving(SystemExit):
    @override
    def __str__(self) -> str:
        note()
        return "bye"


class Scratch(dict[str, Any]):
    """A dictionary whose methods are code of the user."""

    @override
    def setdefault(self, *_: Any) -> Any:
        note()

    @override
    def __setitem__(self, *_: Any) -> None:
        note()


def raise_leaving() -> None:
    raise Leaving


def test_an_exception_that_would_end_the_loop_is_not_asked_for_its_text_there(seen: Seen) -> None:
    with Engine() as engine:
        result = engine.run(Flow("e") >> TaskWrapper(Task(func=raise_leaving, name="work")))
    assert dict(result.state.nodes["work"].error or {})["code"] == "ControlFlowError"
    assert not seen.is_on_loop


def test_a_result_is_kept_in_a_dictionary_of_the_users_without_its_code(seen: Seen) -> None:
    calls = Calls()

    def prepare(ctx: Any) -> None:
        dict.__setitem__(ctx.scratch, "deep", Scratch())

    make = calls.task("make", 7)
    make.task.outputs = ["scratch.deep.inside"]
    with Engine() as engine:
        result = engine.run(
            Flow("s")
            >> calls.task("prepare", prepare)
            >> make
            >> calls.task("use", lambda ctx: ctx.scratch["deep"]["inside"])
        )
    assert (result.results["use"], seen.threads) == (7, [])


def test_tasks_that_fill_all_threads_do_not_delay_what_is_no_task(seen: Seen) -> None:
    over = threading.Event()

    async def make() -> Loaded:
        return Loaded(7)

    with Engine(executor=LocalExecutor(threads=1, processes=1)) as engine:
        full = engine.start(Flow("full") >> Calls().task("wait", lambda _: over.wait(20)))
        result = engine.run(Flow("m") >> TaskWrapper(Task(func=make, name="make")))
        assert (result.status, seen.threads[0].startswith("pyoco-task-value")) == ("COMPLETED", True)
        over.set()
        assert engine.wait(full).status == "COMPLETED"
