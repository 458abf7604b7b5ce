"""A model of a disk that loses power: what programs see, and what is left of it.

Every file has two contents: the one that programs read, and the one that has been synced. Every directory has two sets
of names likewise. :meth:`Disk.image` returns what a loss of power leaves at that moment, by the rules of a
:class:`FileSystem`. The model does no I/O; :mod:`.mount` shows it to programs.
"""

import errno
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
PAGE: Final = 4096


class FileSystem(NamedTuple):
    """What a file system may lose. Each of these is allowed by POSIX."""

    name: str
    is_journaled: bool
    """Any sync makes all earlier changes of names durable; otherwise only that of the directory itself."""
    flushes_renames: bool
    """A rename over an existing file first syncs the content of the new one."""
    tears_writes: bool
    """Of what was written since the last sync, some pages may be on the disk and others not."""


XFS: Final = FileSystem("xfs", is_journaled=True, flushes_renames=False, tears_writes=False)
EXT4: Final = FileSystem("ext4", is_journaled=True, flushes_renames=True, tears_writes=True)
STRICT: Final = FileSystem("strict", is_journaled=False, flushes_renames=False, tears_writes=True)
"""A file system that keeps only what it promises."""

FILE_SYSTEMS: Final = {system.name: system for system in (XFS, EXT4, STRICT)}


class Node:
    """A file or a directory."""

    __slots__ = (
        "changed",
        "data",
        "dirty",
        "mode",
        "mtime_ns",
        "names",
        "number",
        "synced",
        "synced_names",
        "truncated",
    )

    def __init__(self, number: int, mode: int) -> None:
        self.number = number
        self.mode = mode
        self.mtime_ns = time.time_ns()
        self.data = bytearray()
        self.synced = bytearray()
        self.dirty: list[tuple[int, int]] = []
        self.truncated: int | None = None
        """The smallest size since the last sync, if the file became smaller."""
        self.names: dict[str, Node] = {}
        self.synced_names: dict[str, Node] = {}
        self.changed = False

    @property
    def is_directory(self) -> bool:
        """Return whether this is a directory."""
        return stat.S_ISDIR(self.mode)

    def write(self, content: bytes, offset: int) -> None:
        """Write to the file; nothing of it is on the disk."""
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(content)] = content
        self.dirty.append((offset, len(content)))
        self.mtime_ns = time.time_ns()

    def resize(self, size: int) -> None:
        """Truncate or extend the file."""
        if size < len(self.data):
            del self.data[size:]
            self.truncated = size if self.truncated is None else min(size, self.truncated)
        else:
            grown = size - len(self.data)
            self.dirty.append((len(self.data), grown))
            self.data.extend(bytes(grown))
        self.mtime_ns = time.time_ns()

    def sync(self) -> None:
        """Bring the content to the disk."""
        _apply(self.synced, self.data, self.dirty, self.truncated)
        del self.synced[len(self.data) :]
        self.dirty.clear()
        self.truncated = None

    def left(self, chance: random.Random, *, tears: bool) -> bytes:
        """Return the content after a loss of power."""
        if not (tears and self.dirty):
            return bytes(self.synced)
        torn = bytearray(self.synced)
        pages = [page for page in _pages(self.dirty) if chance.random() < chance.choice((0.1, 0.5, 0.9))]
        _apply(torn, self.data, pages, self.truncated)
        return bytes(torn)


def _pages(ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for offset, length in ranges:
        end = offset + length
        start = offset
        while start < end:
            step = min(end - start, PAGE - start % PAGE)
            yield start, step
            start += step


def _apply(target: bytearray, data: bytearray, ranges: list[tuple[int, int]], truncated: int | None) -> None:
    if truncated is not None:
        del target[truncated:]
    for offset, length in ranges:
        end = min(offset + length, len(data))
        if end <= offset:
            continue
        if offset > len(target):
            target.extend(bytes(offset - len(target)))
        target[offset:end] = data[offset:end]


class Trigger(NamedTuple):
    """When the power fails by itself: at the n-th sync or rename from now on, before or after it takes effect."""

    operation: str
    nth: int
    takes_effect: bool
    within: str = ""
    """Count only operations on paths that contain this; a rename has the path that it leads to."""


class Disk:
    """All files of one file system. Every method may be called from any thread."""

    def __init__(self, system: FileSystem, *, seed: int, on_crash: Callable[[], None]) -> None:
        """``on_crash`` ends the process: no operation follows."""
        self._system = system
        self._chance = random.Random(seed)
        self._on_crash = on_crash
        self._lock = threading.RLock()
        self._numbers = 1
        self._trigger: Trigger | None = None
        self._counted = 0
        self.root = Node(1, stat.S_IFDIR | 0o755)

    def do(self, operation: str, work: Callable[[], T], path: str = "") -> T:
        """Perform an operation of a program. It does not return if the power fails now."""
        with self._lock:
            if self._is_last(operation, path):
                if self._trigger is not None and self._trigger.takes_effect:
                    work()
                self.fail()
            return work()

    def arm(self, trigger: Trigger) -> None:
        """Let the power fail at an operation."""
        with self._lock:
            self._trigger, self._counted = trigger, 0

    def fail(self) -> None:
        """Let the power fail now."""
        with self._lock:
            self._on_crash()

    def _is_last(self, operation: str, path: str) -> bool:
        if self._trigger is None or operation != self._trigger.operation or self._trigger.within not in path:
            return False
        self._counted += 1
        return self._counted >= self._trigger.nth

    def find(self, path: str) -> Node:
        """Return what a path names; OSError if there is nothing."""
        node = self.root
        for name in _parts(path):
            if not node.is_directory:
                raise OSError(errno.ENOTDIR, path)
            if name not in node.names:
                raise OSError(errno.ENOENT, path)
            node = node.names[name]
        return node

    def make(self, path: str, mode: int) -> Node:
        """Create a file or a directory."""
        parent, name = self._parent(path)
        if name in parent.names:
            raise OSError(errno.EEXIST, path)
        self._numbers += 1
        node = Node(self._numbers, mode)
        self._change(parent, name, node)
        return node

    def link(self, path: str, to: str) -> None:
        """Give a file a second name, ``path``."""
        parent, name = self._parent(path)
        if name in parent.names:
            raise OSError(errno.EEXIST, path)
        self._change(parent, name, self.find(to))

    def remove(self, path: str, *, is_directory: bool) -> None:
        """Remove a file or an empty directory."""
        parent, name = self._parent(path)
        node = self.find(path)
        if is_directory and node.names:
            raise OSError(errno.ENOTEMPTY, path)
        if is_directory != node.is_directory:
            raise OSError(errno.ENOTDIR if is_directory else errno.EISDIR, path)
        self._change(parent, name, None)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, in place of what has it."""
        node, (old_parent, old_name), (parent, name) = self.find(old), self._parent(old), self._parent(new)
        there = parent.names.get(name)
        if there is not None and there.is_directory and there.names:
            raise OSError(errno.ENOTEMPTY, new)
        if there is not None and self._system.flushes_renames and not node.is_directory:
            node.sync()
        self._change(old_parent, old_name, None)
        self._change(parent, name, node)

    def sync(self, node: Node) -> None:
        """Bring a file or a directory to the disk."""
        if not node.is_directory:
            node.sync()
        if self._system.is_journaled:
            for directory in self._changed_directories():
                directory.synced_names, directory.changed = dict(directory.names), False
        elif node.is_directory:
            node.synced_names, node.changed = dict(node.names), False

    def image(self) -> dict[str, bytes | None]:
        """Return the files (with their content) and directories (None) that a loss of power leaves, by path."""
        with self._lock:
            if self._system.is_journaled and self._chance.random() < 0.5:  # the journal was written a moment ago
                self.sync(self.root)
            return dict(self._left("", self.root))

    def _left(self, path: str, node: Node) -> Iterator[tuple[str, bytes | None]]:
        for name, child in node.synced_names.items():
            below = f"{path}/{name}"
            if child.is_directory:
                yield below, None
                yield from self._left(below, child)
            else:
                yield below, child.left(self._chance, tears=self._system.tears_writes)

    def _changed_directories(self, start: Node | None = None) -> Iterator[Node]:
        node = start or self.root
        if node.changed:
            yield node
        for child in node.names.values():
            if child.is_directory:
                yield from self._changed_directories(child)

    def _parent(self, path: str) -> tuple[Node, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        parent = self.find(above or "/")
        if not parent.is_directory:
            raise OSError(errno.ENOTDIR, path)
        return parent, name

    @staticmethod
    def _change(parent: Node, name: str, node: Node | None) -> None:
        if node is None:
            parent.names.pop(name, None)
        else:
            parent.names[name] = node
        parent.changed = True
        parent.mtime_ns = time.time_ns()


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
