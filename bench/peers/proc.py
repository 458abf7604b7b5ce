"""Read processes from /proc: their descendants, processor time and memory."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICK_SEC = 1 / os.sysconf("SC_CLK_TCK")


def descendants(roots: Iterable[int]) -> set[int]:
    """These processes and all that come from them, as far as they live."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, [])
    return found


def processor_sec(pids: Iterable[int]) -> float:
    """What they have used so far, with those of their children that have ended."""
    total = 0
    for pid in pids:
        fields = _stat(pid)
        total += sum(int(field) for field in fields[11:15])
    return total * _TICK_SEC


def memory_mib(pids: Iterable[int]) -> float:
    """What they hold; memory they share is counted once."""
    return sum(_pss_kib(pid) for pid in pids) / 1024


def name(pid: int) -> str:
    """What its program is called; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def traced(pid: int) -> bool:
    """Return whether a tracer follows all its threads."""
    try:
        statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return True  # it has ended
    return all("\nTracerPid:\t0\n" not in status for status in statuses)


def _parents() -> dict[int, int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    stats = {pid: _stat(pid) for pid in pids}
    return {pid: int(fields[1]) for pid, fields in stats.items() if fields}


def _stat(pid: int) -> list[str]:
    """The fields after the name, or none if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # it has ended, or has no memory of its own any more
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
