"""Errors of the catalogue, told to the log."""

import logging
from typing import Final

from pyoco_server.logs.formats import ONE_LINE
from pyoco_server.messages import CATALOGUE

_TAKEN: Final = {*logging.makeLogRecord({}).__dict__, "asctime", "message", "taskName"}


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
    (``run_id``, ``reason``, …) becomes fields. The line tells of the caller's place in the code, not of this one.
    ``one_line`` is for what happens every day: its traceback is short, and nobody's screen is filled with it.
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
