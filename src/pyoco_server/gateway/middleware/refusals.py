"""The log of refused requests: enough to find the sender, no secrets, and a bounded number of lines."""

import asyncio
import logging
import math
from typing import Final

from starlette.types import Scope

from pyoco_server.errors import PyocoServerError
from pyoco_server.logs import log_error

REFUSALS_SEC: Final = 60.0
MOST_REFUSALS: Final = 100
"""The most refusals that are logged as warnings in ``REFUSALS_SEC``; the others are logged at DEBUG."""


class RefusalLog:
    """Logs refused requests, at most ``MOST_REFUSALS`` of a minute as warnings: an attack must not fill the disk."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._since = -math.inf
        self._logged = 0

    def write(self, error: PyocoServerError, err_id: str, scope: Scope, **fields: object) -> None:
        """Log a refusal without secrets: neither the key nor the path, which may contain one."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= REFUSALS_SEC:
            self._since, self._logged = now, 0
        self._logged += 1
        client = scope.get("client")
        if self._logged == MOST_REFUSALS:
            fields["note"] = "more refusals of this minute are logged at DEBUG only"
        log_error(
            self._logger,
            err_id,
            action="request_refused",
            exc=error,
            level=logging.WARNING if self._logged <= MOST_REFUSALS else logging.DEBUG,
            one_line=True,
            reason=str(error),
            remote_addr=client[0] if client else None,
            **fields,
        )
