"""Look for known weaknesses: bandit in our own code, pip-audit in our dependencies.

Each exception has its reason: for bandit beside the code, where ruff's rule of the same number is ignored (``noqa``
with a reason: B301 is S301), for pip-audit in ``EXCEPTIONS``. If no advisory service answers, as without a network, the
audit prints that and succeeds; ``--strict`` makes it fail.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PINNED: Final = "constraints.txt"
SERVICES: Final = ("pypi", "osv")
"""The services for dependencies; the second is used only if the first does not answer."""

EXCEPTIONS: Final[Mapping[str, str]] = {}
"""Advisories that do not affect us, by their id, with the reason."""

_SHOWN: Final = 300
_REASON: Final = r"#.*\bnoqa:.*\bS{number}\b[A-Z0-9, ]*\s*\S+"


class Dependencies(NamedTuple):
    """The answer of a service about our dependencies."""

    known: int
    unknown: list[str]
    weak: list[str]


class UnreachableError(Exception):
    """The service gave no answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both audits; return 1 if they found anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail if no advisory service answers")
    strict = parser.parse_args(arguments).strict
    return max(audit_code(ROOT / "src"), audit_dependencies(ROOT / PINNED, strict=strict))


def audit_code(source: Path) -> int:
    """Print the findings of bandit that have no reason; return 1 if there are any."""
    command = ["bandit", "--quiet", "--recursive", "--format", "json", "--configfile", str(ROOT / "pyproject.toml")]
    report = json.loads(_run(*command, str(source)).stdout)
    found = [finding for finding in report["results"] if not _is_explained(finding)]
    for finding in found:
        place = f"{finding['filename']}:{finding['line_number']}"
        print(f"{place}: {finding['test_id']} {finding['issue_text']}")
    for problem in report["errors"]:
        print(f"{problem['filename']}: could not be read: {problem['reason']}")
    explained = len(report["results"]) - len(found)
    print(f"bandit: {len(found)} findings, {explained} with a reason in the code")
    return 1 if found or report["errors"] else 0


def _is_explained(finding: Mapping[str, Any]) -> bool:
    lines = Path(finding["filename"]).read_text(encoding="utf-8").splitlines()
    first, last = min(finding["line_range"]), max(finding["line_range"])
    reason = re.compile(_REASON.format(number=finding["test_id"][1:]))
    return any(reason.search(line) for line in lines[first - 1 : last])


def audit_dependencies(pinned: Path, *, strict: bool) -> int:
    """Print the known advisories about the versions we use; return 1 if there are any."""
    silent: list[str] = []
    for service in SERVICES:
        try:
            answer = ask(service, pinned)
        except UnreachableError as error:
            silent.append(f"{service}: {error}")
            continue
        return judge(answer)
    print("pip-audit: NOT CHECKED: no advisory service answered, so the dependencies were not checked")
    for problem in silent:
        print(f"  {problem}")
    return 1 if strict else 0


def ask(service: str, pinned: Path) -> Dependencies:
    """Ask a service about the pinned versions; UnreachableError without an answer."""
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--timeout", "15"]
    done = _run("pip_audit", "--vulnerability-service", service, "--requirement", str(pinned), *options)
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError) as error:
        raise UnreachableError(_last_line(done.stderr)) from error
    return read(dependencies)


def read(dependencies: Sequence[Mapping[str, Any]]) -> Dependencies:
    """Read the answer; UnreachableError if it knows none of the packages, which is no answer."""
    unknown = [found["name"] for found in dependencies if "skip_reason" in found]
    known = [found for found in dependencies if "skip_reason" not in found]
    if not known:
        raise UnreachableError(f"it knows none of {len(unknown)} packages; is this a mirror without advisories?")
    weak = [
        f"{found['name']} {found['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for found in known
        for flaw in found["vulns"]
        if EXCEPTIONS.keys().isdisjoint({flaw["id"], *flaw.get("aliases", ())})
    ]
    return Dependencies(len(known), unknown, weak)


def judge(answer: Dependencies) -> int:
    """Print the advisories; return 1 if there are any."""
    for flaw in answer.weak:
        print(f"pip-audit: {flaw}")
    for advisory, reason in EXCEPTIONS.items():
        print(f"pip-audit: {advisory} does not affect us: {reason}")
    if answer.unknown:
        print(f"pip-audit: no data about {', '.join(answer.unknown)}")
    print(f"pip-audit: {len(answer.weak)} findings in {answer.known} packages")
    return 1 if answer.weak else 0


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 our own commands


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:_SHOWN]


if __name__ == "__main__":
    sys.exit(main())
