"""Remove secrets from log lines."""

import re
from typing import Final

HIDDEN: Final = "***"

SECRET_NAMES: Final = (
    "api_key",
    "authorization",
    "cookie",
    "credentials",
    "creds",
    "nkey_seed",
    "passwd",
    "password",
    "pepper",
    "private_key",
    "result_key",
    "secret",
    "token",
)
"""A field whose name ends with one of these is hidden: ``X-API-Key`` and ``nats_token``, but not ``api_key_id``."""

_LOGIN: Final = re.compile(r"(?<=://)[^/\s@]+@")
_ASSIGNED: Final = re.compile(
    rf"""((?:{"|".join(name.replace("_", "[-_]?") for name in SECRET_NAMES)})["']?\s*[=:]\s*["']?)"""
    r"""(?:(?:bearer|basic)\s+)?[^\s"',;&]+""",
    re.IGNORECASE,
)
_API_KEY: Final = re.compile(r"pyoco_(k[0-9a-f]{16})_[0-9a-f]*")
"""An API key, or the beginning of one. Its id is not secret: an operator needs it to revoke the key."""


_API_KEY_OF_051: Final = re.compile(r"pyoco_([0-9a-f]{24}(?:[0-9a-f]{8})?)\.[A-Za-z0-9_-]*")
"""The same of a key that 0.5.1 issued."""


def is_secret(name: str) -> bool:
    """Return whether a field of this name holds a secret."""
    return name.lower().replace("-", "_").endswith(SECRET_NAMES)


def without_secrets(text: str) -> str:
    """Remove logins in addresses, values assigned to a secret's name (``token=…``), and API keys from a text."""
    if "pyoco_" in text:
        text = _API_KEY.sub(rf"\g<1>_{HIDDEN}", text)
        text = _API_KEY_OF_051.sub(rf"\g<1>.{HIDDEN}", text)
    if "://" in text:
        text = _LOGIN.sub(f"{HIDDEN}@", text)
    if "=" in text or ":" in text:  # most texts have neither, and are spared the search
        text = _ASSIGNED.sub(rf"\g<1>{HIDDEN}", text)
    return text
