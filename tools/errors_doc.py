"""Write docs/errors.md from the catalogue of errors, or check that it is current."""

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
`err_id`, `msg_id` and the remedy as `remedy`; dead letters carry `err_id`, `msg_id` and the Japanese `message`.

The HTTP status is that of the answer, unless a route says otherwise; an error without one appears only in logs, dead
letters or the command line. Where a retry cannot help, the same request always fails.
"""

CODES_INTRODUCTION = """
## Codes of failed runs and tasks

The `error` of a task or a run has a `code`: the name of the exception that the task raised, or one of these.

| code | what happened | what to do |
|---|---|---|"""

CODES = (
    (
        "TIMEOUT",
        "the task did not end within `timeout_sec`",
        "allow more time, or make the task faster",
    ),
    (
        "WORKER_DIED",
        "as many workers died during the task as `max_crashes` allows",
        "look for a crash or too much memory in the task; run it with `isolation: process`",
    ),
    (
        "AT_MOST_ONCE",
        "a task with `at_most_once` was started, and its outcome is unknown",
        "find out whether the call took effect before you submit the run again",
    ),
    (
        "RESULT_LOST",
        "the task needs a result that could not be stored",
        "return a value that can be stored, or allow `recompute`",
    ),
    (
        "WAIT_DEADLINE",
        "a wait without a default was not resumed in time",
        "resume earlier, or give the wait a `default`",
    ),
    (
        "FLOW_NOT_FOUND",
        "no live worker of the tag has the flow",
        "start a worker that has it, and submit the run again",
    ),
    (
        "FLOW_NOT_LOADED",
        "the code of the flow raised an error when it was imported",
        "correct the flow; the message has the error",
    ),
    (
        "DELIVERIES_USED_UP",
        "the run killed a worker with each delivery of its job",
        "look for a crash while the flow is loaded, then submit the run again",
    ),
    (
        "ControlFlowError",
        "the task raised an exception that would end the worker, such as `SystemExit`",
        "raise an ordinary exception",
    ),
    (
        "INTERNAL_ERROR",
        "pyoco-server itself failed; the log has the traceback",
        "report it",
    ),
)


def page() -> str:
    """Return the page."""
    lines = [
        INTRODUCTION,
        "| error, message | HTTP | retry | text | what to do |",
        "|---|---|---|---|---|",
        *map(_row, CATALOGUE.values()),
        CODES_INTRODUCTION,
        *(f"| `{code}` | {happened} | {remedy} |" for code, happened, remedy in CODES),
    ]
    return "\n".join(lines) + "\n"


def _row(entry: CatalogueEntry) -> str:
    texts = f"{entry.en}<br>{entry.ja}", f"{entry.action_en}<br>{entry.action_ja}"
    retry = "can help" if entry.retryable else "cannot help"
    return f"| `{entry.err_id}`<br>`{entry.msg_id}` | {entry.http_status or ''} | {retry} | {texts[0]} | {texts[1]} |"


if __name__ == "__main__":
    sys.exit(run(__doc__, {PAGE: page}))
