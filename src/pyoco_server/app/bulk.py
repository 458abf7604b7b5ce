"""The same for many runs at once, each with its own result."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from pyoco_server.app.ports import UnavailableError
from pyoco_server.errors import PyocoServerError

AT_ONCE: Final = 32

T = TypeVar("T")
R = TypeVar("R")


async def for_each(items: Sequence[T], do: Callable[[T], Awaitable[R]]) -> list[R | PyocoServerError]:
    """What became of each, in their order; UnavailableError if nothing could be reached for any of them.

    As soon as the outside does not answer for one, the rest are not tried: they would only take long to fail.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    away: UnavailableError | None = None

    async def one(item: T) -> R | PyocoServerError:
        nonlocal away
        async with gate:
            if away is not None:
                return away
            try:
                return await do(item)
            except UnavailableError as error:
                away = error
                return error
            except PyocoServerError as error:
                return error

    results = await asyncio.gather(*(one(item) for item in items))
    if away is not None and all(isinstance(result, UnavailableError) for result in results):
        raise away
    return results
