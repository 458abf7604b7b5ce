"""Random values of every kind reach child processes, other workers and other Python processes as they were."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import Engine, options
from pyoco_server.adapters.memory.registries import MemoryOutputStore
from pyoco_server.app.runtime.outputs import Outputs, ValueOwner
from pyoco_server.values.lazy import value_of
from tests.app.runtime.flows import Calls
from tests.app.runtime.leaving import Left
from tests.values.samples import same, values

KEY = b"k" * 32
OWNER = ValueOwner("run", "node", "task")
ROOT = Path(__file__).parents[2]


def _give(value: list[Any]) -> list[Any]:
    return value


def _use(ctx: Any, given: list[Any]) -> Any:
    return ctx.results["give"], given


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(processes=1) as engine:
        yield engine


@given(mixed=st.lists(values, max_size=8))
@settings(max_examples=30, deadline=None)
def test_any_values_reach_a_child_process_and_come_back(engine: Engine, mixed: list[Any]) -> None:
    give = TaskWrapper(Task(func=_give, name="give", inputs={"value": mixed}))
    use = options(TaskWrapper(Task(func=_use, name="use", inputs={"given": mixed})), isolation="process")
    result = engine.run(Flow("child") >> give >> use)
    assert result.status == "COMPLETED", result.state.nodes["use"].error
    assert same(result.results["use"], (mixed, mixed))


@given(mixed=st.lists(values, max_size=8))
@settings(max_examples=30, deadline=None)
def test_any_values_reach_the_task_of_another_worker(mixed: list[Any]) -> None:
    def make(calls: Calls) -> Flow:
        use = calls.task("use", lambda ctx: same(ctx.results["make"], mixed))
        return Flow("v") >> calls.task("make", lambda _: mixed) >> use

    result, calls = Left(make).finish_elsewhere()
    assert (result.status, result.results["use"], calls.names) == ("COMPLETED", True, ["use"])


async def written(store: MemoryOutputStore, mixed: list[Any]) -> list[Any]:
    """What the log keeps of these values: every other one is stored beside it, however small."""
    names = (f"run/{number}" for number in range(len(mixed)))
    by_size = [Outputs(store, inline_max_bytes=most, key=KEY) for most in (65_536, 0)]
    return [await by_size[at % 2].written(OWNER, lambda: next(names), value) for at, value in enumerate(mixed)]


async def read(store: MemoryOutputStore, lines: list[Any]) -> list[Any]:
    """The values that these outputs stand for."""
    return [value_of(await Outputs(store, key=KEY).read(OWNER, line)) for line in lines]


_READER = """
import asyncio, pickle, sys
from tests.values import test_travelling
from tests.values.samples import same
store = test_travelling.MemoryOutputStore()
lines, store._kept, expected = pickle.loads(sys.stdin.buffer.read())
found = asyncio.run(test_travelling.read(store, test_travelling.msgspec.json.decode(lines)))
sys.exit(0 if same(found, expected) else repr((found, expected)))
"""


@given(mixed=st.lists(values, min_size=20, max_size=40))
@settings(max_examples=5, deadline=None)
def test_any_values_that_one_process_has_written_are_read_by_another(mixed: list[Any]) -> None:
    store = MemoryOutputStore()
    lines = msgspec.json.encode(asyncio.run(written(store, mixed)))
    given_to_it = pickle.dumps((lines, store._kept, mixed))
    reader = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-c", _READER], input=given_to_it, capture_output=True, cwd=ROOT, check=False
    )
    assert reader.returncode == 0, reader.stderr.decode()
