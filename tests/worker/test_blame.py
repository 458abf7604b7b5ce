"""A run fails with its last delivery only if it killed a worker with each delivery before."""

import asyncio

from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.worker.settlement import Ack
from tests.worker.test_redelivery import die
from tests.worker.world import Held, World, attempt


def test_a_run_that_one_worker_handed_back_is_not_blamed_for_the_death_of_another() -> None:
    async def body(world: World) -> None:
        held = Held()
        flows = {"held": Flow("held") >> held.task()}
        run_id = await world.submit("held")
        stopping = asyncio.create_task(world.hand(flows, "stops").work())
        await held.at_work()
        stopping.cancel()
        await asyncio.wait([stopping])
        dying = asyncio.create_task(world.hand(flows, "dies").work())
        await held.at_work()
        await die(world, dying)
        assert not isinstance(await world.hand(flows, "last").work(), Ack)
        assert (await world.state(run_id)).status == "ACTIVE"
        assert await world.dead() == []

    attempt(body, max_deliver=3)
