"""The log of refused requests: enough to find the sender, no secrets, and a bounded number of lines."""

import logging

from starlette.types import Scope

from pyoco_server.errors import PyocoServerError
from pyoco_server.logs import log_error
from pyoco_server.logs.line_limit import MOST_LINES, LineLimit


class RefusalLog:
    """Logs refused requests, at most ``MOST_LINES`` of a minute as warnings, the others at DEBUG."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._limit = LineLimit()

    def write(self, error: PyocoServerError, err_id: str, scope: Scope, **fields: object) -> None:
        """Log a refusal without secrets: neither the key nor the path, which may contain one."""
        position = self._limit.position("refusal")
        client = scope.get("client")
        if position == MOST_LINES:
            fields["note"] = "more refusals of this minute are logged at DEBUG only"
        log_error(
            self._logger,
            err_id,
            action="request_refused",
            exc=error,
            level=logging.WARNING if position <= MOST_LINES else logging.DEBUG,
            one_line=True,
            reason=str(error),
            remote_addr=client[0] if client else None,
            **fields,
        )
