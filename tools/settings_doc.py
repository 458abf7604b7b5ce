"""Write docs/settings.md from the settings that the code reads, or check that it is current."""

import inspect
import sys

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from pyoco_server.settings import Settings
from pyoco_server.settings.section import Section, var_of
from pyoco_server.settings.values import Allowed
from tools.pages import DOCS, run

PAGE = DOCS / "settings.md"

TITLES = {"nats": "NATS", "http": "HTTP"}

INTRODUCTION = """\
# Settings

Written by `make docs` from `src/pyoco_server/settings/`, which is what the code reads.

Gateway and worker read environment variables. These can also be in a file, by default `.env` in the current directory,
one `NAME=value` a line; the environment overrides the file. Values in the file are literal: `${…}` is not expanded.
Only the variables below are read from it; it is not loaded into the environment.

- An empty variable counts as not set.
- All settings are checked at the start. The process prints all problems at once, by the names of the variables, with
  ERR-PYOCO-0018, and ends with exit code 1. Values of secrets are never shown.
- A variable that begins with `PYOCO_` but is not known (and not one of the pyoco package's own) is logged with the
  most similar name.
- On and off can be written as `1`/`0`, `true`/`false`, `yes`/`no` or `on`/`off`, in any case.
- Times are in seconds (fractions allowed), sizes in bytes.
"""


def page() -> str:
    """Return the page."""
    parts = [INTRODUCTION.rstrip()]
    for name, field in Settings.model_fields.items():
        parts.append(_section(name, type(field.get_default())))
    return "\n\n".join(parts) + "\n"


def _section(name: str, kind: type[Section]) -> str:
    lines = [
        f"## {TITLES.get(name) or name.replace('_', ' ').capitalize()}",
        "",
        f"{inspect.getdoc(kind)} In code: `settings.{name}`.",
        "",
        "| variable | default | meaning | must be | read by |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + [_row(field) for field in kind.model_fields.values()])


def _row(field: FieldInfo) -> str:
    var = var_of(field)
    allowed = next(note.words for note in field.metadata if isinstance(note, Allowed))
    meaning = " ".join((field.description or "").split())
    readers = ", ".join(var.readers) or "none"
    return f"| `{var.name}` | {_default(field.default)} | {meaning} | {allowed} | {readers} |"


def _default(value: object) -> str:
    """Return a default as it is written in the environment."""
    match value:
        case None | SecretStr():
            return "not set"
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{','.join(value)}`"
        case float():
            return f"`{value:.1f}`" if value < 1000 else f"`{value:.0f}`"
        case _:
            return f"`{value}`"


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
