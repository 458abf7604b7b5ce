"""What the program adds to log lines: fields for all lines within a block, and errors of the catalogue."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from pyoco_server.messages import CATALOGUE

ONE_LINE: Final = "pyoco_one_line"
"""Set on the record of a common error: its traceback is short, and people get it on the same line."""

_TAKEN: Final = {*logging.makeLogRecord({}).__dict__, "asctime", "message", "taskName"}
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_bound: Final[ContextVar[Mapping[str, object]]] = ContextVar("pyoco_log_context", default=_NOTHING)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields (``run_id``, ``worker_id``, …) to every line logged inside, also by tasks and threads begun there.

    That holds for asyncio's ``create_task`` and ``to_thread``; a bare ``threading.Thread`` or executor does not inherit
    the fields. An inner value replaces an outer one, and ``extra`` of a single call replaces both.
    """
    token = _bound.set(MappingProxyType({**_bound.get(), **fields}))
    try:
        yield
    finally:
        _bound.reset(token)


def bound_fields() -> Mapping[str, object]:
    """Return the fields that apply here."""
    return _bound.get()


def log_error(
    logger: logging.Logger,
    err_id: str,
    *,
    action: str,
    exc: BaseException | None = None,
    level: int = logging.ERROR,
    one_line: bool = False,
    **context: object,
) -> None:
    """Log an error of the catalogue: its text (English, and as specified), both ids, what to do, what else is known.

    ``action`` is a stable name of what happened at this place, for those who search logs; the rest of the context
    (``run_id``, ``reason``, …) becomes fields. The line names the caller's place in the code, not this one.
    ``one_line`` is for common errors: the traceback is short.
    """
    entry = CATALOGUE[err_id]
    fields = {(f"{name}_" if name in _TAKEN else name): value for name, value in context.items()}
    known: dict[str, object] = {
        "err_id": err_id,
        "msg_id": entry.msg_id,
        "message_ja": entry.ja,
        "action": action,
        "remedy": entry.action_en,
    }
    if one_line:
        known[ONE_LINE] = True
    logger.log(level, entry.en, exc_info=exc, extra={**fields, **known}, stacklevel=2)
