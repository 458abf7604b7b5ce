"""``python -m bench``: everything that is promised about speed, measured in one run and shown in one table."""

import sys
from collections.abc import Sequence

from bench.command import Command, prepare
from bench.rows import Row, table
from bench.subjects import (
    cancelling,
    holding,
    pages,
    recovering,
    resuming,
    runs,
    starting,
    steps,
    submitting,
    watching,
)

COMMAND = Command[Row](
    "python -m bench",
    __doc__,
    {
        "runs": runs.rows,
        "submitting": submitting.rows,
        "steps": steps.rows,
        "cancelling": cancelling.rows,
        "resuming": resuming.rows,
        "recovering": recovering.rows,
        "pages": pages.rows,
        "watching": watching.rows,
        "holding": holding.rows,
        "starting": starting.rows,
    },
    "rows",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    arguments = COMMAND.parser().parse_args(argv)
    prepare()
    return COMMAND.run(arguments, lambda rows: print(table(rows)))


if __name__ == "__main__":
    sys.exit(main())
