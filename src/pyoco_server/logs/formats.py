"""Format log records: as JSON lines for programs, as plain lines for people."""

import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from typing_extensions import override

from pyoco_server.logs.plain import clean, plain_fields, safe_repr
from pyoco_server.logs.reporting import ONE_LINE, bound_fields

INNERMOST: Final = 3
"""How many places a short traceback has, counted from where the exception was raised."""

_NOT_EXTRA: Final = {
    ONE_LINE,
    *logging.makeLogRecord({}).__dict__,
    "asctime",
    "color_message",  # uvicorn's copy of its message, with colours
    "message",
    "taskName",
}
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in {9, 10}}


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII, so that neither a newline nor an encoding can break it."""

    def __init__(self, *, service: str, utc: bool, include_traceback: bool) -> None:
        super().__init__()
        self._service = service
        self._utc = utc
        self._include_traceback = include_traceback

    @override
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record), allow_nan=False)

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return all fields of a record. A field of the caller with the name of one of ours gets a ``_``."""
        ours: dict[str, Any] = {
            "timestamp": _timestamp(record.created, utc=self._utc),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": _message(record),
        }
        where = {
            "file": clean(record.pathname),
            "line": record.lineno,
            "function": record.funcName,
            "process": record.process,
            "thread": record.threadName,
        }
        problem = dict(self._exception(record))
        extra = {key: value for key, value in list(record.__dict__.items()) if key not in _NOT_EXTRA}
        callers = plain_fields({**bound_fields(), **extra})
        if not self._include_traceback:
            callers.pop("traceback", None)  # of an exception that was raised in another process
        taken = ours.keys() | where.keys() | problem.keys()
        for name in [name for name in callers if name in taken]:
            callers[f"{name}_"] = callers.pop(name)
        return {**ours, **callers, **where, **problem}

    def _exception(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        """Return the exception and the place where it was raised, which are logged even without the traceback."""
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            yield "exception_class", f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            yield "exception_message", _text_of(error)
            if place := _raised_at(error.__traceback__):
                yield "exception_at", place
            if self._include_traceback:
                limit = -INNERMOST if hasattr(record, ONE_LINE) else None
                yield "traceback", clean("".join(traceback.format_exception(error, limit=limit)))
        elif record.exc_text and self._include_traceback:
            yield "traceback", clean(record.exc_text)
        if record.stack_info:
            yield "stack", clean(record.stack_info)


class TextFormatter(JsonFormatter):
    """A line for people; further lines are indented, so that a message cannot imitate another log line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        head = " ".join(str(fields.pop(name)) for name in ("timestamp", "level", "service", "logger"))
        message = fields.pop("message")
        place = f"{fields.pop('file')}:{fields.pop('line')} {fields.pop('function')}"
        for name in ("process", "thread"):
            fields.pop(name)
        if hasattr(record, ONE_LINE) and "traceback" in fields:
            fields["traceback"] = _way_of(record) or fields["traceback"]
            fields.pop("exception_at", None)  # where that ends
        apart = () if hasattr(record, ONE_LINE) else ("traceback", "stack")
        below = [str(fields.pop(name)) for name in apart if name in fields]
        pairs = "".join(f" {name}={_short(value)}" for name, value in fields.items())
        lines = [f"{head}: {message}{pairs} ({place})", *(text.rstrip("\n") for text in below)]
        return "\n".join(lines).translate(_CONTROL).replace("\n", "\n    ")


def _timestamp(seconds: float, *, utc: bool) -> str:
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return (moment if utc else moment.astimezone()).isoformat(timespec="milliseconds")


def _message(record: logging.LogRecord) -> str:
    """Return the message, also of a call whose arguments do not match its format."""
    try:
        return clean(record.getMessage())
    except Exception:  # noqa: BLE001 (formatting runs code of whatever was logged)
        return f"{safe_repr(record.msg)} % {safe_repr(record.args)}"


def _text_of(error: BaseException) -> str:
    try:
        return clean(str(error))
    except Exception:  # noqa: BLE001 (an exception's __str__ may be any code)
        return safe_repr(error)


def _way_of(record: logging.LogRecord) -> str | None:
    """Return the innermost places of the traceback, for a line that people read."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    places = traceback.extract_tb(error.__traceback__)[-INNERMOST:] if error is not None else []
    return " > ".join(f"{Path(place.filename).name}:{place.lineno} {place.name}" for place in places) or None


def _raised_at(trace: TracebackType | None) -> str | None:
    """Return where an exception was raised: the innermost place of its traceback."""
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{clean(code.co_filename)}:{trace.tb_lineno} {code.co_qualname}"


def _short(value: object) -> str:
    """Return a value for a line of text: bare if it is one word, otherwise as JSON."""
    if isinstance(value, str) and value and not any(sign.isspace() or sign in "\"'=[]{}" for sign in value):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
