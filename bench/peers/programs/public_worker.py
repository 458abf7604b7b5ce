"""The public pyoco-server's worker with its one fault mended that stops it on Python 3.11.

It cancels its heartbeat once and waits for it. On 3.11 a cancel that comes at the moment an answer of NATS arrives is
lost, and the worker waits for ever. Here it is repeated until it has its effect.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from pyoco_server import worker_cli  # the public one, in an environment of its own
from pyoco_server.worker import PyocoNatsWorker  # type: ignore[attr-defined]


def _delivered(loop: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def until_cancelled(*args: Any) -> None:  # noqa: ANN401 whatever it is given
        inner = asyncio.ensure_future(loop(*args))
        try:
            await asyncio.wait([inner])
        finally:
            while not inner.done():
                inner.cancel()
                await asyncio.sleep(0)

    return until_cancelled


for _name in ("_heartbeat_loop", "_ack_progress_loop"):
    setattr(PyocoNatsWorker, _name, _delivered(getattr(PyocoNatsWorker, _name)))

if __name__ == "__main__":
    sys.exit(worker_cli.main())
