"""How often a candidate's processes sync a file, counted by strace while runs go through."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.peers import proc

ATTACH_SEC = 15.0
_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(?:fsync|fdatasync)$", re.MULTILINE)


def count_syncs(pids: Iterable[int], work: Callable[[], object], directory: Path) -> int | None:
    """Calls of fsync and fdatasync by these processes during ``work``; None if they cannot be counted."""
    if (strace := shutil.which("strace")) is None:
        return None
    followed, summary = sorted(pids), directory / "strace.txt"
    whom = [word for pid in followed for word in ("-p", str(pid))]
    command = [strace, "-f", "-qq", "-c", "-e", "trace=fsync,fdatasync", "-o", str(summary), *whom]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 our own command
    try:
        if not _attached(process, followed):
            return None
        work()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(ATTACH_SEC)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return sum(int(calls) for calls in _ROW.findall(summary.read_text())) if summary.exists() else None


def _attached(process: subprocess.Popen[bytes], pids: Iterable[int]) -> bool:
    ends_at = time.monotonic() + ATTACH_SEC
    while not all(proc.traced(pid) for pid in pids):
        if process.poll() is not None or time.monotonic() > ends_at:
            return False
        time.sleep(0.02)
    return True
