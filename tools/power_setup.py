"""Install what the power-loss tests need beside Python: FUSE, which shows their disk to programs, and mkfs.

Missing packages of the system are installed (as root, or with sudo). Where that is not possible, the tests that need
them are skipped, and say so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_PACKAGES: Final = {"fusermount3": "fuse3", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "losetup": "mount"}


def is_available() -> bool:
    """Return whether disks can be mounted here: FUSE in the kernel, its library, and the right to use it."""
    return Path("/dev/fuse").exists() and shutil.which("fusermount3") is not None and os.geteuid() == 0


def why_no_real_disks() -> str | None:
    """Return why real file systems cannot be made and mounted here, or None if they can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if missing := [program for program in _PACKAGES if shutil.which(program) is None]:
        return f"there is no {', '.join(missing)}: install {', '.join(_PACKAGES[program] for program in missing)}"
    if not Path("/dev/loop-control").exists():
        return "the kernel has no loop devices: there is no /dev/loop-control"
    unknown = {"ext4", "xfs"} - {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if unknown:
        return f"the kernel does not know {', '.join(sorted(unknown))}"
    free = subprocess.run(["losetup", "--find"], check=False, capture_output=True, text=True)  # noqa: S607 looked up above
    return None if free.returncode == 0 else f"the kernel refuses a loop device: {free.stderr.strip()}"


def main() -> int:
    """Install the packages that are missing and can be installed."""
    apt = shutil.which("apt-get")
    missing = sorted({package for program, package in _PACKAGES.items() if shutil.which(program) is None})
    if not missing or apt is None or not Path("/dev/fuse").exists():
        return 0
    before = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        command = [*before, apt, "--quiet", "--quiet", *arguments]
        done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 named above
        if done.returncode != 0:
            names = ", ".join(missing)
            print(f"{names} could not be installed: power-loss tests that need them are skipped", file=sys.stderr)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
