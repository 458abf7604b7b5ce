"""Setting up the log of a process."""

import logging
import sys
from typing import Final, TextIO

from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from pyoco_server.logs.handler import BestEffortHandler
from pyoco_server.logs.reporting import log_error

HTTP_SERVICE: Final = "pyoco-server:http"
WORKER_SERVICE: Final = "pyoco-server:worker"

_FORMATS: Final = {"json": JsonFormatter, "text": TextFormatter}
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_UVICORN: Final = ("uvicorn", "uvicorn.error", "uvicorn.access")

_log = logging.getLogger(__name__)


def configure_logging(
    *,
    service: str,
    level: str = "INFO",
    format: str = "json",  # noqa: A002 (the name of the setting)
    utc: bool = True,
    include_traceback: bool = True,
    stream: TextIO | None = None,
) -> None:
    """Send everything that is logged in this process to one place, in one format; may be called again.

    It takes the place of what wrote to the console before, of uvicorn's own handlers (start uvicorn with
    ``log_config=None``, or it brings them back) and of printed warnings. Handlers that write elsewhere stay. A level or
    format there is not is replaced by the default, and ERR-PYOCO-0013 says so.
    """
    wrong = []
    chosen_level, chosen_format = str(level).upper(), str(format).lower()
    if chosen_level not in _LEVELS:
        wrong.append(f"the level is {level!r}, but must be one of {', '.join(_LEVELS)}; INFO is used instead")
        chosen_level = "INFO"
    if chosen_format not in _FORMATS:
        wrong.append(f"the format is {format!r}, but must be json or text; json is used instead")
        chosen_format = "json"
    handler = BestEffortHandler(stream)
    handler.setFormatter(_FORMATS[chosen_format](service=service, utc=utc, include_traceback=include_traceback))
    _take_over(handler, chosen_level)
    for reason in wrong:
        log_error(_log, "ERR-PYOCO-0013", action="log_settings_replaced", reason=reason)


def _take_over(handler: logging.Handler, level: str) -> None:
    root = logging.getLogger()
    for other in [other for other in root.handlers if _writes_to_console(other)]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _UVICORN:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.captureWarnings(capture=True)


def _writes_to_console(handler: logging.Handler) -> bool:
    """Is it ours, or one that ``logging.basicConfig`` makes by default? Subclasses are somebody's own."""
    if type(handler) is logging.StreamHandler:
        return any(handler.stream is own for own in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))
    return isinstance(handler, BestEffortHandler)
