"""One attempt by itself: it reports progress while it lasts, and none when it is over."""

import asyncio
from pathlib import Path
from typing import Any

from pyoco_server.adapters.executor.local import LocalExecutor
from pyoco_server.app.runtime.attempt import Succeeded, TaskCall
from pyoco_server.app.runtime.context import Place, RunScope
from pyoco_server.flows.model import TaskSpec


def test_an_attempt_that_is_over_reports_no_progress(tmp_path: Path) -> None:
    async def attempt() -> None:
        reports: list[str | None] = []
        context = RunScope("run", "flow", {}, str(tmp_path)).context(Place())
        context.report_to(lambda _, message: reports.append(message))

        async def talkative(ctx: Any) -> str:
            ctx.progress(50, "half")
            return "done"

        executor = LocalExecutor(threads=1, processes=1)
        try:
            assert await TaskCall(TaskSpec(name="task"), talkative, context, executor).run() == Succeeded("done")
        finally:
            await executor.close()
        context.progress(60, "an abandoned task continues")
        assert reports == ["half"]

    asyncio.run(attempt())
