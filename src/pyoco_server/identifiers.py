"""Which texts can be an identifier: one table for everything that has a name.

HTTP, the command lines, the settings and the adapters check identifiers by these rules and by no others. A rule checks
a whole text; ``json_schema`` says the same to readers of the API.
"""

import re
from typing import Any, Final, NamedTuple

from pyoco_server.errors import InvalidInputError


class Rule(NamedTuple):
    """What an identifier may look like."""

    pattern: str
    """A regular expression for the whole text, without anchors; Python and JSON Schema read it in the same way."""
    longest: int
    """In characters."""
    words: str
    """The same in words: what the text must be."""

    def fits(self, text: object) -> bool:
        """Whether this is a text that can be such an identifier."""
        return isinstance(text, str) and len(text) <= self.longest and re.fullmatch(self.pattern, text) is not None

    def checked(self, text: str, field: str) -> str:
        """Return the text; InvalidInputError names the field and the rule."""
        if not self.fits(text):
            raise InvalidInputError(f"{field}: {self.problem(text)}")
        return text

    def problem(self, text: str) -> str:
        """Say what is wrong with a text that does not fit."""
        return f"{text!r:.80} cannot be used; give {self.words}"

    @property
    def json_schema(self) -> dict[str, Any]:
        """The rule as keywords of JSON Schema."""
        return {"minLength": 1, "maxLength": self.longest, "pattern": f"^{self.pattern}$"}


_WORD: Final = r"[A-Za-z0-9_-]+"
_PRINTED: Final = r"[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*"


def _token(longest: int = 128) -> Rule:
    return Rule(_WORD, longest, f"1 to {longest} characters, only letters, digits, '_' and '-'")


def _dotted(longest: int = 128) -> Rule:
    words = f"1 to {longest} characters, only letters, digits, '_' and '-', in parts with a '.' between them"
    return Rule(rf"{_WORD}(\.{_WORD})*", longest, words)


def _text(longest: int) -> Rule:
    return Rule(_PRINTED, longest, f"1 to {longest} characters, not blanks alone, without control characters")


TOKEN: Final = _token()
"""One token of a subject: anything else would reach into other subjects."""
TAG: Final = TOKEN
"""Routes a run, or a wheel, to workers."""
RUN_ID: Final = TOKEN
"""Also the id of an execution."""
GRAPH_ID: Final = TOKEN
INSTANCE_ID: Final = TOKEN
"""Of one process of a worker."""
RESOURCE: Final = TOKEN
"""The name of a stream or of a bucket."""
KEY: Final = _dotted()
"""A key of a bucket."""
WORKER_ID: Final = KEY
"""Workers may be called as their machines are, with dots."""
SUBJECT_PREFIX: Final = _dotted(255)
OBJECT_ID: Final = _token(64)
"""The ``nuid`` that NATS gives an object."""
FLOW_NAME: Final = _text(200)
LABEL: Final = _text(128)
"""One of a run's ``tags``, which route nothing."""
NODE_ID: Final = _text(500)
TENANT: Final = Rule(
    "[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", 40, "at most 40 letters and digits, single '-' or '_' between them"
)
