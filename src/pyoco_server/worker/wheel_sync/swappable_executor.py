"""An executor that can be replaced: processes that have imported the old code must not run the new flows."""

from collections.abc import Callable
from typing import Any, TypeVar

from pyoco_server.app.ports import TaskExecutor
from pyoco_server.app.ports.task_executor import CallWatch
from pyoco_server.flows.model import Isolation

T = TypeVar("T")


class SwappableExecutor:
    """Serves the TaskExecutor port with the newest executor that ``make`` has made."""

    def __init__(self, make: Callable[[], TaskExecutor]) -> None:
        self._make = make
        self._current = make()

    async def call(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        *,
        isolation: Isolation,
        args: tuple[Any, ...] = (),
        timeout_sec: float | None = None,
        watch: CallWatch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function."""
        return await self._current.call(
            function, kwargs, isolation=isolation, args=args, timeout_sec=timeout_sec, watch=watch
        )

    async def aside(self, call: Callable[[], T]) -> T:
        """Make a call that is no task's."""
        return await self._current.aside(call)

    async def renew(self) -> None:
        """Replace the executor; to be called while nothing runs."""
        old, self._current = self._current, self._make()
        await old.close()

    async def close(self) -> None:
        """Close the executor."""
        await self._current.close()
