"""A log handler that never raises and never stops the program."""

import logging
import sys
from typing import Final, TextIO

from typing_extensions import override

from pyoco_server.messages import CATALOGUE

_FAILED: Final = CATALOGUE["ERR-PYOCO-0013"]


class BestEffortHandler(logging.Handler):
    """Writes lines to a stream, by default to whatever ``sys.stderr`` is at the time.

    When that fails, lines go to the process's original stderr, after one notice with ERR-PYOCO-0013; when that fails
    too, they are lost. Nothing is ever raised.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream
        self._complained = False

    @override
    def emit(self, record: logging.LogRecord) -> None:
        line = None
        try:
            line = self.format(record)
            _write(self._stream or sys.stderr, line)
        except Exception as error:  # noqa: BLE001 (a log that cannot be written must not stop the program)
            self._instead(line, error)

    def _instead(self, line: str | None, error: Exception) -> None:
        try:
            if not self._complained:
                self._complained = True
                _write(sys.__stderr__, self.format(_notice(error)))
            if line is not None:
                _write(sys.__stderr__, line)
        except Exception:  # noqa: BLE001, S110 (there is nowhere left to report it)
            pass


def _notice(error: Exception) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": __name__,
            "levelno": logging.ERROR,
            "levelname": "ERROR",
            "pathname": __file__,
            "funcName": "emit",
            "msg": _FAILED.en,
            "err_id": _FAILED.err_id,
            "msg_id": _FAILED.msg_id,
            "message_ja": _FAILED.ja,
            "action": "log_line_diverted",
            "remedy": _FAILED.action_en,
            "exc_info": (type(error), error, error.__traceback__),
        }
    )


def _write(stream: TextIO | None, line: str) -> None:
    if stream is None:  # a process without a console has no stderr
        raise OSError("there is no stderr")
    stream.write(f"{line}\n")
    stream.flush()
