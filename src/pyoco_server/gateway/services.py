"""What the handlers work with. One object, made at the start, handed to every request."""

import dataclasses
from typing import Protocol

from fastapi import Request

from pyoco_server.app.command_desk import CommandDesk
from pyoco_server.app.index_keeper import IndexKeeper
from pyoco_server.app.ports import (
    Clock,
    DeadLetters,
    EventLog,
    GraphRegistry,
    NewId,
    RunIndex,
    Snapshots,
    WorkerRegistry,
    WorkQueue,
)
from pyoco_server.app.run_desk import RunDesk
from pyoco_server.app.submitting import Submitter
from pyoco_server.gateway.watching import WatchHub
from pyoco_server.settings import Settings


class Reachable(Protocol):
    """Says whether the outside can be reached."""

    @property
    def is_connected(self) -> bool:
        """Can it, as far as is known?"""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Use cases and ports, as the gateway needs them."""

    settings: Settings
    store: Reachable
    clock: Clock
    new_id: NewId
    log: EventLog
    snapshots: Snapshots
    queue: WorkQueue
    workers: WorkerRegistry
    dead_letters: DeadLetters
    graphs: GraphRegistry
    index: RunIndex
    keeper: IndexKeeper
    hub: WatchHub
    submitter: Submitter
    desk: RunDesk
    commands: CommandDesk


def services(request: Request) -> Services:
    """The services of the application that serves the request."""
    found: Services = request.app.state.services
    return found
