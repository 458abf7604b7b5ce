"""Texts of any length that code of users writes: shortened in the log, never an internal error."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper, switch  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server import options, wait
from pyoco_server.flows.errors import FlowError
from tests.adapters.real_nats import NatsServer
from tests.gateway.stand import a_worker, ended, settings_for, submit, unique

LONG = 20_000_000


def raise_long() -> None:
    raise ValueError("begin" + "x" * LONG + "end")


def raise_many() -> None:
    errors = [ValueError("\x00" * 100_000) for _ in range(50)]
    raise ExceptionGroup("many", errors) from errors[0]


def raise_noted() -> None:
    error = ValueError("begin")
    for _ in range(100):
        error.add_note("y" * 100_000)
    raise error


def raise_named() -> None:
    raise type("E" * 1_000_000, (Exception,), {})("begin")


def report(ctx: Any) -> int:
    ctx.progress(50, "begin" + "x" * LONG + "end")
    return 1


class LongShown:
    """Its text is long, and it cannot be stored."""

    @override
    def __repr__(self) -> str:
        return "begin" + "x" * LONG + "end"

    def __getstate__(self) -> object:  # type: ignore[explicit-override]
        raise ValueError("x" * LONG)


def return_long() -> LongShown:
    return LongShown()


class LongCompared:
    @override
    def __eq__(self, other: object) -> bool:
        raise ValueError("begin" + "x" * LONG + "end")

    __hash__ = object.__hash__


def task(function: Callable[..., Any], name: str = "work") -> TaskWrapper:
    return TaskWrapper(Task(func=function, name=name))


def nested(step: Any, depth: int) -> Any:
    for _ in range(depth):
        step = step[1]
    return step


FLOWS: dict[str, Callable[[], Flow]] = {
    "long": lambda: Flow("long") >> task(raise_long),
    "retried": lambda: Flow("retried") >> options(task(raise_long), retries=2),
    "nested": lambda: Flow("nested") >> nested(task(raise_many), 8),
    "noted": lambda: Flow("noted") >> task(raise_noted),
    "named": lambda: Flow("named") >> task(raise_named),
    "process": lambda: Flow("process") >> options(task(raise_long), isolation="process"),
    "block": lambda: Flow("block") >> task(LongCompared, "make") >> switch("$ctx.results.make")[1 >> task(raise_long)],
}


def load(name: str) -> Flow:
    if name == "unloadable":
        raise_long()
    return FLOWS[name]() if name in FLOWS else OTHERS[name]()


OTHERS: dict[str, Callable[[], Flow]] = {
    "rounds": lambda: Flow("rounds") >> options(task(raise_many), fail_policy="isolate")[9],
    "progress": lambda: Flow("progress") >> task(report),
    "shown": lambda: Flow("shown") >> task(return_long),
}


async def ends_of(nats: NatsServer, folder: Path, client: httpx.Client) -> dict[str, tuple[dict[str, Any], str]]:
    """How a run of each flow ended, and its events."""
    tag, runs = unique("texts"), dict[str, str]()
    async with a_worker(settings_for(nats.url, folder), tag, flows=load):
        for name in (*FLOWS, *OTHERS, "unloadable"):
            runs[name] = await asyncio.to_thread(submit, client, name, tag=tag)
        found = [await asyncio.to_thread(ended, client, run_id) for run_id in runs.values()]
    return {
        name: (end, client.get(f"/executions/{run_id}/events").text)  # noqa: ASYNC212 nothing else runs here
        for (name, run_id), end in zip(runs.items(), found, strict=True)
    }


def test_long_texts_of_users_are_shortened(nats: NatsServer, tmp_path: Path, client: httpx.Client) -> None:
    ends = asyncio.run(ends_of(nats, tmp_path, client))
    for name, (end, events) in ends.items():
        assert end["status"] == ("COMPLETED" if name in OTHERS else "FAILED"), (name, end)
        assert "INTERNAL_ERROR" not in events, name
        assert "TooLargeError" not in events, name
        assert len(events) < 2_000_000, name
    for name in ("long", "retried", "process", "block", "unloadable"):
        error = ends[name][0]["error"]
        assert "begin" in error, name
        assert "characters left out…] xxx" in error, name
        assert error.endswith("end"), name
    assert "begin" in ends["progress"][1]
    assert "characters left out" in ends["progress"][1]
    record = ends["shown"][0]["task_records"]["work"]
    assert (record["output_kind"], len(str(record)) < 10_000) == ("lost", True)


def test_a_prompt_or_a_default_that_is_too_large_is_refused_where_it_is_written() -> None:
    with pytest.raises(FlowError, match=r"wait\('ok'\): prompt: it has more than 65536 bytes"):
        wait("ok", prompt="x" * 70_000)
    with pytest.raises(FlowError, match=r"wait\('ok'\): default: it has more than 65536 bytes"):
        wait("ok", deadline_sec=1, default="x" * 70_000)
