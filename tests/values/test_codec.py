"""Values keep value and type through the log, stored objects, child processes and another worker."""

import asyncio
import pickle
import threading
from collections import OrderedDict
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import Engine, options, wait
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runtime.outputs import Outputs, ValueOwner
from pyoco_server.core.json_codec import DecodeError
from pyoco_server.values.codec import carried, from_tagged, received, to_tagged
from pyoco_server.values.errors import NotTaggableError
from pyoco_server.values.lazy import PickledValue, value_of
from tests.app.runtime.flows import Calls, wait_until
from tests.app.runtime.leaving import Left
from tests.values.samples import EXAMPLES, Closed, Plain, Point, same, values

KEY = b"k" * 32
OWNER = ValueOwner("run", "node", "task")


async def stored_and_read(value: Any, inline_max_bytes: int) -> Any:
    """The value as another worker has it, whose log came as JSON."""
    store, names = MemoryOutputStore(), iter(f"run/{number}" for number in range(9))
    output = await Outputs(store, inline_max_bytes=inline_max_bytes, key=KEY).written(OWNER, lambda: next(names), value)
    line = msgspec.json.decode(msgspec.json.encode(output))
    assert line == output
    return await Outputs(store, key=KEY).read(OWNER, line)


@given(value=values)
@settings(max_examples=400, deadline=None)
@pytest.mark.parametrize("inline_max_bytes", [65_536, 0])
def test_a_value_comes_back_with_its_type(inline_max_bytes: int, value: Any) -> None:
    found = asyncio.run(stored_and_read(value, inline_max_bytes))
    assert same(value_of(found), value)


@given(value=values)
@settings(max_examples=200, deadline=None)
def test_what_has_no_pickle_in_it_is_readable_in_the_log(value: Any) -> None:
    try:
        tagged = to_tagged(value)
    except NotTaggableError:
        return
    assert same(from_tagged(msgspec.json.decode(msgspec.json.encode(tagged))), value)


@given(value=values)
@settings(max_examples=200, deadline=None)
def test_what_may_travel_as_a_parameter_arrives_as_it_was(value: Any) -> None:
    try:
        fields = carried("input", value)
    except DecodeError:
        return
    found = received("input", msgspec.json.decode(msgspec.json.encode(fields)))
    if fields.get("input_kind") == "tagged" and not _is_made_plain(value):
        assert same(found, value)


def test_a_named_tuple_in_a_set_or_as_a_key_travels_as_a_tuple() -> None:
    for value, expected in [({Point(1, (2,))}, {(1, (2,))}), ({(Point(1, 2),): 3}, {((1, 2),): 3})]:
        assert received("input", carried("input", value)) == expected


def _is_made_plain(value: Any) -> bool:
    """Has it a part that parameters were always given as what it derives from: an enum of texts, a mapping?"""
    try:
        to_tagged(value, classes=False)
    except NotTaggableError:
        return True
    return False


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_a_value_reaches_the_task_of_another_worker(value: Any) -> None:
    def make(calls: Calls) -> Flow:
        return (
            Flow("v")
            >> calls.task("make", lambda _: value)
            >> calls.task("use", lambda ctx: same(ctx.results["make"], value))
        )

    result, calls = Left(make).finish_elsewhere()
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["use"])


OF_BUILT_IN_TYPES = [value for value in EXAMPLES if type(value).__module__ != "tests.values.samples"]


@pytest.mark.parametrize("value", OF_BUILT_IN_TYPES, ids=lambda value: type(value).__name__)
def test_answers_and_parameters_reach_tasks(value: Any) -> None:
    expected = received("input", carried("input", value))
    assert same(expected, value) or isinstance(value, OrderedDict)
    with Engine() as engine:
        seen: list[Any] = []
        take = TaskWrapper(Task(func=lambda ctx, given: seen.extend([given, ctx.results["ask"]]), name="take"))
        run_id = engine.start(Flow("p") >> wait("ask") >> take, {"given": value})
        wait_until(lambda: (node := engine.get(run_id).nodes.get("ask")) is not None and node.status == "WAITING")
        engine.resume(run_id, "ask", value)
        assert engine.wait(run_id).status == "COMPLETED"
    assert same(seen, [expected, expected])


def _make(value: Any) -> Any:
    return value


def _use(ctx: Any, given: Any) -> Any:
    return ctx.results["give"], given, ctx.params["given"]


def test_values_reach_child_processes_and_come_back() -> None:
    mixed = {1: [value for value in EXAMPLES if not isinstance(value, Plain)], "plain": Plain((1,))}
    give = TaskWrapper(Task(func=_make, name="give", inputs={"value": mixed}))
    use = options(TaskWrapper(Task(func=_use, name="use")), isolation="process")
    with Engine(processes=1) as engine:
        result = engine.run(Flow("c") >> give >> use, {"given": (1, {2})})
    assert result.status == "COMPLETED", result.state.nodes["use"].error
    assert same(result.results["use"], (mixed, (1, {2}), (1, {2})))


def test_deferred_values_keep_their_meaning_in_a_child_process() -> None:
    def make(calls: Calls) -> Flow:
        lost, pickled = calls.task("lost", lambda _: threading.Lock()), calls.task("give", lambda _: Plain((1,)))
        in_child = options(TaskWrapper(Task(func=_use, name="child")), isolation="process", fail_policy="isolate")
        in_child.task.inputs = {"given": 1}
        needing = options(TaskWrapper(Task(func=_needing, name="needing")), isolation="process", fail_policy="isolate")
        return Flow("d") >> lost >> pickled >> calls.task("use") >> in_child >> needing

    left = Left(make, {"given": (1,)})
    result, calls = left.finish_elsewhere()
    assert same(result.results["child"], (Plain((1,)), 1, (1,)))
    error = result.state.nodes["needing"].error or {}
    assert (error["code"], calls.names) == ("RESULT_LOST", ["use"])
    assert "the result of task 'lost' is lost: it cannot be stored" in error["message"]


def _needing(ctx: Any) -> Any:
    return ctx.results["lost"]


def test_a_pickle_is_loaded_only_when_a_task_reads_it() -> None:
    Watched.loads = 0
    left = Left(lambda calls: Flow("w") >> calls.task("make", lambda _: Watched()) >> calls.task("use"))
    result, _ = left.finish_elsewhere()
    assert (result.status, Watched.loads) == ("COMPLETED", 0)
    assert type(result.results["make"]) is Watched
    assert result.results["make"] is result.results["make"]
    assert Watched.loads == 1


class Watched:
    """Counts how often it is loaded."""

    loads = 0

    def __setstate__(self, state: Any) -> None:
        Watched.loads += 1

    @override
    def __getstate__(self) -> dict[str, int]:
        return {"x": 1}


def test_constructors_do_not_run_again() -> None:
    assert Closed(1).doubled == 1
    assert from_tagged(to_tagged(Closed(1))).doubled == 1


def test_what_cannot_be_loaded_is_lost_to_those_who_read_it() -> None:
    data = pickle.dumps(Plain(1)).replace(b"Plain", b"Plaim")
    with pytest.raises(
        Exception, match="the result of task 'task' \\(node 'node'\\) is lost: it cannot be loaded here"
    ):
        PickledValue(data, OWNER.lost("")).get()
