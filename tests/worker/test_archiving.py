"""Nobody looks again at the snapshot of a run that has ended: who archives one is answered when it is shown."""

import pytest

from pyoco_server.adapters.memory.graphs import MemoryGraphRegistry
from pyoco_server.app.command_desk import Asked, CommandDesk
from pyoco_server.app.ports import UnavailableError
from tests.worker.faulty import Fault
from tests.worker.world import USER, World, attempt

ARCHIVE = Asked(fields={"type": "ArchiveExecution", "actor": {"kind": "user", "id": "ann"}})


@pytest.mark.parametrize("call", ["snapshots.read", "snapshots.write"])
def test_an_archive_that_is_not_shown_is_an_unknown_outcome_and_the_next_one_shows_it(call: str) -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("any")
        await world.desk.cancel(run_id, USER)
        desk = CommandDesk(world.desk, MemoryGraphRegistry())
        world.trouble.next(call, Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await desk.give(run_id, ARCHIVE)
        assert (await world.types(run_id))[-1] == "EXECUTION_ARCHIVED"
        assert (await world.stored(run_id))["archived_at"] is None
        assert (await desk.give(run_id, ARCHIVE)).events == []
        assert (await world.stored(run_id))["archived_at"] is not None

    attempt(body)
