"""Cancelled and timed-out tasks are interrupted: in threads, coroutines and processes, and not in shielded sections."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]

from pyoco_server import Engine, TaskInterrupted, options
from pyoco_server.core import NodeStatus
from pyoco_server.core.payloads import NodeStarted
from pyoco_server.flows.errors import FlowError, FlowSyntaxError
from pyoco_server.flows.model import tasks_of
from pyoco_server.flows.yaml.document import read_flow_yaml
from tests.adapters.executor import tasks

LOCK = threading.Lock()


def step(function: Any) -> TaskWrapper:
    return TaskWrapper(Task(func=function, name=function.__name__))


@pytest.mark.parametrize("kind", ["sleeps", "computes", "locks"])
def test_many_cancels_reach_running_threads_and_every_call_was_started(kind: str) -> None:
    calls = list[str]()

    def work(ctx: Any) -> None:
        calls.append(ctx.run_context.run_id)
        while True:
            if kind == "sleeps":
                time.sleep(0.005)
            elif kind == "computes":
                sum(range(100))
            else:
                with LOCK:
                    sum(range(100))

    with Engine(cancel_grace_sec=600, threads=4) as engine:
        for _ in range(20):
            runs = [engine.start(Flow("endless") >> step(work)) for _ in range(4)]
            while not set(runs) <= set(calls):
                time.sleep(0.001)
            for run_id in runs:
                engine.cancel(run_id)
            for run_id in runs:
                result = engine.wait(run_id)
                assert (result.status, result.state.nodes["work"].status) == ("CANCELED", NodeStatus.CANCELED)
                payloads = [event.payload for event in engine.events(run_id) if isinstance(event.payload, NodeStarted)]
                started = [payload for payload in payloads if payload.node_id == "work"]
                assert calls.count(run_id) == len(started) == 1
    assert LOCK.acquire(timeout=5)
    LOCK.release()


def test_a_function_that_is_over_its_time_is_interrupted_and_reported_as_such() -> None:
    seen = threading.Event()

    def slow() -> None:
        try:
            while True:
                time.sleep(0.001)
        except TaskInterrupted:
            seen.set()
            raise

    with Engine() as engine:
        result = engine.run(Flow() >> TaskWrapper(Task(func=slow, name="slow", timeout_sec=0.05)))
        assert (result.status, (result.state.nodes["slow"].error or {})["code"]) == ("FAILED", "TIMEOUT")
        assert seen.wait(20)


def test_a_shielded_coroutine_is_cancelled_at_the_end_of_the_section() -> None:
    begun, go_on, steps = threading.Event(), threading.Event(), list[str]()

    async def careful(ctx: Any) -> None:
        with ctx.shield():
            begun.set()
            while not go_on.is_set():  # noqa: ASYNC110 another thread sets it
                await asyncio.sleep(0.001)
            steps.append("finished")
        await asyncio.sleep(3600)

    with Engine(cancel_grace_sec=600) as engine:
        run_id = engine.start(Flow() >> step(careful))
        assert begun.wait(20)
        engine.cancel(run_id)
        go_on.set()
        assert engine.wait(run_id).status == "CANCELED"
    assert steps == ["finished"]


def test_a_shielded_section_in_a_process_ends_before_the_process_does(tmp_path: Path) -> None:
    with Engine(cancel_grace_sec=600) as engine:
        flow = Flow() >> options(step(tasks.shielded), isolation="process")
        run_id = engine.start(flow, {"folder": str(tmp_path)})
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        engine.cancel(run_id)
        time.sleep(1.0)  # longer than a process is given without a shield
        assert not (tmp_path / "finished").exists()
        (tmp_path / "go_on").touch()
        assert engine.wait(run_id).status == "CANCELED"
    assert (tmp_path / "finished").exists()


def test_a_process_that_only_wants_the_flag_is_not_killed_before_the_grace_is_over(tmp_path: Path) -> None:
    with Engine(cancel_grace_sec=600) as engine:
        flow = Flow() >> options(step(tasks.flagged), isolation="process", interrupt="flag")
        run_id = engine.start(flow, {"folder": str(tmp_path)})
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        engine.cancel(run_id)
        assert engine.wait(run_id).state.nodes["flagged"].status is NodeStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_crashes": 0}, "max_crashes"),
        ({"max_crashes": True}, "max_crashes"),
        ({"interrupt": "never"}, "give one of 'raise', 'flag'"),
        ({"at_most_once": True, "retries": 1}, "at_most_once and retries=1 contradict"),
        ({"at_most_once": True, "recompute": True}, "at_most_once and recompute contradict"),
        ({"at_most_once": 1}, "give True or False"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, Any], problem: str) -> None:
    def work() -> None:
        raise AssertionError("never called")

    with pytest.raises(FlowError, match=problem):
        options(step(work), **given)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("max_crashes: 0", "'max_crashes' is zero"),
        ("interrupt: never", "cannot be 'never'"),
        ("at_most_once: 1", "must be true or false"),
        ("{at_most_once: true, retries: 2}", "both 'at_most_once' and 'retries'"),
    ],
)
def test_a_flow_yaml_with_such_options_is_refused(line: str, problem: str) -> None:
    entry = line if line.startswith("{") else f"{{ {line} }}"
    with pytest.raises(FlowSyntaxError, match=problem):
        read_flow_yaml(f"version: 1\nflow:\n  graph: work\ntasks:\n  work: {entry}\n", name="f")


def test_a_flow_yaml_may_have_all_these_options() -> None:
    text = "version: 1\nflow:\n  graph: a\ntasks:\n  a: { interrupt: flag, max_crashes: 5, at_most_once: true }\n"
    [task] = tasks_of(read_flow_yaml(text, name="f"))
    assert (task.interrupt, task.max_crashes, task.at_most_once) == ("flag", 5, True)
