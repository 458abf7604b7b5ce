"""Programs that start before NATS does."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, TypeVar

from pyoco_server.adapters.jetstream.connection import NotLetInError
from pyoco_server.app.ports import UnavailableError
from pyoco_server.logs import log_error

T = TypeVar("T")
AGAIN_SEC: Final = 0.5
_log = logging.getLogger(__name__)


async def opened(
    stack: AsyncExitStack, open_it: Callable[[], AbstractAsyncContextManager[T]], *, is_told: bool = False
) -> T:
    """Enter what needs NATS as soon as that answers. Whoever is not let in is told so at once.

    That it is waited for is logged once, unless it ``is_told`` already. What was entered is left with the stack.
    """
    while True:
        try:
            return await stack.enter_async_context(open_it())
        except NotLetInError:
            raise
        except UnavailableError as error:
            if not is_told:
                tell_away(error)
                is_told = True
            await asyncio.sleep(AGAIN_SEC)


def tell_away(error: UnavailableError) -> None:
    """Log that NATS is away, and waited for."""
    log_error(_log, "ERR-PYOCO-0003", action="nats_awaited", exc=error, level=logging.WARNING, one_line=True)
