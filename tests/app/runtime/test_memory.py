"""A process that runs flows all day keeps nothing of those that have ended."""

import subprocess
import sys
from pathlib import Path

MARGIN_BYTES = 60_000
ROOT = Path(__file__).resolve().parents[3]


def test_memory_does_not_grow_with_the_number_of_runs() -> None:
    """In a process of its own, since objects of other tests would be counted here."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.app.runtime.memory_use"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    early, late = map(int, ended.stdout.split())
    assert late - early < MARGIN_BYTES
