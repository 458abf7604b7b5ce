"""Setting up the log of a process."""

import logging
import sys
from typing import Final, TextIO

from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from pyoco_server.logs.handler import BestEffortHandler
from pyoco_server.logs.reporting import log_error
from pyoco_server.logs.variables import LEVELS, level_named, text_of, truth_of

HTTP_SERVICE: Final = "pyoco-server:http"
WORKER_SERVICE: Final = "pyoco-server:worker"

_FORMATS: Final = {"json": JsonFormatter, "text": TextFormatter}
_UVICORN: Final = ("uvicorn", "uvicorn.error", "uvicorn.access")

_log = logging.getLogger(__name__)


def configure_logging(
    *,
    service: str,
    level: str | None = None,
    format: str | None = None,  # noqa: A002 (the name of the setting)
    utc: bool | None = None,
    include_traceback: bool | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send everything that is logged in this process to one place, in one format; may be called again.

    It takes the place of what wrote to the console before, of uvicorn's own handlers (start uvicorn with
    ``log_config=None``, or it brings them back) and of printed warnings. Handlers that write elsewhere stay. What is
    not given is taken from ``PYOCO_LOG_LEVEL``, ``PYOCO_LOG_FORMAT``, ``PYOCO_LOG_UTC`` and
    ``PYOCO_LOG_INCLUDE_TRACEBACK``. A value there is not is replaced by the default, and ERR-PYOCO-0013 says so.
    """
    wrong: list[str] = []
    given_level = text_of("PYOCO_LOG_LEVEL", "INFO") if level is None else level
    given_format = text_of("PYOCO_LOG_FORMAT", "json") if format is None else format
    chosen_level, chosen_format = level_named(str(given_level)), str(given_format).lower()
    if chosen_level not in LEVELS:
        wrong.append(f"the level is {given_level!r}, but must be one of {', '.join(LEVELS)}; INFO is used instead")
        chosen_level = "INFO"
    if chosen_format not in _FORMATS:
        wrong.append(f"the format is {given_format!r}, but must be json or text; json is used instead")
        chosen_format = "json"
    with_utc = truth_of("PYOCO_LOG_UTC", wrong) if utc is None else utc
    with_traceback = truth_of("PYOCO_LOG_INCLUDE_TRACEBACK", wrong) if include_traceback is None else include_traceback
    handler = BestEffortHandler(stream)
    handler.setFormatter(_FORMATS[chosen_format](service=service, utc=with_utc, include_traceback=with_traceback))
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
