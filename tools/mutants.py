"""Test the core by mutation: change the code in small ways, and count the changes that no test detects.

Takes many minutes. Prints the score and the survivors; fails below the goal.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATS = ROOT / "mutants" / "mutmut-cicd-stats.json"
GOAL = 90


def main() -> int:
    """Run mutmut, and print the score of the tests."""
    run = subprocess.run(["mutmut", "run", *sys.argv[1:]], cwd=ROOT, check=False)  # noqa: S603, S607 our own tool
    if run.returncode:
        return run.returncode
    subprocess.run(["mutmut", "export-cicd-stats"], cwd=ROOT, check=True)  # noqa: S607
    stats = json.loads(STATS.read_text(encoding="utf-8"))
    noticed = stats["killed"] + stats["timeout"] + stats["segfault"]
    tried = noticed + stats["survived"] + stats["suspicious"] + stats["no_tests"]
    score = 100 * noticed / tried
    survivors = subprocess.run(["mutmut", "results"], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    print(survivors.stdout)
    print(f"{tried:,} mutants, {noticed:,} noticed: {score:.1f} % (goal {GOAL} %); 'mutmut show NAME' shows one")
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
