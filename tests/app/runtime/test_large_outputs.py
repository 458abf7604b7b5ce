"""Large results are kept beside the log, and what the log holds never changes."""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import override

from pyoco_server import Engine
from pyoco_server.adapters.memory.event_log import MemoryEventLog
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.runtime.outputs import INLINE_MAX_BYTES, STORED, TEXT_ONLY, VALUE, Outputs, ValueOwner
from tests.app.runtime.flows import Calls
from tests.app.runtime.leaving import Left

LARGE = "x" * (INLINE_MAX_BYTES + 1)


def flow_with(value: Any) -> Callable[[Calls], Flow]:
    """Makes the value and uses it."""

    def make(calls: Calls) -> Flow:
        use = calls.task("use", lambda ctx: ctx.results["make"] == value)
        return Flow("large") >> calls.task("make", lambda _: value) >> use

    return make


@pytest.mark.parametrize(
    ("size", "kind"), [(INLINE_MAX_BYTES - 2, VALUE), (INLINE_MAX_BYTES - 1, STORED), (1_000_000, STORED)]
)
def test_a_value_is_stored_beside_the_log_if_it_is_large(size: int, kind: str) -> None:
    store, value = MemoryOutputStore(), "x" * size  # two more bytes as JSON
    with Engine(outputs=store) as engine:
        result = engine.run(Flow("l") >> Calls().task("make", lambda _: value))
        output = engine.get(result.run_id).nodes["make"].output or {}
    assert [*output] == [kind]
    assert result.results["make"] == value
    assert len(store._kept) == (kind == STORED)
    if kind == STORED:
        encoded = asyncio.run(store.get(output[STORED]["name"])) or b""
        assert output[STORED]["sha256"] == hashlib.sha256(encoded).hexdigest()
        assert output[STORED]["bytes"] == len(encoded) == size + 2
        assert output[STORED]["name"].startswith(result.run_id)


def test_another_process_fetches_stored_outputs() -> None:
    result, calls = Left(flow_with({"text": LARGE, "list": [1, None, 2.5]})).finish_elsewhere()
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["use"])


def test_the_results_of_a_run_that_ended_long_ago_are_fetched() -> None:
    log, store = MemoryEventLog(), MemoryOutputStore()
    with Engine(log=log, outputs=store) as engine:
        run_id = engine.run(Flow("l") >> Calls().task("make", LARGE)).run_id
    with Engine(log=MemoryEventLog.load(log.dump()), outputs=store) as engine:
        assert engine.wait(run_id).results["make"] == LARGE


@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "other"])
def test_a_task_that_needs_a_damaged_output_fails_and_says_so(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    left = Left(flow_with(LARGE))
    (name,) = left.store._kept
    kept = left.store._kept.pop(name)
    if damage != "gone":
        left.store._kept[name] = {"cut": kept[:-1], "empty": b"", "other": kept.replace(b"x", b"y")}[damage]
    with caplog.at_level(logging.WARNING):
        result, calls = left.finish_elsewhere()
    error = result.state.nodes["use"].error or {}
    assert (result.status, error["code"], calls.names) == ("FAILED", "RESULT_LOST", ["use"])
    assert (
        f"the result of task 'make' is lost: the stored output '{name.decode()}' is missing or damaged."
        in error["message"]
    )
    assert [record.__dict__["action"] for record in caplog.records] == ["output_lost"]


class FullStore(MemoryOutputStore):
    """Fails every write."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    @override
    async def put(self, name: str, data: bytes) -> None:
        raise self.error


def test_a_failing_store_fails_the_task_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls()
    with Engine(outputs=FullStore(OSError("disk full"))) as engine:
        result = engine.run(Flow("f") >> calls.task("make", LARGE) >> calls.task("after"))
    assert (result.status, calls.names) == ("FAILED", ["make"])
    error = result.state.nodes["make"].error or {}
    assert error["code"] == "INTERNAL_ERROR", "it is not the task that failed"
    assert error["message"].endswith("not the function of its task: OSError: disk full")
    logged = [(record.__dict__["action"], record.__dict__["msg_id"]) for record in caplog.records]
    assert logged == [("node_crashed", "MSG-PYOCO-0007")]


def test_a_store_that_does_not_answer_is_not_the_tasks_failure() -> None:
    log, calls = MemoryEventLog(), Calls()
    with Engine(log=log, outputs=FullStore(UnavailableError("no answer"))) as engine:
        run_id = engine.start(Flow("u") >> Calls().task("make", LARGE))
        with pytest.raises(UnavailableError):
            engine.wait(run_id)
        assert engine.get(run_id).status == "ACTIVE"
    with Engine(log=MemoryEventLog.load(log.dump())) as engine:
        result = engine.wait(engine.take_up(Flow("u") >> calls.task("make", LARGE), run_id))
    assert (result.status, result.results["make"], result.state.nodes["make"].attempt) == ("COMPLETED", LARGE, 2)


# --- The log's copy is its own ---------------------------------------------------------------------------------------


def test_a_task_that_changes_anothers_result_does_not_change_the_log() -> None:
    with Engine() as engine:
        grow = Calls().task("grow", lambda ctx: ctx.results["make"].append(2))
        result = engine.run(Flow("m") >> Calls().task("make", lambda _: [1]) >> grow)
        assert result.state == engine.get(result.run_id)
        assert result.state.nodes["make"].output == {VALUE: [1]}
        assert result.results["make"] == [1, 2]


def test_a_task_that_changes_a_result_read_from_the_log_does_not_change_the_log() -> None:
    def make(calls: Calls) -> Flow:
        grow = calls.task("use", lambda ctx: ctx.results["make"].append(2))
        return Flow("m") >> calls.task("make", lambda _: [1]) >> grow

    result, _ = Left(make).finish_elsewhere()
    assert result.state.nodes["make"].output == {VALUE: [1]}
    assert result.results["make"] == [1, 2]


class Text(str):
    """A subclass of str."""

    __slots__ = ()


NOT_JSON = [(1, 2), {1}, {1: "a"}, {1: "a", "1": "b"}, float("nan"), b"x", [(1,)], "\ud800"]


async def written(value: Any) -> dict[str, Any]:
    outputs = Outputs(MemoryOutputStore(), key=b"k" * 32)
    return await outputs.written(ValueOwner("run", "node", "task"), lambda: "run/1", value)


@pytest.mark.parametrize("value", NOT_JSON, ids=repr)
def test_values_that_json_cannot_represent_are_tagged(value: Any) -> None:
    kept = asyncio.run(written(value))
    assert (sorted(kept), kept["output_kind"]) == (["output_kind", VALUE], "tagged")


@pytest.mark.parametrize("value", [Text("x"), {Text("k"): 1}, Text], ids=repr)
def test_values_without_a_tag_are_pickled(value: Any) -> None:
    kept = asyncio.run(written(value))
    assert (sorted(kept), kept["output_kind"]) == (["output_kind", TEXT_ONLY, STORED], "pickle")


def test_values_that_cannot_be_pickled_are_lost() -> None:
    kept = asyncio.run(written(threading.Lock()))
    assert kept["output_kind"] == "lost"
    assert kept["reason"] == "it cannot be stored: TypeError: cannot pickle '_thread.lock' object"


@pytest.mark.parametrize("value", [None, True, 1, 2**70, -0.0, 1.0, "ü", [], {}, {"a": [{"b": None}]}])
def test_values_that_survive_json_are_stored_as_json(value: Any) -> None:
    kept = asyncio.run(written(value))
    assert kept.keys() == {VALUE}
    assert (kept[VALUE], type(kept[VALUE])) == (value, type(value))


def test_a_value_nested_too_deep_for_json_is_no_trouble() -> None:
    for depth in (300, 600, 900, 5_000):
        value: list[Any] = []
        for _ in range(depth):
            value = [value]
        with Engine() as engine:
            result = engine.run(Flow("d") >> Calls().task("deep", lambda _, value=value: value))
        assert (depth, result.status) == (depth, "COMPLETED")
