"""Install what the power-loss tests need beside Python: FUSE, which shows their disk to programs.

The package of the system is installed if it is missing (as root, or with sudo). Where that is not possible, the tests
that need it are skipped, and say so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path


def is_available() -> bool:
    """Return whether disks can be mounted here: FUSE in the kernel, its library, and the right to use it."""
    return Path("/dev/fuse").exists() and shutil.which("fusermount3") is not None and os.geteuid() == 0


def main() -> int:
    """Install the package if it is missing and can be installed."""
    apt = shutil.which("apt-get")
    if is_available() or apt is None or not Path("/dev/fuse").exists():
        return 0
    before = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "fuse3"]):
        command = [*before, apt, "--quiet", "--quiet", *arguments]
        done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 named above
        if done.returncode != 0:
            print("fuse3 could not be installed: the power-loss tests are skipped", file=sys.stderr)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
