"""Clones of real file systems, taken while a platform writes to them: what a loss of power leaves of a real disk.

A file system is mounted from a file, through a loop device. That file lies on another file system, XFS, which clones
files atomically. A clone has exactly what had reached the disk; what the kernel had not written yet is missing.
"""

import asyncio
import contextlib
import fcntl
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.power.clients import asking
from tests.power.promises import Outcome, Promises
from tests.power.world import START_SEC, PowerWorld

REAL_FILE_SYSTEMS: Final = ("ext4", "xfs")
_CLONE: Final = 0x40049409
"""FICLONE: let a file share all blocks of another one."""
_OUTER_SIZE: Final = 8 << 30
_SIZE: Final = 1 << 30
"""Of sparse files: they take what is written."""
_MAKE: Final = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
_MOUNT: Final = {"ext4": "loop", "xfs": "loop,nouuid"}


class Clone(NamedTuple):
    """A disk as the power left it, and what had been promised by then."""

    disk: Path
    promises: Promises


class RealDisk:
    """A real file system in a file."""

    def __init__(self, outer: Path, kind: str) -> None:
        self.kind = kind
        self._outer = outer
        self._file = outer / "disk"
        self._clones = 0
        _make(self._file, _SIZE, *_MAKE[kind])

    @contextlib.contextmanager
    def mounted(self, path: Path, clone: Clone | None = None) -> Iterator[Path]:
        """Mount the disk, or a clone of it, with the options that users have: nothing is changed for the test."""
        with _mounted(clone.disk if clone else self._file, path, _MOUNT[self.kind]):
            yield path

    def clone(self, promises: Promises) -> Clone:
        """Take a clone now."""
        self._clones += 1
        kept, path = promises.copy(), self._outer / f"clone-{self._clones}"
        with self._file.open("rb") as source, path.open("wb") as target:
            fcntl.ioctl(target.fileno(), _CLONE, source.fileno())
        return Clone(path, kept)


@contextlib.contextmanager
def real_disk(home: Path, kind: str) -> Iterator[RealDisk]:
    """Make a disk with a file system, and the file system below it."""
    below, outer = home / "below", home / "outer"
    _make(below, _OUTER_SIZE, "mkfs.xfs", "-q", "-f", "-m", "reflink=1")
    with _mounted(below, outer, "loop"):
        yield RealDisk(outer, kind)


async def clones_under_load(
    home: Path, kind: str, seed: int, *, clones: int, is_large: bool, **settings: Any
) -> list[Outcome]:
    """Clone the disk of a platform under load some times; then start a platform on each clone and check it."""
    chance = random.Random(f"clones {seed}")
    world = PowerWorld(home, **settings)
    with real_disk(home, kind) as disk:
        taken = await _taken(world, disk, home / "mount", chance, clones=clones, is_large=is_large)
        outcomes = []
        for clone in taken:
            with disk.mounted(home / "mount", clone) as path:
                outcomes.append(await world.outcome(path / "data", clone.promises))
            clone.disk.unlink()
        return outcomes


async def _taken(
    world: PowerWorld, disk: RealDisk, mount: Path, chance: random.Random, *, clones: int, is_large: bool
) -> list[Clone]:
    taken: list[Clone] = []
    with disk.mounted(mount) as path:
        async with world.running(path / "data") as client:
            clients = world.clients(client, f"{disk.kind} ")
            load = [clients.ask(), clients.fill()] if is_large else [clients.ask()]
            async with asking(*load):
                await world.answers(50)
                while len(taken) < clones:
                    taken.append(await asyncio.to_thread(_clone, disk, path, world.promises, chance))
    return taken


def _clone(disk: RealDisk, path: Path, promises: Promises, chance: random.Random) -> Clone:
    _wait_for_a_moment(path, chance)
    return disk.clone(promises)


def _wait_for_a_moment(path: Path, chance: random.Random) -> None:
    """Return at a random moment, or just after NATS replaced a block."""
    seconds = chance.uniform(0.1, 2.0)
    if chance.random() < 0.5:
        time.sleep(seconds)
        return
    before, end = _blocks(path), time.monotonic() + 5 * seconds
    while not _is_replaced(before, _blocks(path)) and time.monotonic() < end:
        time.sleep(0.002)


def _blocks(path: Path) -> dict[Path, int]:
    found = {}
    for block in path.glob("data/nats/jetstream/*/streams/*/msgs/*.blk"):
        with contextlib.suppress(FileNotFoundError):
            found[block] = block.stat().st_ino
    return found


def _is_replaced(before: dict[Path, int], now: dict[Path, int]) -> bool:
    return any(inode != before.get(block, inode) for block, inode in now.items())


# --- Programs of the system -------------------------------------------------------------------------------------------


def _make(file: Path, size: int, *command: str) -> None:
    with file.open("wb") as new:
        new.truncate(size)
    _run(*command, str(file))


@contextlib.contextmanager
def _mounted(file: Path, path: Path, options: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    _run("mount", "-o", options, str(file), str(path))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_SEC)  # noqa: S603 named above
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
