"""What the command lines of the benchmarks share."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from bench.peers.stand import CandidateError

PROBLEMS = (CandidateError, OSError, RuntimeError, TimeoutError, ExceptionGroup)
"""What one subject may end with without ending the others: it is reported, and what was measured is kept."""


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Parses names with commas between them."""

    def parse(text: str) -> list[str]:
        if unknown := sorted(set(text.split(",")) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return text.split(",")

    return parse


def leave(*_: object) -> None:
    """For SIGTERM: end everything that was started, then this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once: nothing shall disturb the clearing up
    sys.exit(143)
