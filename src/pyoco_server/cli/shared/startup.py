"""What long-running commands do at their start: set up logging and garbage collection, and wait for NATS."""

import asyncio
import gc
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, TypeVar

from pyoco_server.adapters.jetstream.durability.connection import NotLetInError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.logs import configure_logging, log_error
from pyoco_server.settings import Loaded

T = TypeVar("T")
AGAIN_SEC: Final = 0.5
"""The pause between two attempts to connect."""
_log = logging.getLogger(__name__)


def begin_logging(loaded: Loaded, service: str) -> None:
    """Configure logging by the settings, and log the warnings about the settings."""
    logs = loaded.settings.logs
    configure_logging(
        service=service,
        level=logs.level,
        format=logs.format,
        utc=logs.utc,
        include_traceback=logs.include_traceback,
    )
    for warning in loaded.warnings:
        if warning.err_id is not None:
            log_error(_log, warning.err_id, action="settings_doubtful", level=logging.WARNING, reason=warning.text)
        else:
            _log.warning("%s", warning.text, extra={"action": "settings_doubtful"})


def collect_less_often() -> None:
    """Collect garbage less often, and never what was loaded at the start.

    For processes that create many short-lived objects and keep few: collections took a seventh of a worker's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def opened(
    stack: AsyncExitStack, open_it: Callable[[], AbstractAsyncContextManager[T]], *, is_logged: bool = False
) -> T:
    """Enter a context that needs NATS as soon as NATS answers; NotLetInError at once if it refuses the credentials.

    The wait is logged once, unless it ``is_logged`` already. The stack exits the context.
    """
    while True:
        try:
            return await stack.enter_async_context(open_it())
        except NotLetInError:
            raise
        except UnavailableError as error:
            if not is_logged:
                log_nats_awaited(error)
                is_logged = True
            await asyncio.sleep(AGAIN_SEC)


def log_nats_awaited(error: UnavailableError) -> None:
    """Log that NATS does not answer, and that the program waits for it."""
    log_error(_log, "ERR-PYOCO-0003", action="nats_awaited", exc=error, level=logging.WARNING, one_line=True)
