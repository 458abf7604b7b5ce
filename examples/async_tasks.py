"""Tasks that are coroutines run on the engine's event loop: many at once, without a thread for each."""

# mypy: disable-error-code="import-untyped, untyped-decorator"
import asyncio

from pyoco import Flow, task

from pyoco_server import Engine

cleaned_up: list[str] = []


@task
async def ask_left(delay_sec: float) -> int:
    """Wait for an answer from somewhere, as an HTTP client would."""
    await asyncio.sleep(delay_sec)
    return 20


@task
async def ask_right(delay_sec: float) -> int:
    """Meanwhile wait for another; a cancel reaches a coroutine where it waits, and ``finally`` runs as always."""
    try:
        await asyncio.sleep(delay_sec)
        return 22
    finally:
        cleaned_up.append("right")


@task
def add(ask_left: int, ask_right: int) -> int:
    """Plain functions and coroutines go together."""
    return ask_left + ask_right


flow = Flow("async-tasks") >> (ask_left & ask_right) >> add

if __name__ == "__main__":
    with Engine() as engine:
        print(engine.run(flow, {"delay_sec": 1.0}).results["add"])
