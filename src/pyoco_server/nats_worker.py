"""``PyocoNatsWorker`` of 0.5.1, over our worker: it handles one job whenever it is asked to."""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Self

import msgspec
from pyoco.core.models import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from typing_extensions import deprecated

from pyoco_server.bootstrap import flow_source, open_platform, open_worker, worker_options
from pyoco_server.config import NatsBackendConfig
from pyoco_server.settings import Settings
from pyoco_server.worker.worker import Worker

FlowResolver = Callable[[str], Flow]
"""Given a flow's name, returns it; KeyError if there is none of that name."""


@deprecated("PyocoNatsWorker is kept for programs written for 0.5.1: run pyoco-worker --flow-resolver MODULE:FUNCTION")
class PyocoNatsWorker:
    """A worker that handles one job at a time. Made by ``connect``; close it at the end."""

    def __init__(
        self,
        *,
        config: NatsBackendConfig | None = None,
        flow_resolver: FlowResolver,
        worker_id: str = "worker",
        tags: Sequence[str] | None = None,
    ) -> None:
        self._settings = Settings() if config is None else config.settings()
        self._resolver = flow_resolver
        named = tuple(dict.fromkeys(tag.strip() for tag in tags or () if tag.strip()))
        options = worker_options(self._settings, tags=named, worker_id=worker_id)
        self._options = msgspec.structs.replace(options, concurrency=1)
        self._open = contextlib.AsyncExitStack()
        self._worker: Worker | None = None

    @classmethod
    async def connect(
        cls,
        *,
        config: NatsBackendConfig | None = None,
        flow_resolver: FlowResolver,
        worker_id: str = "worker",
        tags: Sequence[str] | None = None,
    ) -> Self:
        """Connect to NATS and report to the registry; UnavailableError if NATS does not answer."""
        worker = cls(config=config, flow_resolver=flow_resolver, worker_id=worker_id, tags=tags)
        await worker._start()
        return worker

    async def _start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            name = f"pyoco-worker {self._options.worker_id}"
            platform = await stack.enter_async_context(open_platform(self._settings, name=name))
            file = inspect.getsourcefile(inspect.unwrap(self._resolver))
            flows = flow_source(self._settings, self._resolver, [file] if file else [])
            worker = await stack.enter_async_context(open_worker(platform, self._settings, self._options, flows))
            await stack.enter_async_context(worker.on_request())
            self._open, self._worker = stack.pop_all(), worker

    async def run_once(self, timeout: float = 1.0) -> str | None:  # noqa: ASYNC109 the name it had in 0.5.1
        """Handle one job if there is one within ``timeout`` seconds, and return its run's id; None if there is none."""
        if self._worker is None:
            raise RuntimeError("the worker is not connected: make it with PyocoNatsWorker.connect(...)")
        return await self._worker.handle_next(timeout)

    async def close(self) -> None:
        """Report that the worker has stopped, and disconnect; a second call does nothing."""
        self._worker = None
        await self._open.aclose()
