"""Help for tests of the log: a configured log in a stream, and programs whose stderr is the log."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyoco_server.logs.formats import JsonFormatter
from pyoco_server.logs.handler import BestEffortHandler

Line = dict[str, Any]


@contextmanager
def logger_into(
    stream: io.StringIO, formatter: type[JsonFormatter] = JsonFormatter, *, utc: bool = True, traceback: bool = True
) -> Iterator[logging.Logger]:
    """A logger of its own, with our handler and nothing else."""
    handler = BestEffortHandler(stream)
    handler.setFormatter(formatter(service="pyoco-server:http", utc=utc, include_traceback=traceback))
    logger = logging.Logger("tests.logs")  # noqa: LOG001 (not registered)
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        handler.close()


def lines_of(text: str) -> list[Line]:
    """Every line of a JSON log."""
    return [json.loads(line) for line in text.splitlines()]


def log_of(program: str, *arguments: str) -> list[Line]:
    """What a Python program that configures the log writes to stderr; it must end well."""
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr
    return lines_of(done.stderr)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 (our own text)
