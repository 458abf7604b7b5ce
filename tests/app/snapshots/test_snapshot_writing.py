"""What a worker believes of the snapshot that is stored, and what that costs."""

import asyncio

import msgspec
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information
from pyoco.core.models import Task  # type: ignore[import-untyped]
from pyoco.dsl.syntax import TaskWrapper  # type: ignore[import-untyped]
from typing_extensions import override

from pyoco_server.adapters.memory.snapshots import MemorySnapshots
from pyoco_server.worker.active_run import SETTLE_SEC
from tests.waiting import wait_until
from tests.worker.world import USER, Held, World, attempt


class Believing(MemorySnapshots):
    """Notes what each writer believed to be stored, beside the status it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.beliefs: list[tuple[str, bool | None]] = []
        """None: it believed nothing, and had to look."""

    @override
    async def write(
        self, run_id: str, body: bytes, *, position: int, revision: int | None = None, is_urgent: bool = True
    ) -> int | None:
        stored = await self.read(run_id)
        is_right = None if revision is None else revision == (stored.revision if stored is not None else 0)
        self.beliefs.append((msgspec.json.decode(body)["status"], is_right))
        return await super().write(run_id, body, position=position, revision=revision, is_urgent=is_urgent)


def test_after_a_cancel_the_worker_does_not_try_a_revision_that_is_gone() -> None:
    """The canceller writes a snapshot, so the last write, which all waiters need, would be refused and tried again."""

    async def body(world: World) -> None:
        world.snapshots.inner = believing = Believing()
        held = Held()
        run_id = await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        await world.cancel(run_id, USER)
        await working
        assert believing.beliefs[-1] == ("CANCELLED", None)
        assert ("CANCELLING", True) in believing.beliefs
        assert all(is_right is not False for _, is_right in believing.beliefs)

    attempt(body)


def test_a_requested_cancel_is_written_by_its_gateway_and_not_again() -> None:
    """A write of our own would be under way just when a task that cleans up for a moment has ended."""

    async def body(world: World) -> None:
        asked, may_end = asyncio.Event(), asyncio.Event()

        async def clean_up() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                asked.set()
                await may_end.wait()

        run_id = await world.submit("slow")
        flow = Flow("slow") >> TaskWrapper(Task(func=clean_up, name="slow"))
        working = asyncio.create_task(world.hand({"slow": flow}).work())
        await wait_until(lambda: b'"RUNNING"' in world.snapshots.written[-1])
        await world.cancel(run_id, USER)
        await asked.wait()
        await asyncio.sleep(2 * SETTLE_SEC)  # by then it would have been written
        may_end.set()
        await working
        statuses = [msgspec.json.decode(body)["status"] for body in world.snapshots.written]
        assert statuses.count("CANCELLING") == 1
        assert statuses[-1] == "CANCELLED"

    attempt(body)


def test_the_snapshot_of_a_run_without_other_writers_is_written_without_a_read() -> None:
    async def body(world: World) -> None:
        world.snapshots.inner = believing = Believing()
        held = Held()
        await world.submit("held")
        working = asyncio.create_task(world.hand({"held": Flow("held") >> held.task()}).work())
        await held.at_work()
        held.release()
        await working
        assert believing.beliefs[-1] == ("COMPLETED", True)

    attempt(body)
