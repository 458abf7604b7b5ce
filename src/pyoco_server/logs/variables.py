"""The environment variables of the log, for those who set it up without the settings of the whole platform."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEVEL_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"WARN": "WARNING", "FATAL": "CRITICAL"})
TRUTH: Final[Mapping[str, bool]] = MappingProxyType(
    {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
)
"""How on and off are written, in any case."""


def level_named(text: str) -> str:
    """The level that is meant; there may be none of that name."""
    return LEVEL_ALIASES.get(text.upper(), text.upper())


def text_of(variable: str, default: str) -> str:
    """What the variable is set to; set to nothing counts as not set."""
    return os.environ.get(variable, "").strip() or default


def truth_of(variable: str, wrong: list[str]) -> bool:
    """Whether the variable says yes, which is the default of ours; what it says else is noted in ``wrong``."""
    text = text_of(variable, "true")
    if text.lower() not in TRUTH:
        wrong.append(f"{variable} is {text!r}, but must be one of {', '.join(TRUTH)}; true is used instead")
    return TRUTH.get(text.lower(), True)
