"""The settings of both clients: address, headers, timeouts and retries."""

import os
import ssl
from typing import Final
from urllib.parse import urlsplit

import httpx

from pyoco_server.client.sans_io import RetryPolicy
from pyoco_server.errors import InvalidInputError
from pyoco_server.messages import Language

DEFAULT_SERVER: Final = "http://127.0.0.1:8000"
DEFAULT_API_KEY_HEADER: Final = "X-API-Key"
SERVER_VARIABLE: Final = "PYOCO_SERVER_URL"
API_KEY_VARIABLE: Final = "PYOCO_API_KEY"
CONNECT_SEC: Final = 5.0
REQUEST_SEC: Final = 30.0
RETRIES: Final = 3
"""How often a request is repeated, if that is safe."""
RECONNECT_SEC: Final = 120.0
"""How long a watch or a wait tolerates a gateway that answered before and does not now."""
POLL_SEC: Final = 1.0
"""How often to read a run where watching does not work."""


def server_url(given: str | None = None) -> str:
    """Return the address of the gateway: ``given``, else that of the environment, else this machine.

    InvalidInputError, which names the source of the address, if it is not valid.
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
        raise InvalidInputError(f"{name}: {text!r:.200} has a query or a fragment; leave them out")
    return str(url).rstrip("/")


def request_headers(api_key: str | None, api_key_header: str, lang: Language | str | None) -> dict[str, str]:
    """Return the headers of every request; InvalidInputError if they cannot be sent.

    ``None`` as a key means the key of the environment; an empty one means no key.
    """
    headers = {} if lang is None else {"Accept-Language": _language(lang).value}
    name, key = ("api_key", api_key) if api_key is not None else (API_KEY_VARIABLE, os.environ.get(API_KEY_VARIABLE))
    if key:
        headers[_checked("api_key_header", api_key_header)] = _checked(name, key)
    return headers


def trusted(server: str) -> ssl.SSLContext | bool:
    """Return what verifies certificates; without TLS nothing, as loading them takes longer than a request."""
    return True if server.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def timeouts(timeout: float) -> httpx.Timeout:
    """Return the timeouts of a connection and of an answer."""
    return httpx.Timeout(timeout, connect=min(CONNECT_SEC, timeout))


def retry_policy(server: str, *, retries: int, reconnect: float, poll: float) -> RetryPolicy:
    """Return how a client repeats requests."""
    return RetryPolicy(server=server, retries=retries, reconnect_sec=reconnect, poll_sec=poll)


def _language(lang: Language | str) -> Language:
    try:
        return Language(lang)
    except ValueError as error:
        raise InvalidInputError(f"lang: {lang!r:.40} is not one of {', '.join(Language)}") from error


def _checked(name: str, text: str) -> str:
    """Return the text if a header can hold it; the error does not show it, as it may be a secret."""
    if not text or not text.isascii() or not text.isprintable() or (name == "api_key_header" and " " in text):
        raise InvalidInputError(f"{name}: must be printable ASCII, and not empty")
    return text
