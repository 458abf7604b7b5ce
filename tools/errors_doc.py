"""Writes docs/errors.md from the catalogue of errors, or checks that it is current."""

import argparse
import sys
from pathlib import Path

from pyoco_server.messages import CATALOGUE, CatalogueEntry

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"

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

`message` and `action` are in the language that `Accept-Language` prefers, Japanese if it names neither of the two;
programs should look at `err_id` and at `details`. Log lines carry the English text with `err_id`, `msg_id` and, as
`remedy`, what can be done.

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


def main() -> int:
    """Write the page, or with ``--check`` only say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the page is not current")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not current: run 'make docs'")
    return 1


if __name__ == "__main__":
    sys.exit(main())
