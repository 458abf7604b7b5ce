"""Write docs/spec-coverage.md, which lists the tests of each part of the specification, or check that it is current."""

import argparse
import contextlib
import io
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = (ROOT / "docs" / "spec-sections.toml", ROOT / "docs" / "spec-004-sections.toml")
TABLE = ROOT / "docs" / "spec-coverage.md"
_ROW: Final = re.compile(r"(?P<document>\d+) (?P<requirement>REQ-\d+) (?P<error>ERR-\S+)")

Tests = dict[str, set[str]]


class Document(NamedTuple):
    """A part of the specification: its title, and its sections with their subjects."""

    title: str
    sections: list[list[str]]


class MarkerCollector:
    """A pytest plugin that notes the ``spec`` markers of the collected tests."""

    def __init__(self) -> None:
        self.tests: Tests = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """List each test under each section that it names; parameters of one test count once."""
        for item in items:
            name = item.nodeid.partition("[")[0]
            for marker in item.iter_markers("spec"):
                for section in marker.args:
                    self.tests[section].add(name)


def main() -> int:
    """Write the table, or with ``--check`` print its problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the table is not current")
    check = parser.parse_args().check
    collector = MarkerCollector()
    listing = io.StringIO()
    with contextlib.redirect_stdout(listing):
        code = pytest.main(
            ["--collect-only", "-qq", "--no-header", "-p", "no:randomly", *_marked()], plugins=[collector]
        )
    if code != pytest.ExitCode.OK:
        print(listing.getvalue())
        return int(code)
    documents, pending = _read()
    problems = _problems(documents, pending, collector.tests)
    table = _table(documents, collector.tests)
    if check and table != _current():
        problems.append(f"{TABLE.relative_to(ROOT)} is not current: run 'make docs'")
    if not check:
        TABLE.write_text(table, encoding="utf-8")
    count = sum(len(document.sections) for document in documents) - len(pending)
    summary = f"{count} sections, each with a test" + (f"; {len(pending)} are pending" if pending else "")
    print("\n".join(problems) if problems else summary)
    return 1 if problems else 0


def _marked() -> list[str]:
    """Return the test files that name a section: to collect all files takes three times as long."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in files if ".spec(" in path.read_text(encoding="utf-8")]


def _read() -> tuple[list[Document], list[str]]:
    documents: list[Document] = []
    pending: list[str] = []
    for file in SECTIONS:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
        pending += given.pop("pending", [])
        documents += [Document(document["title"], document["sections"]) for document in given.values()]
    return documents, pending


def _shown_by(key: str, tests: Tests) -> set[str]:
    """Return the tests of a section; a row of a requirement's errors needs tests that name both."""
    row = _ROW.fullmatch(key)
    if row is None:
        return tests.get(key, set())
    document, requirement, error = row.groups()
    return tests.get(f"{document} {requirement}", set()) & tests.get(f"{document} {error}", set())


def _problems(documents: list[Document], pending: list[str], tests: Tests) -> list[str]:
    listed = [key for document in documents for key, _ in document.sections]
    missing = [f"no test shows {key}" for key in listed if key not in pending and not _shown_by(key, tests)]
    late = [f"{key} is shown now: take it off the pending list" for key in pending if _shown_by(key, tests)]
    strange = [f"{key} is pending, but not listed" for key in pending if key not in listed]
    unknown = [f"{next(iter(tests[key]))} names {key}, which is not listed" for key in sorted(tests.keys() - listed)]
    return missing + late + strange + unknown


def _table(documents: list[Document], tests: Tests) -> str:
    names = " and ".join(f"`{file.relative_to(ROOT)}`" for file in SECTIONS)
    lines = [
        "# Which test shows which part of the specification",
        "",
        f"Written by `make docs` from {names} and the `spec` markers of the tests.",
    ]
    for document in documents:
        lines += ["", f"## {document.title}", "", "| section | what it says | shown by |", "|---|---|---|"]
        for key, words in document.sections:
            shown = "<br>".join(f"`{_short(name)}`" for name in sorted(_shown_by(key, tests)))
            lines.append(f"| {key} | {words} | {shown or 'pending'} |")
    return "\n".join(lines) + "\n"


def _short(nodeid: str) -> str:
    return nodeid.removeprefix("tests/")


def _current() -> str:
    return TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
