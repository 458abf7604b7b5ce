"""Flows that leave runs in every state a dashboard can meet."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import asyncio
from collections.abc import Callable
from typing import Any

from pyoco import Flow
from pyoco.core.models import Task
from pyoco.dsl.syntax import Parallel, TaskWrapper

from pyoco_server import options, wait

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"


def _task(name: str, body: Callable[..., Any]) -> TaskWrapper:
    return TaskWrapper(Task(func=body, name=name))


async def _quick(ctx: Any) -> dict[str, str]:  # noqa: ARG001 how pyoco calls it
    return {"said": MARKUP}


async def _long(ctx: Any) -> None:
    ctx.progress(40, "two of five")
    await asyncio.sleep(300)


def _boom(ctx: Any) -> None:  # noqa: ARG001 how pyoco calls it
    raise ValueError(MARKUP)


_tries = iter(range(1, 1_000))


def _flaky(ctx: Any) -> str:  # noqa: ARG001 how pyoco calls it
    if next(_tries) % 2:
        raise ConnectionError("not the first time")
    return "there you are"


def _take(ctx: Any) -> Any:
    return ctx.results["approval"]


def _odd(ctx: Any) -> int:
    if ctx.loop.index == 3:
        raise ValueError("three is too much")
    return int(ctx.loop.index)


hello = Flow("hello") >> _task("greet", _quick) >> _task("end", _quick)
diamond = (
    Flow("diamond")
    >> _task("begin", _quick)
    >> Parallel([_task("left", _quick), _task("right", _quick)])
    >> _task("finish", _quick)
)
long = Flow("long") >> _task("prepare", _quick) >> _task("sleeps", _long) >> _task("after", _quick)
boom = Flow("boom") >> _task("fails", _boom) >> _task("never", _quick)
retried = Flow("retried") >> options(_task("flaky", _flaky), retries=2, backoff=0.1)
ask = (
    Flow("ask")
    >> wait("approval", prompt={"question": f"Ship it? {MARKUP}", "options": ["yes", {"value": 7, "label": "Seven"}]})
    >> _task("take", _take)
)
form = (
    Flow("form")
    >> wait(
        "approval",
        prompt={
            "text": "How much?",
            "schema": {
                "type": "object",
                "required": ["amount"],
                "properties": {"amount": {"type": "integer", "title": "Amount"}, "notify": {"type": "boolean"}},
            },
        },
    )
    >> _task("take", _take)
)
checked = Flow("checked") >> wait(
    "approval", prompt={"text": "Who?", "schema": {"type": "string", "title": "By", "pattern": "^[a-z]+$"}}
)
items = Flow("items") >> options(_task("odd", _odd), fail_policy="isolate")[5]
rounds = Flow("rounds") >> _task("load", _quick) >> (_task("train", _quick) >> _task("score", _quick))[3]
wide = Flow("wide") >> _task("split", _quick) >> Parallel([_task(f"part_{n:03d}", _quick) for n in range(496)])
