"""Records golden logs: ``python -m tests.golden.record [CASE …] [--force]``.

Without a case, it records all that are not recorded yet. A recorded log stands for all logs of its kind that users
have, so only ``--force`` replaces one. ``--documents`` does not change any log and writes only the documents behind it
again, after fields were added to them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.golden import cases_commands, cases_flows, cases_graphs, cases_platform, cases_workers
from tests.golden.files import LOGS, Recorded, all_cases, decoded, load, path_of, write
from tests.golden.recording import CASES

__all__ = ["CASES", "cases_commands", "cases_flows", "cases_graphs", "cases_platform", "cases_workers", "main"]


def main(argv: Sequence[str] | None = None, folder: Path = LOGS) -> int:
    """Record the given cases; return 1 if one is recorded already, 2 if there is no such case."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all that are not recorded yet, if none is named")
    parser.add_argument("--force", action="store_true", help="replace recorded cases; read README.md before you do")
    parser.add_argument("--documents", action="store_true", help="write the documents of all recorded logs again")
    arguments = parser.parse_args(argv)
    if arguments.documents:
        return _documents(folder)
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        sys.stderr.write(f"no such case: {', '.join(unknown)}; there are: {', '.join(sorted(CASES))}\n")
        return 2
    there = [name for name in arguments.cases if path_of(name, folder).exists()]
    if there and not arguments.force:
        sys.stderr.write(f"recorded already: {', '.join(there)}; --force replaces it, but read README.md first\n")
        return 1
    for name in arguments.cases or [name for name in CASES if not path_of(name, folder).exists()]:
        path = write(name, CASES[name].about, CASES[name].record(), folder)
        sys.stdout.write(f"{path.name}: {path.stat().st_size} bytes\n")
    return 0


def _documents(folder: Path) -> int:
    for golden in [load(case, folder) for case in all_cases(folder)]:
        events = decoded(golden)
        path = write(golden.case, golden.about, Recorded(events, golden.stored), folder)
        assert load(golden.case, folder).lines == golden.lines, f"{path.name}: the log itself would change"
    return 0


if __name__ == "__main__":
    sys.exit(main())
