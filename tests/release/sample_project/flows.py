"""Flows, with everything the package gives to those who write them."""

# pyoco ships no type information: what is switched off here is about its decorator, nothing else.
# mypy: disable-error-code="import-untyped, untyped-decorator"
# pyright: reportUnknownVariableType=false
import asyncio

from pyoco import Flow, task

from pyoco_server import Backoff, Isolation, TaskContext, options, wait


@task
def fetch(ctx: TaskContext, month: str) -> dict[str, int]:
    """Report how far it is, and stop when it is asked to."""
    for page in range(10):
        if ctx.is_cancelled:
            break
        ctx.progress(page * 10, f"{month}, page {page}")
    return {"rows": 1204}


@task
async def publish(fetch: dict[str, int], approval: dict[str, str]) -> str:
    """Publish the report."""
    await asyncio.sleep(0)
    return f"{fetch['rows']} rows, approved by {approval['by']}"


patient = options(fetch, retries=3, backoff=Backoff(delay_sec=1.0), timeout_sec=60.0, isolation=Isolation.PROCESS)
approval = wait("approval", prompt={"question": "Publish?"}, deadline_sec=3600.0, default={"by": "timeout"})
flow = Flow("report") >> patient >> approval >> publish
