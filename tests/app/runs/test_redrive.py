"""A redrive while stores fail or its process dies: one new run or none, never a half of one."""

from collections.abc import Sequence
from typing import Any

import pytest
from pyoco import Flow  # type: ignore[import-untyped]  # pyoco ships no type information

from pyoco_server.app.ports import TooLargeError, UnavailableError
from pyoco_server.app.runs.queries import snapshot_of
from pyoco_server.app.runs.redrive import NotRedrivableError, Redriver, RedriveRequest, RunRedrives
from pyoco_server.app.runs.run_log import COPY_SEC, RunNotFoundError
from pyoco_server.app.runs.submit import IdempotencyKeyError
from pyoco_server.core import Event
from pyoco_server.core.json_codec import JsonObject
from tests.app.runtime.flows import Calls
from tests.worker.faulty import Fault
from tests.worker.world import USER, World, attempt

KEYED: dict[str, Any] = {"api_key_id": None, "key": "k"}


def redrives(world: World) -> RunRedrives:
    redriver = Redriver(log=world.log, outputs=world.outputs, clock=world.clock, new_id=world.new_id)
    return RunRedrives(world.run_log, redriver, world.new_id)


class Work:
    """A flow of three tasks, the second of which fails until it is mended."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.is_mended = False

    def flows(self) -> dict[str, Flow]:
        def second(ctx: Any) -> str:
            if not self.is_mended:
                raise ValueError("broken")
            return str(ctx.results["first"])[:3]

        task = self.calls.task
        return {"work": Flow("work") >> task("first", "x" * 100_000) >> task("second", second) >> task("third", 3)}


async def failed(world: World, work: Work) -> str:
    run_id = await world.submit("work")
    await world.hand(work.flows()).work()
    work.is_mended = True
    work.calls.names.clear()
    return run_id


async def redrive(world: World, run_id: str, *, key: str | None = None, **request: Any) -> JsonObject:
    snapshot, _ = await redrives(world).redrive(run_id, RedriveRequest(**request), USER, key=key, api_key_id=None)
    return snapshot


async def logs(world: World) -> set[str]:
    return {*world.log.inner._lines}


def test_the_new_run_has_a_snapshot_and_a_job_and_ends() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        new = str((await redrive(world, old))["run_id"])
        assert (await world.stored(new))["redrive"]["of"] == old
        await world.hand(work.flows()).work()
        assert (await world.stored(new))["status"] == "COMPLETED"
        assert work.calls.names == ["second", "third"]

    attempt(body)


@pytest.mark.parametrize("lost", ["queue.publish", "snapshots.write", "snapshots.read"])
@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED])
def test_what_the_log_has_is_accepted_whatever_else_fails(lost: str, fault: Fault) -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        world.trouble.next(lost, fault)
        new = str((await redrive(world, old))["run_id"])
        await world.run_log.restore(new)
        await world.pass_time(5)
        await world.hand(work.flows()).work()
        assert (await world.state(new)).status == "COMPLETED"
        assert work.calls.names == ["second", "third"]

    attempt(body)


def test_a_run_whose_process_died_behind_the_commit_is_restored() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        redriver = Redriver(log=world.log, outputs=world.outputs, clock=world.clock, new_id=world.new_id)
        new = await redriver.prepare(await world.events(old), RedriveRequest(), USER, "new-run")
        await redriver.begin(new)
        assert await world.run_log.restore("new-run") is not None
        await world.hand(work.flows()).work()
        assert (await world.stored("new-run"))["status"] == "COMPLETED"

    attempt(body)


@pytest.mark.parametrize("fault", [Fault.NOT_DONE, Fault.UNANSWERED, Fault.REFUSED, Fault.BROKEN_AFTER])
def test_without_a_key_an_unknown_outcome_leaves_no_run(fault: Fault) -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        before = await logs(world)
        kept = {*world.outputs._kept}
        world.trouble.next("log.append", fault)
        with pytest.raises(Exception, match=r"log\.append"):
            await redrive(world, old)
        for run_id in await logs(world) - before:
            assert (await world.state(run_id)).status == "CANCELED"
            with pytest.raises(RunNotFoundError):
                await snapshot_of(world.snapshots, world.run_log, run_id)
        assert {*world.outputs._kept} == kept

    attempt(body)


def test_with_a_key_the_same_request_finds_the_outcome() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        world.trouble.next("log.append", Fault.UNANSWERED)
        with pytest.raises(UnavailableError):
            await redrive(world, old, key="k")
        first, second = [await redrive(world, old, key="k") for _ in range(2)]
        assert first["run_id"] == second["run_id"]
        with pytest.raises(IdempotencyKeyError):
            await redrive(world, old, key="k", cut="start")
        assert (await redrive(world, old, key="other"))["run_id"] != first["run_id"]

    attempt(body)


def test_a_missing_output_runs_again() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        world.outputs._kept.clear()
        new = str((await redrive(world, old))["run_id"])
        await world.hand(work.flows()).work()
        assert (await world.stored(new))["status"] == "COMPLETED"
        assert work.calls.names == ["first", "second", "third"]

    attempt(body)


def test_a_run_that_has_not_ended_is_refused() -> None:
    async def body(world: World) -> None:
        run_id = await world.submit("work")
        with pytest.raises(NotRedrivableError):
            await redrive(world, run_id)
        with pytest.raises(RunNotFoundError):
            await redrive(world, "no-such-run")

    attempt(body)


# --- A copy that takes several messages ------------------------------------------------------------------------------


def narrow(world: World, most: int, *, dies_after: int | None = None) -> None:
    """Let a message have so many events; the process dies after so many messages."""
    append, done = world.log.inner.append, [0]

    async def narrowed(execution_id: str, commit: Sequence[Event], *, after: int, quiet: bool = False) -> int:
        if len(commit) > most:
            raise TooLargeError("too large")
        if dies_after is not None and done[0] >= dies_after:
            raise KeyboardInterrupt
        done[0] += 1
        return await append(execution_id, commit, after=after, quiet=quiet)

    world.log.inner.append = narrowed  # type: ignore[method-assign]


def test_a_large_copy_is_split_and_runs_when_it_is_whole() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        narrow(world, 5)
        new = str((await redrive(world, old))["run_id"])
        created, *_ = await world.events(new)
        assert created.payload.extra["redrive"]["copied"] > 5
        await world.hand(work.flows()).work()
        assert (await world.stored(new))["status"] == "COMPLETED"
        assert work.calls.names == ["second", "third"]

    attempt(body)


def test_a_half_copied_run_is_never_seen_and_never_driven() -> None:
    async def body(world: World) -> None:
        work = Work()
        old = await failed(world, work)
        whole = world.log.inner.append
        narrow(world, 5, dies_after=2)
        redriver = Redriver(log=world.log, outputs=world.outputs, clock=world.clock, new_id=world.new_id)
        new = await redriver.prepare(await world.events(old), RedriveRequest(), USER, "new-run")
        with pytest.raises(KeyboardInterrupt):
            await redriver.begin(new)
        world.log.inner.append = whole  # type: ignore[method-assign]
        with pytest.raises(RunNotFoundError):
            await snapshot_of(world.snapshots, world.run_log, "new-run")
        with pytest.raises(UnavailableError):  # its process may still be at work
            await world.run_log.restore("new-run")
        await world.pass_time(COPY_SEC)
        assert await world.run_log.restore("new-run") is None
        assert (await world.state("new-run")).status == "CANCELED"
        with pytest.raises(RunNotFoundError):
            await snapshot_of(world.snapshots, world.run_log, "new-run")

    attempt(body)
