"""A program of its own that becomes another one, which is sent a signal when the process that started it is gone.

Usage: python exec_with_parent.py <pid of the parent> <signal> <program> [arguments …]

On Linux a process can ask for that signal only itself, and code of ours between fork and exec is not safe in a program
with threads. So this small one asks, and the wish outlives exec. Elsewhere there is no such signal.
"""

import ctypes
import os
import signal
import sys

CANNOT_EXECUTE = 126

_PR_SET_PDEATHSIG = 1


def main(parent: int, death_signal: int, command: list[str]) -> None:
    """Become the command; does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:  # gone before we asked: no signal will come
        sys.exit("the process that wanted this program is gone")
    # As at a login: background jobs of a shell ignore the first, Python itself the second, and both are inherited.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)  # noqa: S606 (that is what this is for)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        sys.exit(CANNOT_EXECUTE)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
