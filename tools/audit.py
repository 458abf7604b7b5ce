"""Looks for known weaknesses: bandit in our own code, pip-audit in what we depend on.

An exception is explained where it is made: one of bandit's where ruff's rule of the same number is excused (``noqa``
with a reason: B301 is S301), one of pip-audit's in ``EXCEPTIONS``. That nobody can be asked about dependencies, as on a
machine without a network, is said loudly and is no failure, unless ``--strict`` asks for an answer.
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
"""Who is asked about dependencies; the second only if the first does not answer."""

EXCEPTIONS: Final[Mapping[str, str]] = {}
"""Advisories that do not concern us, by their id, and why not."""

_SHOWN: Final = 300
_REASON: Final = r"#.*\bnoqa:.*\bS{number}\b[A-Z0-9, ]*\s*\S+"


class Dependencies(NamedTuple):
    """What a service says of our dependencies."""

    known: int
    unknown: list[str]
    weak: list[str]


class UnreachableError(Exception):
    """The service gave no answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Both audits; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="fail if nobody can be asked about dependencies")
    strict = parser.parse_args(arguments).strict
    return max(audit_code(ROOT / "src"), audit_dependencies(ROOT / PINNED, strict=strict))


def audit_code(source: Path) -> int:
    """What bandit finds and nobody explained."""
    command = ["bandit", "--quiet", "--recursive", "--format", "json", "--configfile", str(ROOT / "pyproject.toml")]
    told = json.loads(_run(*command, str(source)).stdout)
    found = [finding for finding in told["results"] if not _is_explained(finding)]
    for finding in found:
        place = f"{finding['filename']}:{finding['line_number']}"
        print(f"{place}: {finding['test_id']} {finding['issue_text']}")
    for problem in told["errors"]:
        print(f"{problem['filename']}: could not be read: {problem['reason']}")
    explained = len(told["results"]) - len(found)
    print(f"bandit: {len(found)} findings, {explained} explained where they are")
    return 1 if found or told["errors"] else 0


def _is_explained(finding: Mapping[str, Any]) -> bool:
    lines = Path(finding["filename"]).read_text(encoding="utf-8").splitlines()
    first, last = min(finding["line_range"]), max(finding["line_range"])
    reason = re.compile(_REASON.format(number=finding["test_id"][1:]))
    return any(reason.search(line) for line in lines[first - 1 : last])


def audit_dependencies(pinned: Path, *, strict: bool) -> int:
    """What is known against the versions we use."""
    silent: list[str] = []
    for service in SERVICES:
        try:
            told = ask(service, pinned)
        except UnreachableError as error:
            silent.append(f"{service}: {error}")
            continue
        return judge(told)
    print("pip-audit: NOT CHECKED: no advisory service can be reached from here, so nothing is known of dependencies")
    for problem in silent:
        print(f"  {problem}")
    return 1 if strict else 0


def ask(service: str, pinned: Path) -> Dependencies:
    """What a service says of the pinned versions; UnreachableError if it says nothing."""
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--timeout", "15"]
    done = _run("pip_audit", "--vulnerability-service", service, "--requirement", str(pinned), *options)
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError) as error:
        raise UnreachableError(_last_line(done.stderr)) from error
    return read(dependencies)


def read(dependencies: Sequence[Mapping[str, Any]]) -> Dependencies:
    """What the answer says; UnreachableError if it knows none of them, which is no answer at all."""
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


def judge(told: Dependencies) -> int:
    """1 if there is something known against what we use."""
    for flaw in told.weak:
        print(f"pip-audit: {flaw}")
    for advisory, reason in EXCEPTIONS.items():
        print(f"pip-audit: {advisory} does not concern us: {reason}")
    if told.unknown:
        print(f"pip-audit: nothing is known of {', '.join(told.unknown)}")
    print(f"pip-audit: {len(told.weak)} findings in {told.known} packages")
    return 1 if told.weak else 0


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 our own commands


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1][:_SHOWN]


if __name__ == "__main__":
    sys.exit(main())
