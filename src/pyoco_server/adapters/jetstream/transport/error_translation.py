"""Translates every error of NATS into an error of the ports. No exception of the NATS library leaves this package.

What an error proves decides what it becomes:

- Nothing was sent, or the server answered that it stored nothing: a :class:`NotStoredError`.
- The request was too large: a :class:`TooLargeError`.
- The server answered with any other error: a :class:`RefusedError`, which names the number of the error.
- No answer came, or none that can be read: an :class:`UnavailableError`. The outcome is unknown.

The numbers are those of JetStream. Only those that mean something to us are in the table.
"""

import json
from enum import Enum, auto
from typing import Any, Final

import msgspec
import nats.errors
import nats.js.errors
from nats.js.errors import APIError

from pyoco_server.app.ports import NotStoredError, TooLargeError, UnavailableError
from pyoco_server.errors import PyocoServerError

NATS_ERRORS: Final = (nats.errors.Error, OSError, msgspec.DecodeError, json.JSONDecodeError)
"""All errors of a call to NATS; timeouts and broken connections are an OSError, the last two unreadable answers."""


class RefusedError(UnavailableError):
    """The server answered with an error; ``err_code`` is its number, 0 if it has none.

    In a cluster, some of these errors do not prove that nothing was stored.
    """

    def __init__(self, message: str, *, err_code: int, description: str) -> None:
        super().__init__(message)
        self.err_code = err_code
        self.description = description


class RejectedError(RefusedError, NotStoredError):
    """The server rejected the request; nothing was stored."""


class ChangedError(RejectedError):
    """The subject or the key is no longer at the sequence that the request expected."""


class MissingError(RejectedError):
    """There is no such stream, consumer or message."""


class FullError(RejectedError):
    """A limit of the stream, of the account or of the disk leaves no room."""


class _Meaning(Enum):
    CHANGED = auto()
    MISSING = auto()
    TOO_LARGE = auto()
    FULL = auto()
    STORE_FAILED = auto()


_MEANINGS: Final = {
    10002: _Meaning.FULL,  # the account has no storage left
    10014: _Meaning.MISSING,  # the consumer
    10023: _Meaning.FULL,  # the server has no resources left
    10028: _Meaning.FULL,  # the server has no memory left
    10037: _Meaning.MISSING,  # the message
    10043: _Meaning.MISSING,  # the sequence
    10047: _Meaning.FULL,  # the server has no storage left
    10054: _Meaning.TOO_LARGE,  # max_msg_size of the stream
    10059: _Meaning.MISSING,  # the stream
    10071: _Meaning.CHANGED,  # another sequence was expected; names the one that is there
    10077: _Meaning.STORE_FAILED,  # the stream is full, or its disk failed
    10097: _Meaning.TOO_LARGE,  # the headers
    10164: _Meaning.CHANGED,  # another sequence was expected
}

_LIMIT_REACHED: Final = "maximum "
"""How the description of a store failure begins when a limit of the stream caused it: nothing was stored then."""

_NOT_SENT: Final = (
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.BadSubjectError,
    nats.errors.BadHeaderError,
)
_NO_RESPONDERS: Final = (nats.errors.NoRespondersError, nats.js.errors.NoStreamResponseError)


class translated:  # noqa: N801 used like the functions of contextlib; a class, since it is on every path
    """Within this block, every error of NATS becomes an error of the ports; other errors stay as they are."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None and isinstance(error, NATS_ERRORS):
            raise translation_of(error) from error


def translation_of(error: BaseException) -> PyocoServerError:
    """Return the error of the ports for an error of NATS."""
    if isinstance(error, APIError) and not _is_unserved(error):
        return _api_error(error)
    if isinstance(error, nats.errors.MaxPayloadError):
        return TooLargeError(
            "the message is larger than the server takes: send less, or raise max_payload in the server's configuration"
        )
    if isinstance(error, (*_NOT_SENT, *_NO_RESPONDERS, APIError)):
        return NotStoredError(f"NATS did not answer: {in_words(error)}")
    return UnavailableError(f"NATS did not answer: {in_words(error)}")


def refusal(answer: dict[str, Any]) -> PyocoServerError:
    """Return the error of the ports for the ``error`` object of an answer."""
    code, err_code, description = answer.get("code"), answer.get("err_code"), answer.get("description")
    return _refusal(
        code if isinstance(code, int) else 0,
        err_code if isinstance(err_code, int) else 0,
        description if isinstance(description, str) else "",
    )


def in_words(error: BaseException | None) -> str:
    """Return the text of an error. Some errors of the library have none, and one raises when it is read."""
    if isinstance(error, _NO_RESPONDERS) or _is_unserved(error):
        return "no server answers this request: JetStream is off or still starting, or the stream is missing"
    if isinstance(error, nats.js.errors.Error):
        return getattr(error, "description", None) or type(error).__name__
    return str(error) or type(error).__name__


def _is_unserved(error: BaseException | None) -> bool:
    """Return whether there was no responder. The library raises an API error without a code then."""
    unavailable = nats.js.errors.ServiceUnavailableError
    return isinstance(error, unavailable) and getattr(error, "code", None) is None


def _api_error(error: APIError) -> PyocoServerError:
    # Some subclasses do not set these fields.
    code, err_code = getattr(error, "code", None), getattr(error, "err_code", None)
    is_missing = isinstance(error, nats.js.errors.NotFoundError)
    description = getattr(error, "description", None) or type(error).__name__
    return _refusal(code or (404 if is_missing else 0), err_code or 0, description)


def _refusal(code: int, err_code: int, description: str) -> PyocoServerError:
    number = err_code or code
    said = f"error {number}: {description}" if number else description
    meaning = _MEANINGS.get(err_code)
    if meaning is _Meaning.STORE_FAILED and description.startswith(_LIMIT_REACHED):
        meaning = _Meaning.FULL
    if meaning is _Meaning.TOO_LARGE:
        return TooLargeError(f"NATS refused the message ({said}): send less, or raise max_msg_size of the stream")
    facts: dict[str, Any] = {"err_code": err_code, "description": description}
    if meaning is _Meaning.CHANGED:
        return ChangedError(f"NATS refused to write over a newer message ({said})", **facts)
    if meaning is _Meaning.FULL:
        return FullError(
            f"NATS has no room left ({said}): raise the limits of the stream or of the account, or free disk space",
            **facts,
        )
    if meaning is _Meaning.MISSING or code == 404:
        return MissingError(f"NATS does not have what was asked for ({said})", **facts)
    if 400 <= code < 500:
        return RejectedError(f"NATS rejected the request ({said})", **facts)
    return RefusedError(f"NATS refused the request ({said})", **facts)
