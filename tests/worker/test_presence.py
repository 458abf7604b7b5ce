"""The worker's entry in the registry: the fields of the specification, and who may write what."""

import asyncio
from typing import Any

import pytest

from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import UnavailableError
from pyoco_server.testing.virtual_clock import START
from pyoco_server.worker.registration import WorkerRegistration, WorkerState
from tests.waiting import wait_until
from tests.worker.faulty import Fault
from tests.worker.world import World, attempt

NOW = START.timestamp()


def presence(world: World, *, interval_sec: float = 5.0, instance_id: str = "i1") -> WorkerRegistration:
    return WorkerRegistration(
        world.registry,
        world.clock,
        worker_id="w1",
        instance_id=instance_id,
        tags=("cpu", "gpu"),
        interval_sec=interval_sec,
    )


async def entry(world: World) -> dict[str, Any]:
    found = await world.registry.get("w1")
    assert found is not None
    return found


def test_a_worker_that_begins_is_idle() -> None:
    async def body(world: World) -> None:
        await presence(world).announce()
        assert await entry(world) == {
            "worker_id": "w1",
            "instance_id": "i1",
            "state": "IDLE",
            "hidden": False,
            "last_seen_at": NOW,
            "last_heartbeat_at": NOW,
            "tags": ["cpu", "gpu"],
            "current_run_id": None,
            "current_run_ids": [],
            "last_run_id": None,
            "last_run_status": None,
            "last_run_started_at": None,
            "last_run_finished_at": None,
            "stopped_at": None,
            "stop_reason": None,
            "flows": None,
            "flows_at": NOW,
        }

    attempt(body)


def test_the_states_are_those_of_the_specification() -> None:
    assert [*WorkerState] == ["RUNNING", "IDLE", "STOPPED_GRACEFUL", "DISCONNECTED"]


def test_a_worker_at_work_says_on_what() -> None:
    async def body(world: World) -> None:
        made = presence(world)
        made.run_started("r1")
        await world.pass_time(10)
        made.run_started("r2")
        await made.announce()
        found = await entry(world)
        assert (found["state"], found["current_run_id"], found["current_run_ids"]) == ("RUNNING", "r1", ["r1", "r2"])
        made.run_finished("r1", "COMPLETED")
        await made.announce()
        found = await entry(world)
        assert (found["state"], found["current_run_id"]) == ("RUNNING", "r2")
        assert (found["last_run_id"], found["last_run_status"]) == ("r1", "COMPLETED")
        assert (found["last_run_started_at"], found["last_run_finished_at"]) == (NOW, NOW + 10)
        made.run_finished("r2", "FAILED")
        await made.announce()
        found = await entry(world)
        assert (found["state"], found["current_run_id"], found["last_run_status"]) == ("IDLE", None, "FAILED")
        assert found["last_seen_at"] == found["last_heartbeat_at"] == NOW + 10

    attempt(body)


def test_fields_that_an_operator_wrote_are_kept() -> None:
    async def body(world: World) -> None:
        made = presence(world)
        await made.announce()
        await world.registry.update("w1", lambda found: {**(found or {}), "hidden": True, "note": "do not touch"})
        made.run_started("r1")
        await made.announce()
        await presence(world, instance_id="i2").announce()
        found = await entry(world)
        assert (found["hidden"], found["note"]) == (True, "do not touch")
        assert (found["current_run_id"], found["current_run_ids"]) == (None, [])
        assert (found["instance_id"], found["state"], found["stopped_at"]) == ("i2", "IDLE", None)

    attempt(body)


def test_a_worker_that_leaves_says_when_and_why() -> None:
    async def body(world: World) -> None:
        made = presence(world)
        made.run_started("r1")
        await world.pass_time(7)
        await made.stopped("graceful_shutdown")
        found = await entry(world)
        assert (found["state"], found["stopped_at"], found["stop_reason"]) == (
            "STOPPED_GRACEFUL",
            NOW + 7,
            "graceful_shutdown",
        )
        assert (found["current_run_id"], found["current_run_ids"]) == (None, [])

    attempt(body)


def test_more_can_be_kept_in_the_entry() -> None:
    async def body(world: World) -> None:
        made = presence(world)
        made.note(wheel_sync={"enabled": True, "last_result": "ok"})
        await made.announce()
        assert (await entry(world))["wheel_sync"] == {"enabled": True, "last_result": "ok"}

    attempt(body)


def test_quick_changes_are_written_as_one() -> None:
    async def body(world: World) -> None:
        made = presence(world)
        keeping = asyncio.create_task(made.keep())
        for number in range(200):
            made.run_started(f"r{number}")
            made.run_finished(f"r{number}", "COMPLETED")
            await asyncio.sleep(0)
        await wait_until(lambda: world.trouble.calls.count("registry.update") >= 2)
        keeping.cancel()
        assert world.trouble.calls.count("registry.update") <= 3
        assert (await entry(world))["last_run_id"] == "r199"

    attempt(body, virtual=False)


def test_an_entry_is_kept_fresh_although_nothing_happens() -> None:
    async def body(world: World) -> None:
        keeping = asyncio.create_task(presence(world, interval_sec=0.02).keep())
        await wait_until(lambda: world.trouble.calls.count("registry.update") >= 2)
        first = (await entry(world))["last_seen_at"]
        await wait_until(lambda: world.trouble.calls.count("registry.update") >= 3)
        keeping.cancel()
        assert isinstance(world.clock, SystemClock)
        assert (await entry(world))["last_seen_at"] > first

    attempt(body, virtual=False)


def test_a_registry_that_is_away_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        world.trouble.next("registry.update", Fault.NOT_DONE)
        keeping = asyncio.create_task(presence(world, interval_sec=0.02).keep())
        await wait_until(lambda: world.trouble.calls.count("registry.update") >= 2)
        keeping.cancel()
        assert (await entry(world))["state"] == "IDLE"
        world.trouble.next("registry.update", Fault.NOT_DONE)
        with pytest.raises(UnavailableError):
            await presence(world).announce()

    attempt(body, virtual=False)
    assert "ERR-PYOCO-0003" in [record.__dict__.get("err_id") for record in caplog.records]


@pytest.mark.parametrize("steps", range(6))
def test_a_registration_can_be_stopped_whatever_changes_meanwhile(steps: int) -> None:
    async def body(world: World) -> None:
        made = presence(world)
        keeping = asyncio.create_task(made.keep())
        await asyncio.sleep(0)
        made.run_started("r1")
        for _ in range(steps):
            await asyncio.sleep(0)
        keeping.cancel()
        done, _ = await asyncio.wait({keeping}, timeout=5)
        assert done == {keeping}

    attempt(body, virtual=False)
