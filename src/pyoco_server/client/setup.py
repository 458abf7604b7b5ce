"""How a client is set up, whichever of the two it is."""

import os
import ssl
from typing import Final
from urllib.parse import urlsplit

import httpx

from pyoco_server.client.steps import Manner
from pyoco_server.errors import InvalidInputError
from pyoco_server.messages import Language

DEFAULT_SERVER: Final = "http://127.0.0.1:8000"
DEFAULT_API_KEY_HEADER: Final = "X-API-Key"
SERVER_VARIABLE: Final = "PYOCO_SERVER_URL"
API_KEY_VARIABLE: Final = "PYOCO_API_KEY"
CONNECT_SEC: Final = 5.0
REQUEST_SEC: Final = 30.0
RETRIES: Final = 3
"""How often a request that may be repeated is."""
RECONNECT_SEC: Final = 120.0
"""How long those who watch or wait bear with a gateway that was there and is away."""
POLL_SEC: Final = 1.0
"""How often to look at a run where watching does not work."""


def server_url(given: str | None = None) -> str:
    """The address of a gateway: what was given, else what the environment says, else this machine.

    InvalidInputError, which names where the address comes from, if it cannot be one.
    """
    from_environment = os.environ.get(SERVER_VARIABLE) if given is None else None
    if from_environment:
        return _address(from_environment, SERVER_VARIABLE)
    return _address(DEFAULT_SERVER if given is None else given, "server")


def _address(text: str, name: str) -> str:
    try:
        url = httpx.URL(text)
        parts = urlsplit(text)  # which is strict about brackets
    except (httpx.InvalidURL, ValueError) as error:
        raise InvalidInputError(f"{name}: {text!r:.200} is not a URL: {error}") from error
    if url.scheme not in {"http", "https"} or not parts.hostname or any(letter.isspace() for letter in text):
        raise InvalidInputError(f"{name}: {text!r:.200} is not a URL such as {DEFAULT_SERVER}")
    if url.query or url.fragment:
        raise InvalidInputError(f"{name}: {text!r:.200} has a query or a fragment; only the address is wanted")
    return str(url).rstrip("/")


def request_headers(api_key: str | None, api_key_header: str, lang: Language | str | None) -> dict[str, str]:
    """What is sent with every request; InvalidInputError if it cannot be.

    Without a key, the one of the environment is taken; an empty one means none.
    """
    headers = {} if lang is None else {"Accept-Language": _language(lang).value}
    name, key = ("api_key", api_key) if api_key is not None else (API_KEY_VARIABLE, os.environ.get(API_KEY_VARIABLE))
    if key:
        headers[_checked("api_key_header", api_key_header)] = _checked(name, key)
    return headers


def trusted(server: str) -> ssl.SSLContext | bool:
    """Whose certificates count: those httpx reads, which takes longer than a request; without TLS, nobody's."""
    return True if server.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def timeouts(timeout: float) -> httpx.Timeout:
    """How long to wait for a connection, and for an answer."""
    return httpx.Timeout(timeout, connect=min(CONNECT_SEC, timeout))


def manner(server: str, *, retries: int, reconnect: float, poll: float) -> Manner:
    """How patient the client is."""
    return Manner(server=server, retries=retries, reconnect_sec=reconnect, poll_sec=poll)


def _language(lang: Language | str) -> Language:
    try:
        return Language(lang)
    except ValueError as error:
        raise InvalidInputError(f"lang: {lang!r:.40} is not one of {', '.join(Language)}") from error


def _checked(name: str, text: str) -> str:
    """Header names and values are single lines of ASCII; what else was given is not shown, it may be a secret."""
    if not text or not text.isascii() or not text.isprintable() or (name == "api_key_header" and " " in text):
        raise InvalidInputError(f"{name}: must be printable ASCII, and not empty")
    return text
