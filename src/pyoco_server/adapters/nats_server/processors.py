"""How many processors the server uses at a time.

Left to itself it uses all there are. Its threads look for work for a while before they sleep, and wake each other for
every message: on a machine with few processors that takes time from those who use the server, and nobody is served
sooner. One processor carries far more than the gateways and workers that fit beside it on such a machine.
"""

import os
from collections.abc import Mapping
from typing import Final

from pyoco_server.adapters.nats_server.configuration import SyncedBy

GO_VARIABLE: Final = "GOMAXPROCS"
"""What the server's runtime calls it. Whoever sets it has decided."""

_ONE_FOR: Final = 4
_MANY: Final = 8
"""On larger machines the server decides by itself; it knows of limits we do not."""


def environment(
    given: Mapping[str, str], *, processors: int, synced_by: SyncedBy, is_for_others: bool
) -> dict[str, str]:
    """The environment of a server on a machine with so many processors.

    One that syncs by itself is left alone: while it waits for the disk, others of its threads are to go on. So is one
    that other machines use: what they ask of it does not depend on how large this one is.
    """
    if GO_VARIABLE in given or synced_by == "server" or is_for_others or processors > _MANY:
        return dict(given)
    return {**given, GO_VARIABLE: str(max(1, processors // _ONE_FOR))}


def processors_here() -> int:
    """How many there are for this process and its children."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
