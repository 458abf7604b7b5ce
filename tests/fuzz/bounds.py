"""Limits on the cost of one input, and the number of inputs."""

import os
import time
import tracemalloc
from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import HealthCheck, settings

SCALE: Final = int(os.environ.get("PYOCO_FUZZ") or "1")

BASE_SEC: Final = 2.0
SEC_PER_BYTE: Final = 2e-3
"""CPU time while memory is traced, on a busy machine: many times what a valid input takes."""
BASE_BYTES: Final = 4_000_000
BYTES_PER_BYTE: Final = 4_000
"""A small input may cost some kilobytes in Python; a bomb costs millions of times its size."""


class Target(NamedTuple):
    """A function that reads untrusted input."""

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    """The errors by which it may refuse an input; any other error is a crash."""


def examples(few: int) -> settings:
    """Return the number of inputs to try: few by default, many with ``PYOCO_FUZZ``."""
    return settings(
        max_examples=few * SCALE,
        deadline=None,  # what an input may cost is checked by itself, in processor time
        derandomize=SCALE == 1 and bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def check(target: Target, data: bytes) -> bool:
    """Read an input and check its cost; return whether it was accepted."""
    return check_call(lambda: target.read(data), len(data), target.errors)


def check_call(call: Callable[[], object], size: int, errors: tuple[type[Exception], ...]) -> bool:
    """Call a function on ``size`` bytes; return whether it accepted them. AssertionError if it costs too much."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, began = tracemalloc.get_traced_memory()[0], time.thread_time()
    try:
        accepted = _was_accepted(call, errors)
        used, peak = time.thread_time() - began, tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()
    assert used <= BASE_SEC + SEC_PER_BYTE * size, f"{used:.1f} s for {size} bytes"
    assert peak <= BASE_BYTES + BYTES_PER_BYTE * size, f"{peak} bytes of memory for {size} bytes"
    return accepted


def _was_accepted(call: Callable[[], object], errors: tuple[type[Exception], ...]) -> bool:
    why = ""
    try:
        call()
    except errors as error:
        why = str(error) or "nothing"
    assert why != "nothing", "a refusal says why"
    return not why
