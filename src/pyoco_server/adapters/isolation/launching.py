"""Starting a child: a fresh interpreter that runs ``child.main`` and nothing else of ours.

This is the ``spawn`` method of ``multiprocessing``, without what comes with it there: no tracker process, no
registration for the exit of the parent, and the main module is imported only when needed.
"""

import os
import socket
import subprocess
import sys
from multiprocessing.spawn import get_executable

from pyoco_server.adapters.isolation.main_module import refuse_while_importing_main

# The search path comes first, so that the child finds this package and the user's exactly where the parent does.
_PROGRAM = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from pyoco_server.adapters.isolation.child import main; main(fd)"
)


def launch(connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start a child that serves this end of a socket pair; the caller closes its own copy."""
    refuse_while_importing_main()
    fd = connection.fileno()
    command = [os.fsdecode(get_executable()), *_interpreter_flags(), "-c", _PROGRAM, str(fd), *sys.path]
    return subprocess.Popen(  # noqa: S603 (our own interpreter and program)
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=(fd,),
        # Its own group: Ctrl-C in a terminal reaches the parent alone, and a kill takes along what a function started.
        process_group=0,
    )


def _interpreter_flags() -> list[str]:
    # Not public, but what multiprocessing itself uses so that -O, -W, -X and the like hold in the child.
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]  # noqa: SLF001
