"""Flows for the tests of the kit. Each call makes its own: pyoco writes edges onto the tasks themselves."""

# mypy: disable-error-code="import-untyped, untyped-decorator, no-untyped-def"

import asyncio
import threading
import time
from typing import Any

from pyoco import Flow, task
from pyoco.core.models import Task
from pyoco.dsl.syntax import TaskWrapper

from pyoco_server import Backoff, options, wait


def flaky(failures: int, *, retries: int, backoff_sec: float) -> Flow:
    """A task that fails so many times."""
    left = [failures]

    @task
    def fetch() -> str:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("no answer")
        return "data"

    backoff = Backoff(delay_sec=backoff_sec, cap_sec=backoff_sec)
    return Flow("flaky") >> options(fetch, retries=retries, backoff=backoff)


def approval(deadline_sec: float | None = None, **default: Any) -> Flow:
    """A draft, an approval, and what follows it."""

    @task
    def draft() -> str:
        return "text"

    @task
    def publish(draft: str, approval: str) -> str:
        return f"{draft} {approval}"

    return Flow("approval") >> draft >> wait("approval", deadline_sec=deadline_sec, **default) >> publish


def stubborn(released: threading.Event) -> Flow:
    """A task that runs until the event is set, and ignores requests to stop."""

    @task
    def work() -> None:
        released.wait(30)

    return Flow("stubborn") >> work


def nap(real_sec: float) -> str:
    """Really take a while; at the top of a module, so that another process can find it."""
    time.sleep(real_sec)
    return "done"


async def async_nap(real_sec: float) -> str:
    """The same as a coroutine."""
    await asyncio.sleep(real_sec)
    return "done"


def beside_a_wait(where: str, *, deadline_sec: float) -> Flow:
    """A task that really takes a while ("thread", "async" or "process"), beside a wait with a deadline."""
    work = TaskWrapper(Task(func=async_nap if where == "async" else nap, name="work"))
    if where == "process":
        options(work, isolation="process")
    flow = Flow("beside")
    for step in (work, wait("answer", deadline_sec=deadline_sec, default="none")):
        flow.add_task(step.task)
    return flow
