"""Check that code, comments, log lines, tests and English documents use the plain vocabulary of the project.

The listed idioms hide the actor of a sentence or have a technical word that a reader would search for. The check also
finds them in identifiers, so that test and function names follow the same vocabulary. ``INTENTIONAL`` lists the lines
where the word is right.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.pages import ROOT

FOLDERS: Final = ("src", "tests", "docs", "tools", "bench", "chaos", "examples", "deploy")
SUFFIXES: Final = frozenset({".py", ".md", ".js", ".css", ".html", ".toml", ".yaml", ".yml", ".service", ".env"})
NOT_ENGLISH: Final = ("docs/ja/", "src/pyoco_server/gateway/dashboard/static/i18n/ja")

IDIOMS: Final = {
    "tell|tells|telling|told": "report, say, send, return, notify",
    "hear|hears|hearing|heard": "receive, see",
    "whoever|whomever": "the process that, the worker that, any client that",
    "nobody|somebody|anybody|everybody": "no worker, another process, any caller, every client",
    "anew": "again",
    "at hand": "available, loaded",
    "spent": "exhausted, used",
    "lets? go|letting go": "release",
    "puts? aside|putting aside": "park",
    "sets? apart|setting apart": "quarantine",
    "go(?:es|ing|ne)? on with|went on with": "resume, continue",
    "take[sn]? up|took up|taking up": "resume, take over",
    "take[sn]? back|took back|taking back": "retract",
    "looks? after|looked after|looking after": "maintain, supervise",
}
INTENTIONAL: Final = frozenset(
    {
        # Recorded logs contain the descriptions and the names of their cases.
        *((f"tests/golden/cases_{name}.py", "@case(") for name in ("commands", "flows", "workers")),
        ("tests/golden/cases_commands.py", "a log somebody else wrote that repeats itself"),
        *(
            ("tests/golden/cases_flows.py", text)
            for text in ('task("tells"', '"hears"', 'Flow("heard")', "def cancel_", '"nobody answers"')
        ),
        ("bench/peers/dbos.py", '("postgres", "nobody")'),  # a user of Unix systems
        ("src/pyoco_server/app/runtime/wait_deadlines.py", "nobody resumed"),  # an error text in logs that are stored
        ("src/pyoco_server/app/snapshots/projection.py", '"let_go_at"'),  # a field of stored snapshots
        ("tests/app/recovery/test_sweeps.py", "nobody resumed"),  # the same text
        ("src/pyoco_server/client/wheel_upload.py", "self.tell()"),  # a method of every file
    }
)
"""Pairs of file and text around the word, where the word is the right one."""
INTERFACES: Final = re.compile(r"\b(?:run_set_apart|spent_job_crashed|watchers_told_later|take_up)\b")
"""``action`` keys of log lines, and ``Engine.take_up``: users depend on them, so they stay, wherever they occur."""

_JOIN: Final = r"[\s_-]"
_PATTERNS: Final = [
    (re.compile(rf"(?<![A-Za-z])(?:{idiom.replace(' ', _JOIN)})(?!{_JOIN}to{_JOIN})(?![A-Za-z])", re.IGNORECASE), plain)
    for idiom, plain in IDIOMS.items()
]
_ANY: Final = re.compile("|".join(pattern.pattern for pattern, _ in _PATTERNS), re.IGNORECASE)
"""Most lines have none, and one search is enough for them."""


def problems(root: Path = ROOT) -> Iterator[str]:
    """Return each use of an idiom, with its place and the words to use instead."""
    for path in sorted(_files(root)):
        name = path.relative_to(root).as_posix()
        if name.startswith(NOT_ENGLISH) or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if _ANY.search(line) is None or any(name == file and text in line for file, text in INTENTIONAL):
                continue
            for pattern, plain in _PATTERNS:
                for found in pattern.finditer(INTERFACES.sub("", line)):
                    yield f"{name}:{number}: {found.group()!r}: write {plain}"


def _files(root: Path) -> Iterator[Path]:
    yield from (path for path in root.iterdir() if path.is_file() and (path.suffix == ".md" or path.name == "Makefile"))
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each idiom below the given paths (default: everywhere); return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", help="beginnings of paths, relative to the root")
    given = parser.parse_args(arguments)
    found = [problem for problem in problems() if not given.paths or problem.startswith(tuple(given.paths))]
    for problem in found:
        print(problem)
    print(f"{len(found)} idioms")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
