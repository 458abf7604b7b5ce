"""Replace this process by a command that gets a signal when the process that started it is gone.

Usage: python exec_with_parent.py <pid of the parent> <signal> <program> [arguments …]

On Linux a process can request that signal only for itself, and Python code between fork and exec is not safe in a
program with threads. So this small program requests it, and the request survives exec. Other systems have no such
signal.
"""

import ctypes
import os
import signal
import sys

CANNOT_EXECUTE = 126

_PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, command: list[str]) -> None:
    """Replace this process by the command; does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # it ended before the request: no signal will come
        sys.exit("the process that started this program is gone")
    # Restore the defaults: background jobs of a shell ignore the first, Python the second, and exec would inherit both.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)  # its log and store are for its owner only
    try:
        os.execv(command[0], command)  # noqa: S606 (the purpose of this program)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        sys.exit(CANNOT_EXECUTE)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
