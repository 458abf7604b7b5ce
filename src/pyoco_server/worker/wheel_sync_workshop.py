"""A workshop that can be exchanged: processes that have imported the old code must not run the new flows."""

from collections.abc import Callable
from typing import Any

from pyoco_server.app.ports import Workshop
from pyoco_server.app.ports.engine import Watch
from pyoco_server.flows.model import Isolation


class RenewedWorkshop:
    """Serves the Workshop port with the newest workshop ``make`` has made."""

    def __init__(self, make: Callable[[], Workshop]) -> None:
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
        watch: Watch | None = None,
    ) -> Any:  # noqa: ANN401 whatever the function returns
        """Call the function there."""
        return await self._current.call(
            function, kwargs, isolation=isolation, args=args, timeout_sec=timeout_sec, watch=watch
        )

    async def renew(self) -> None:
        """Go on with a new one; to be called while nothing runs."""
        old, self._current = self._current, self._make()
        await old.close()

    async def close(self) -> None:
        """Let go of all places."""
        await self._current.close()
