"""One attempt by itself: who is told what while it lasts, and who is not when it is over."""

import asyncio
from pathlib import Path
from typing import Any

from pyoco_server.adapters.workshop import LocalWorkshop
from pyoco_server.app.attempts import Attempt, Succeeded
from pyoco_server.app.context import Place, RunScope
from pyoco_server.flows.model import TaskSpec


def test_an_attempt_that_is_over_is_not_heard_any_more(tmp_path: Path) -> None:
    async def attempt() -> None:
        heard: list[str | None] = []
        context = RunScope("run", "flow", {}, str(tmp_path)).context(Place())
        context.report_to(lambda _, message: heard.append(message))

        async def talkative(ctx: Any) -> str:
            ctx.progress(50, "half")
            return "done"

        workshop = LocalWorkshop(threads=1, processes=1)
        try:
            assert await Attempt(TaskSpec(name="task"), talkative, context, workshop).run() == Succeeded("done")
        finally:
            await workshop.close()
        context.progress(60, "one that was given up on talks on")
        assert heard == ["half"]

    asyncio.run(attempt())
