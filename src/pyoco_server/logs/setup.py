"""Set up the log of a process."""

import logging
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TextIO

from pyoco_server.logs.formats import JsonFormatter, TextFormatter
from pyoco_server.logs.handler import BestEffortHandler
from pyoco_server.logs.reporting import log_error

HTTP_SERVICE: Final = "pyoco-server:http"
WORKER_SERVICE: Final = "pyoco-server:worker"

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEVEL_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"WARN": "WARNING", "FATAL": "CRITICAL"})
TRUTH: Final[Mapping[str, bool]] = MappingProxyType(
    {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
)
"""How on and off are written, in any case."""

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
    """Send all log lines of this process to one stream, in one format; may be called again.

    It replaces the handlers that wrote to the console, uvicorn's own handlers (start uvicorn with ``log_config=None``,
    or it adds them again) and printed warnings. Handlers that write elsewhere stay. Missing arguments are read from
    ``PYOCO_LOG_LEVEL``, ``PYOCO_LOG_FORMAT``, ``PYOCO_LOG_UTC`` and ``PYOCO_LOG_INCLUDE_TRACEBACK``. A wrong value is
    replaced by the default, and ERR-PYOCO-0013 says so.
    """
    wrong: list[str] = []
    given_level = _text_of("PYOCO_LOG_LEVEL", "INFO") if level is None else level
    given_format = _text_of("PYOCO_LOG_FORMAT", "json") if format is None else format
    chosen_level, chosen_format = level_named(str(given_level)), str(given_format).lower()
    if chosen_level not in LEVELS:
        wrong.append(f"the level is {given_level!r}, but must be one of {', '.join(LEVELS)}; INFO is used instead")
        chosen_level = "INFO"
    if chosen_format not in _FORMATS:
        wrong.append(f"the format is {given_format!r}, but must be json or text; json is used instead")
        chosen_format = "json"
    with_utc = _truth_of("PYOCO_LOG_UTC", wrong) if utc is None else utc
    with_traceback = _truth_of("PYOCO_LOG_INCLUDE_TRACEBACK", wrong) if include_traceback is None else include_traceback
    handler = BestEffortHandler(stream)
    handler.setFormatter(_FORMATS[chosen_format](service=service, utc=with_utc, include_traceback=with_traceback))
    _take_over(handler, chosen_level)
    for reason in wrong:
        log_error(_log, "ERR-PYOCO-0013", action="log_settings_replaced", reason=reason)


def level_named(text: str) -> str:
    """Return the name of a level without aliases; it may be unknown."""
    return LEVEL_ALIASES.get(text.upper(), text.upper())


def _text_of(variable: str, default: str) -> str:
    """Return the value of a variable; an empty one counts as not set."""
    return os.environ.get(variable, "").strip() or default


def _truth_of(variable: str, wrong: list[str]) -> bool:
    """Return whether the variable is on, which is the default; a wrong value is added to ``wrong``."""
    text = _text_of(variable, "true")
    if text.lower() not in TRUTH:
        wrong.append(f"{variable} is {text!r}, but must be one of {', '.join(TRUTH)}; true is used instead")
    return TRUTH.get(text.lower(), True)


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
    """Return whether it is ours, or one that ``logging.basicConfig`` makes; a subclass belongs to the program."""
    if type(handler) is logging.StreamHandler:
        return any(handler.stream is own for own in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))
    return isinstance(handler, BestEffortHandler)
