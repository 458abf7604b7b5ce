"""How commands that run for long begin to log."""

import logging

from pyoco_server.logs import configure_logging, log_error
from pyoco_server.settings import Loaded

_log = logging.getLogger(__name__)


def begin_logging(loaded: Loaded, service: str) -> None:
    """Log as the settings say, and tell what is doubtful about them."""
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
