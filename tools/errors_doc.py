"""Writes docs/errors.md from the catalogue of errors, or checks that it is current."""

import sys

from pyoco_server.messages import CATALOGUE, CatalogueEntry
from tools.pages import DOCS, run

PAGE = DOCS / "errors.md"

INTRODUCTION = """\
# Errors

Written by `make docs` from `src/pyoco_server/messages/catalogue.py`.

Every error has two ids that never change; logs, HTTP answers, dead letters and the command line share them. Over HTTP:

```json
{
  "error": {"err_id": "ERR-PYOCO-0005", "msg_id": "MSG-PYOCO-0005", "message": "…", "action": "…", "details": {}},
  "detail": "…"
}
```

`message` and `action` are in the language that `Accept-Language` prefers, or in the server's (`PYOCO_LANG`: `ja`, `en`,
or `auto`, that of the server's locale) if it names neither of the two;
programs should look at `err_id` and at `details`. Log lines carry the English text, the Japanese one as `message_ja`,
`err_id`, `msg_id` and, as `remedy`, what can be done; dead letters carry `err_id`, `msg_id` and the Japanese `message`.

The HTTP status is what such an error is answered with unless a route says otherwise; without one it is told by logs,
dead letters or the command line only. Where a retry cannot help, the same request fails for ever.
"""


def page() -> str:
    """The whole page."""
    lines = [
        INTRODUCTION,
        "| error, message | HTTP | retry | text | what to do |",
        "|---|---|---|---|---|",
        *map(_row, CATALOGUE.values()),
    ]
    return "\n".join(lines) + "\n"


def _row(entry: CatalogueEntry) -> str:
    texts = f"{entry.en}<br>{entry.ja}", f"{entry.action_en}<br>{entry.action_ja}"
    retry = "can help" if entry.retryable else "cannot help"
    return f"| `{entry.err_id}`<br>`{entry.msg_id}` | {entry.http_status or ''} | {retry} | {texts[0]} | {texts[1]} |"


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
