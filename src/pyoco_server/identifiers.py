"""The rules for all names and ids, in one table.

HTTP, the command lines, the settings and the adapters check names by these rules only; no other module has a pattern
for one. A rule checks a whole text; ``json_schema`` is the same rule for the OpenAPI document.
"""

import re
from typing import Any, Final, NamedTuple

from pyoco_server.errors import InvalidInputError


class Rule(NamedTuple):
    """The form of one kind of name."""

    pattern: str
    """A regular expression for the whole text, without anchors; Python and JSON Schema read it in the same way."""
    longest: int
    """In characters."""
    words: str
    """The rule in words that follow "give"."""

    def fits(self, text: object) -> bool:
        """Is it a text of this form?"""
        return isinstance(text, str) and len(text) <= self.longest and re.fullmatch(self.pattern, text) is not None

    def checked(self, text: str, field: str) -> str:
        """Return the text, or raise InvalidInputError, which names the field and the rule."""
        if not self.fits(text):
            raise InvalidInputError(f"{field}: {self.problem(text)}")
        return text

    def problem(self, text: str) -> str:
        """Return what is wrong with a text that does not fit, and what to give instead."""
        return f"{text!r:.80} cannot be used; give {self.words}"

    @property
    def json_schema(self) -> dict[str, Any]:
        """Return the rule as keywords of JSON Schema."""
        return {"minLength": 1, "maxLength": self.longest, "pattern": f"^{self.pattern}$"}


_WORD: Final = r"[A-Za-z0-9_-]+"
_UNPRINTED: Final = r"\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
"""Control characters, and characters that are invisible or change the direction of the text around them."""
_PRINTED: Final = rf"[^{_UNPRINTED}]*[^\s{_UNPRINTED}][^{_UNPRINTED}]*"


def _token(longest: int = 128) -> Rule:
    return Rule(_WORD, longest, f"1 to {longest} characters, only letters, digits, '_' and '-'")


def _dotted(longest: int = 128) -> Rule:
    words = f"1 to {longest} characters, only letters, digits, '_' and '-', in parts with a '.' between them"
    return Rule(rf"{_WORD}(\.{_WORD})*", longest, words)


def _text(longest: int) -> Rule:
    return Rule(_PRINTED, longest, f"1 to {longest} characters, not blanks alone, without control characters")


# --- Runs and workers ------------------------------------------------------------------------------------------------

TOKEN: Final = _token()
"""One token of a NATS subject: with a dot or a wildcard it would name other subjects."""
TAG: Final = TOKEN
"""Routes a run, or a wheel, to workers."""
RUN_ID: Final = TOKEN
"""Also the id of an execution."""
GRAPH_ID: Final = TOKEN
INSTANCE_ID: Final = TOKEN
"""Of one process of a worker."""
WORKER_ID: Final = _dotted()
"""Like the name of a machine, with dots."""
FLOW_NAME: Final = _text(200)
LABEL: Final = _text(128)
"""One of a run's ``tags``, which route nothing."""
NODE_ID: Final = _text(500)

# --- HTTP ------------------------------------------------------------------------------------------------------------

TENANT: Final = Rule(
    "[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", 40, "at most 40 letters and digits, single '-' or '_' between them"
)
API_KEY_ID: Final = Rule("k[0-9a-f]{16}", 17, "'k' and 16 hexadecimal digits")
"""The public part of an API key."""
API_KEY_ID_051: Final = Rule("[0-9a-f]{24}|[0-9a-f]{32}", 32, "24 or 32 hexadecimal digits")
"""The same of a key that release 0.5.1 issued."""
REQUEST_KEY: Final = Rule(r"[\x21-\x7e]{1,200}", 200, "1 to 200 visible ASCII characters, without blanks")
"""An idempotency key, or a correlation id."""
HEADER_NAME: Final = Rule(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", 200, "the name of an HTTP header")
HOST: Final = Rule("[A-Za-z0-9._-]+", 253, "the name or the IPv4 address of a host")

# --- Wheels ----------------------------------------------------------------------------------------------------------

WHEEL_NAME: Final = Rule(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl", 200, "at most 200 characters, and no path")
WHEEL_FILE: Final = Rule(r"[^/\\]+\.whl", 200, "the name of a file that ends in .whl, without a path")
"""In a search: the history may have names that other programs gave."""

# --- NATS ------------------------------------------------------------------------------------------------------------

RESOURCE: Final = TOKEN
"""The name of a stream or of a bucket."""
ANY_STREAM: Final = Rule(r"[^\x00-\x20./\\*>\x7f]+", 255, "the name of a stream of NATS")
"""Any stream that NATS allows; it is also the name of a directory, and cannot lead out of the parent directory."""
KEY: Final = _dotted()
"""A key of a bucket."""
SUBJECT_PREFIX: Final = _dotted(255)
OBJECT_ID: Final = _token(64)
"""The ``nuid`` that NATS gives an object."""

_LONGEST_OBJECT_NAME: Final = 1024
"""In bytes. NATS closes a connection that sends a name too long for one line of its protocol."""


def object_name(value: str) -> bytes:
    """Return the name of a stored object in bytes, which can be any text that is not too long."""
    try:
        name = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the name {value!r:.80} cannot be used: it is not valid Unicode") from error
    if not 0 < len(name) <= _LONGEST_OBJECT_NAME:
        problem = f"1 to {_LONGEST_OBJECT_NAME} bytes, not {len(name)}"
        raise InvalidInputError(f"the name {value!r:.80} cannot be used: {problem}")
    return name
