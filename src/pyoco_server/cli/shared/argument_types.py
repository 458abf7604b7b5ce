"""Types of command line arguments; each has a precise error for a text that does not fit."""

import argparse
import math
from collections.abc import Callable


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of whole numbers from ``least`` to ``most``."""
    expected = f"a whole number from {least} to {most}" if most is not None else f"a whole number, {least} or more"

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.lstrip("-").isdigit() else None
        if value is None or value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
        return value

    return parse


def seconds(text: str) -> float:
    """Parse a positive number of seconds."""
    value = _number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def unix_seconds(text: str) -> float:
    """Parse a time in Unix seconds."""
    value = _number(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in Unix seconds, such as 1750000000")
    return value


def name(text: str) -> str:
    """Parse any text that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def names(text: str) -> list[str]:
    """Parse names separated by commas."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names none; separate them by commas, such as cpu,linux")
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
