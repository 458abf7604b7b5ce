"""``nats-bootstrap``, a third party's program that runs the NATS server in our place, for those who ask for it.

It gets our configuration, so data, durability and port are as they would be without it. Told to end by SIGTERM it would
leave its server behind; SIGINT it passes on.
"""

import signal

from pyoco_server.adapters.nats_server.executables import ServerCommand, find_executable, nats_server_binary, usable

EXTRA = "nats-bootstrap"


def nats_bootstrap_command() -> ServerCommand:
    """Run the NATS server through ``nats-bootstrap up``. Raises if one of the two programs is missing."""
    remedy = f"Install it with \"pip install 'pyoco-server[{EXTRA}]'\", or start without it."
    program = usable(find_executable("nats-bootstrap", distribution="nats-bootstrap"), "nats-bootstrap", remedy)
    # Left to itself it looks for a server on the PATH only, where that of an environment need not be.
    arguments = (str(program), "up", "--nats-server-path", str(nats_server_binary()), "--nats-config")
    return ServerCommand(arguments, signal.SIGINT)
