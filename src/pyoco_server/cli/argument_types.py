"""Kinds of arguments; each says what is wrong with a text that is not of its kind."""

import argparse
import math
from collections.abc import Callable


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A number from ``least`` to ``most``."""
    expected = f"a whole number from {least} to {most}" if most is not None else f"a whole number, {least} or more"

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.lstrip("-").isdigit() else None
        if value is None or value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
        return value

    return parse


def seconds(text: str) -> float:
    """A length of time that is not zero."""
    value = _number(text)
    if value is None or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def unix_seconds(text: str) -> float:
    """A moment."""
    value = _number(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in Unix seconds, such as 1750000000")
    return value


def name(text: str) -> str:
    """Any text but an empty one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    return text


def names(text: str) -> list[str]:
    """Names separated by commas."""
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
