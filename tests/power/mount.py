"""Shows a :class:`~.disk.Disk` to programs, with FUSE, in a process of its own.

``python -m tests.power.mount MOUNTPOINT SOCKET IMAGE FILESYSTEM SEED`` loads the directory ``IMAGE`` as the synced
content of the disk and mounts it. Commands arrive as lines on the unix socket: ``arm fsync 3 before [part of a path]``,
``fail``. When the power fails, what is left replaces the content of ``IMAGE``, and the process exits: every later
operation fails.
"""

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mfusepy  # type: ignore[import-untyped]  # it ships no type information

from tests.power.disk import FILE_SYSTEMS, Disk, FileSystem, Node, Trigger

MOUNT_SEC: Final = 20.0


class _Operations(mfusepy.Operations):  # type: ignore[misc]
    """What the kernel asks for. Each open file has a number, so that it outlives its name."""

    use_ns = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, Node] = {}
        self._numbers = 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._node(path, fh)
        return {
            "st_ino": node.number,
            "st_mode": node.mode,
            "st_nlink": 2 if node.is_directory else 1,
            "st_size": len(node.data),
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
            **dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), node.mtime_ns),
        }

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        names = self._node(path, fh).names.items()
        return [(name, {"st_ino": node.number, "st_mode": node.mode}, 0) for name, node in [*names]]

    def create(self, path: str, mode: int, flags: int = 0) -> int:
        return self._opened(self._disk.do("create", lambda: self._disk.make(path, stat.S_IFREG | mode & 0o777)))

    def open(self, path: str, flags: int) -> int:
        def opened() -> Node:
            node = self._disk.find(path)
            if flags & os.O_TRUNC:
                node.resize(0)
            return node

        return self._opened(self._disk.do("open", opened))

    def opendir(self, path: str) -> int:
        return self._opened(self._disk.find(path))

    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    def releasedir(self, path: str, fh: int) -> int:
        return self.release(path, fh)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._disk.do("read", lambda: bytes(self._node(path, fh).data[offset : offset + size]))

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._disk.do("write", lambda: self._node(path, fh).write(data, offset))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._disk.do("truncate", lambda: self._node(path, fh).resize(length))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._disk.do("fsync", lambda: self._disk.sync(self._node(path, fh)), path)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return self.fsync(path, datasync, fh)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._disk.do("mkdir", lambda: self._disk.make(path, stat.S_IFDIR | mode & 0o777))
        return 0

    def unlink(self, path: str) -> int:
        self._disk.do("unlink", lambda: self._disk.remove(path, is_directory=False))
        return 0

    def rmdir(self, path: str) -> int:
        self._disk.do("rmdir", lambda: self._disk.remove(path, is_directory=True))
        return 0

    def rename(self, old: str, new: str) -> int:
        self._disk.do("rename", lambda: self._disk.rename(old, new), new)
        return 0

    def link(self, target: str, source: str) -> int:
        self._disk.do("link", lambda: self._disk.link(target, source))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        node = self._disk.find(path)
        node.mode = stat.S_IFMT(node.mode) | mode & 0o7777
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._disk.find(path).mtime_ns = times[1] if times else time.time_ns()
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        blocks = 64 * 1024 * 1024 * 1024 // 4096
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": blocks, "f_bavail": blocks, "f_bfree": blocks}

    def _node(self, path: str, fh: int | None) -> Node:
        found = self._open.get(fh) if fh else None
        return found if found is not None else self._disk.find(path)

    def _opened(self, node: Node) -> int:
        self._numbers += 1
        self._open[self._numbers] = node
        return self._numbers


def _load(disk: Disk, image: Path) -> None:
    for path in sorted(image.rglob("*")):
        name = "/" + path.relative_to(image).as_posix()
        if path.is_dir():
            disk.make(name, stat.S_IFDIR | 0o755)
        else:
            node = disk.make(name, stat.S_IFREG | stat.S_IMODE(path.stat().st_mode))
            node.write(path.read_bytes(), 0)
            node.sync()
    disk.sync(disk.root)
    _sync_names(disk.root)


def _sync_names(node: Node) -> None:
    node.synced_names, node.changed = dict(node.names), False
    for child in node.names.values():
        if child.is_directory:
            _sync_names(child)


def _store(left: dict[str, bytes | None], image: Path) -> None:
    shutil.rmtree(image)
    image.mkdir()
    for name, content in left.items():
        path = image / name.lstrip("/")
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)


def _serve(mountpoint: str, control: str, image: Path, system: str, seed: int) -> None:
    def crashed() -> None:
        _store(disk.image(), image)
        os._exit(0)

    disk = Disk(FILE_SYSTEMS[system], seed=seed, on_crash=crashed)
    _load(disk, image)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(control)
    listener.listen()

    def listen() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("r") as lines:
                match lines.readline().split():
                    case ["arm", operation, count, takes_effect, *within]:
                        disk.arm(Trigger(operation, int(count), takes_effect == "after", "".join(within)))
                    case _:
                        disk.fail()
                connection.sendall(b"+OK\n")

    threading.Thread(target=listen, daemon=True).start()
    mfusepy.FUSE(
        _Operations(disk), mountpoint, foreground=True, use_ino=True, hard_remove=True, default_permissions=True
    )


class Mount:
    """A mounted disk, from the point of view of a test."""

    def __init__(self, path: Path, image: Path, control: Path, process: "subprocess.Popen[bytes]") -> None:
        self.path = path
        self.image = image
        self._control = control
        self._process = process

    def arm(self, trigger: Trigger) -> None:
        """Let the power fail at the n-th ``fsync`` or ``rename`` from now on."""
        when = "after" if trigger.takes_effect else "before"
        self._send(f"arm {trigger.operation} {trigger.nth} {when} {trigger.within}")

    def fail(self) -> None:
        """Let the power fail now, and return when ``image`` is what is left."""
        with contextlib.suppress(OSError):  # it may have failed already
            self._send("fail")
        self._process.wait(MOUNT_SEC)

    @property
    def has_failed(self) -> bool:
        """Return whether the power has failed."""
        return self._process.poll() is not None

    def wait_for_failure(self, timeout_sec: float) -> bool:
        """Return whether the power has failed within the time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_sec)
        return self.has_failed

    def _send(self, line: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(MOUNT_SEC)
            connection.connect(str(self._control))
            connection.sendall(f"{line}\n".encode())
            connection.recv(1)


@contextlib.contextmanager
def mounted(folder: Path, image: Path, system: FileSystem, seed: int) -> Iterator[Mount]:
    """Mount the directory ``image`` on a disk that can lose power. ``folder`` is for the mount point and the socket."""
    folder.mkdir(parents=True, exist_ok=True)
    path, control = folder / "disk", folder / "control"
    path.mkdir(exist_ok=True)
    control.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.power.mount", str(path), str(control), str(image), system.name, str(seed)]
    with subprocess.Popen(command) as process:  # noqa: S603 our own program
        try:
            _wait_until_mounted(path, process)
            yield Mount(path, image, control, process)
        finally:
            process.kill()
            process.wait()
            subprocess.run(["fusermount3", "-u", "-z", str(path)], check=False)  # noqa: S603, S607 FUSE's own program


def _wait_until_mounted(path: Path, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + MOUNT_SEC
    while not path.is_mount():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the disk was not mounted: is FUSE available? ('python -m tools.power_setup')")
        time.sleep(0.02)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
