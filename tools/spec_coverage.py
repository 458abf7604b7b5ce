"""Which test shows which part of the specification: writes docs/spec-coverage.md, or checks that it is current."""

import argparse
import contextlib
import io
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ROOT / "docs" / "spec-sections.toml"
TABLE = ROOT / "docs" / "spec-coverage.md"


class MarkerCollector:
    """A pytest plugin that notes the ``spec`` markers of the collected tests."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note each test under each section it names; parameters of one test count once."""
        for item in items:
            name = item.nodeid.partition("[")[0]
            for marker in item.iter_markers("spec"):
                for section in marker.args:
                    self.tests[section].add(name)


def main() -> int:
    """Write the table, or with ``--check`` only say what is wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail if the table is not current")
    check = parser.parse_args().check
    collector = MarkerCollector()
    listing = io.StringIO()
    with contextlib.redirect_stdout(listing):
        code = pytest.main(["--collect-only", "-qq", "--no-header", "-p", "no:randomly", "tests"], plugins=[collector])
    if code != pytest.ExitCode.OK:
        print(listing.getvalue())
        return int(code)
    documents = tomllib.loads(SECTIONS.read_text(encoding="utf-8"))
    problems = _problems(documents, collector.tests)
    table = _table(documents, collector.tests)
    if check and table != _current():
        problems.append(f"{TABLE.relative_to(ROOT)} is not current: run 'make docs'")
    if not check:
        TABLE.write_text(table, encoding="utf-8")
    print("\n".join(problems) if problems else f"{sum(map(_size, documents.values()))} sections, each with a test")
    return 1 if problems else 0


def _problems(documents: dict[str, dict[str, list[list[str]]]], tests: dict[str, set[str]]) -> list[str]:
    listed = [key for document in documents.values() for key, _ in document["sections"]]
    missing = [f"no test shows {key}" for key in listed if key not in tests]
    unknown = [f"{next(iter(tests[key]))} names {key}, which is not listed" for key in sorted(tests.keys() - listed)]
    return missing + unknown


def _table(documents: dict[str, dict[str, list[list[str]]]], tests: dict[str, set[str]]) -> str:
    lines = [
        "# Which test shows which part of the specification",
        "",
        "Written by `make docs` from `docs/spec-sections.toml` and the `spec` markers of the tests.",
    ]
    for document in documents.values():
        lines += ["", f"## {document['title']}", "", "| section | what it says | shown by |", "|---|---|---|"]
        for key, words in document["sections"]:
            shown = "<br>".join(f"`{_short(name)}`" for name in sorted(tests.get(key, ())))
            lines.append(f"| {key} | {words} | {shown} |")
    return "\n".join(lines) + "\n"


def _short(nodeid: str) -> str:
    return nodeid.removeprefix("tests/")


def _size(document: dict[str, list[list[str]]]) -> int:
    return len(document["sections"])


def _current() -> str:
    return TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
