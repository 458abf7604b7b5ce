"""When a worker changes its wheels, and when it does not; slots and runs in this process, a house that takes notes."""

import asyncio
import contextlib
import hashlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from packaging.tags import parse_tag
from typing_extensions import override

from pyoco_server.adapters.memory.wheels import MemoryWheelRegistry
from pyoco_server.adapters.system import SystemClock
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Tried, Wheel, WheelInstallError, WheelUnfitError
from pyoco_server.app.wheels.selection import interpreter
from pyoco_server.worker.slot_gate import SlotGate
from pyoco_server.worker.wheel_sync.importable import Importable
from pyoco_server.worker.wheel_sync.sync import WheelSync, WheelSyncOptions
from tests.sim.loop import SimLoop
from tests.waiting import wait_until
from tests.wheels.building import wheel_name
from tests.wheels.test_registry import add, an_event

HERE = interpreter(parse_tag("py3-none-any"), "3.11.7")


class House:
    """Takes notes; ``broken`` and ``unfit`` name wheels that cannot be had."""

    def __init__(self) -> None:
        self.installed: list[str] = []
        self.active: list[str] = []
        self.broken: set[str] = set()
        self.unfit: set[str] = set()
        self.unimportable: dict[str, str] = {}
        self.trials = 0
        self.trial_sec = 0.0
        self.on_install: Callable[[], None] = lambda: None

    async def install(self, wheel: Wheel, content: Callable[[], AsyncIterator[bytes]]) -> None:
        self.on_install()
        self.installed.append(wheel.name)
        data = b"".join([piece async for piece in content()])
        assert hashlib.sha256(data).hexdigest() == wheel.sha256_hex
        if wheel.name in self.broken:
            raise WheelInstallError(f"'{wheel.name}' is broken")
        if wheel.name in self.unfit:
            raise WheelUnfitError(f"'{wheel.name}' will not do")

    async def trial(self, wheels: Sequence[Wheel], places: Sequence[str]) -> list[Tried]:  # noqa: ARG002 none here
        """Every wheel brings one module, called as its package is; ``unimportable`` names a wheel, and one it needs."""
        self.trials += 1
        await asyncio.sleep(self.trial_sec)
        names, tried = {wheel.name for wheel in wheels}, list[Tried]()
        for wheel in wheels:
            needed = self.unimportable.get(wheel.name)
            problem = None if needed is None or needed in names else f"it needs {needed}"
            tried.append(Tried(wheel.name.partition("-")[0], wheel, problem))
        return tried

    async def activate(self, wheels: Sequence[Wheel]) -> None:
        self.active = sorted(wheel.name for wheel in wheels)

    async def tidy(self, known: Sequence[Wheel]) -> None:
        pass

    async def close(self) -> None:
        pass


class AwayRegistry(MemoryWheelRegistry):
    """A registry that is unavailable while ``away`` is set."""

    away = False

    @override
    async def all(self) -> Sequence[Wheel]:
        if self.away:
            raise UnavailableError("away")
        return await super().all()


class World:
    """Wheel sync with everything around it; ``gate`` is that of the worker whose code it changes."""

    def __init__(
        self, *, interval_sec: float = 0.0, first_hold_sec: float = 10.0, gate: SlotGate | None = None
    ) -> None:
        self.gate = gate or SlotGate()
        self.registry = AwayRegistry()
        self.house = House()
        self.status: dict[str, Any] = {}
        self.changes = 0
        self.sync = WheelSync(
            registry=self.registry,
            house=self.house,
            clock=SystemClock(),
            here=HERE,
            options=WheelSyncOptions(tags=("cpu",), interval_sec=interval_sec, first_hold_sec=first_hold_sec),
            gate=self.gate,
            note=self._note,
            on_change=self._changed,
        )

    def _note(self, **fields: Any) -> None:
        self.status = fields["wheel_sync"]

    async def _changed(self, in_use: Sequence[Wheel]) -> None:
        assert sorted(wheel.name for wheel in in_use) == self.house.active
        self.changes += 1


@contextlib.asynccontextmanager
async def synchronising(world: World) -> AsyncIterator[None]:
    """The loop, running."""
    running = asyncio.create_task(world.sync.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


def run(body: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def inside() -> None:
        await body(World(**options))

    asyncio.run(inside())


def run_in_virtual_time(body: Callable[[World], Awaitable[None]], **options: Any) -> None:
    """For what is about who comes first: however busy the machine is, what takes longer ends later."""

    async def inside() -> None:
        await body(World(**options))

    loop = SimLoop(random.Random(0))
    try:
        loop.run_until_complete(inside())
    finally:
        loop.tear_down()


@pytest.mark.spec("004 REQ-0026", "004 §付録F")
def test_before_the_first_pull_all_selected_wheels_are_installed() -> None:
    async def body(world: World) -> None:
        assert world.status["last_result"] == "idle"
        assert world.status["enabled"] is True
        for name in (wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("b", "1.0", "cp27-cp27m-win32")):
            await add(world.registry, name)
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "2.0")]
        status = world.status
        assert status["last_result"] == "ok"
        assert status["selected_wheels"] == status["updated_wheels"] == [wheel_name("a", "2.0")]
        assert (status["selected_count"], status["updated_count"], status["removed_count"]) == (1, 1, 0)
        assert status["skipped_incompatible_count"] == 1
        assert status["skipped_incompatible"][0]["name"] == wheel_name("b", "1.0", "cp27-cp27m-win32")
        assert status["last_attempt_at"] <= status["last_synced_at"] <= status["last_success_at"]
        [installed] = status["installed_wheels"]
        assert (installed["package"], installed["version"]) == ("a", "2.0")
        assert world.changes == 1

    run(body)


@pytest.mark.spec("004 REQ-0026")
def test_only_what_differs_is_installed_and_what_is_gone_is_removed() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("b", "1.0"))
        await world.sync.look()
        await world.sync.look()
        assert len(world.house.installed) == 2
        assert world.changes == 1
        await add(world.registry, wheel_name("a", "1.1"))
        await world.sync.look()
        assert world.house.installed[2:] == [wheel_name("a", "1.1")]
        assert world.status["updated_wheels"] == [wheel_name("a", "1.1")]
        assert world.status["removed_wheels"] == []
        await world.registry.delete(wheel_name("b", "1.0"), lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "1.1")]
        assert world.status["removed_wheels"] == [wheel_name("b", "1.0")]
        await world.registry.delete(wheel_name("a", "1.1"), lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "1.0")]

    run(body)


@pytest.mark.spec("004 REQ-0026")
def test_a_wheel_under_the_same_name_with_other_content_is_installed_again() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"), b"one")
        await world.sync.look()
        await world.registry.delete(wheel_name("a", "1.0"), lambda wheel: an_event(wheel.name, "delete"))
        await add(world.registry, wheel_name("a", "1.0"), b"two")
        await world.sync.look()
        assert world.house.installed == [wheel_name("a", "1.0")] * 2
        assert world.changes == 2

    run(body)


def test_registry_is_not_read_between_two_looks() -> None:
    async def body(world: World) -> None:
        async with synchronising(world):
            await add(world.registry, wheel_name("a", "1.0"))
            await asyncio.sleep(59)
            assert world.house.installed == []
            await asyncio.sleep(2)
            assert world.house.active == [wheel_name("a", "1.0")]

    run_in_virtual_time(body, interval_sec=60.0)


@pytest.mark.spec("004 REQ-0026")
def test_wheels_do_not_change_during_a_run_and_no_run_begins_while_they_change() -> None:
    async def body(world: World) -> None:
        at_work, may_end, entered = asyncio.Event(), asyncio.Event(), list[list[str]]()
        world.house.on_install = lambda: check(world.gate.present)

        def check(busy: int) -> None:
            assert busy == 0

        async def long_run() -> None:
            async with world.gate.shared():
                at_work.set()
                await may_end.wait()

        async def next_run() -> None:
            async with world.gate.shared():
                entered.append(world.house.active)

        await world.sync.look()
        running = asyncio.create_task(long_run())
        await at_work.wait()
        await add(world.registry, wheel_name("a", "1.0"))
        looking = asyncio.create_task(world.sync.look())
        await wait_until(lambda: world.gate.is_claimed)
        waiting = asyncio.create_task(next_run())
        for _ in range(100):
            await asyncio.sleep(0)
        assert (world.house.installed, entered) == ([], [])
        status = world.status
        assert status["selected_wheels"] == status["pending_wheels"] == [wheel_name("a", "1.0")]
        assert (status["last_result"], status["pending_count"], status["installed_wheels"]) == ("idle", 1, [])
        may_end.set()
        await asyncio.gather(running, looking, waiting)
        assert entered == [[wheel_name("a", "1.0")]]
        assert (world.status["last_result"], world.status["pending_wheels"]) == ("ok", [])

    run(body)


def test_wheels_are_not_changed_while_a_job_has_the_gate() -> None:
    async def body(world: World) -> None:
        await world.sync.look()
        await add(world.registry, wheel_name("a", "1.0"))
        assert world.gate.claim()
        assert await world.sync.look()
        assert (world.house.installed, world.gate.is_claimed) == ([], True)
        world.gate.release()
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "1.0")]
        assert not world.gate.is_claimed

    run(body)


def test_slots_that_no_slot_waits_for_do_not_use_up_the_patience() -> None:
    """While every slot has a run, waiting costs nothing; the first that comes back begins to count the time."""

    async def body(world: World) -> None:
        async def slot(length_sec: float) -> None:
            async with world.gate.shared():
                await asyncio.sleep(length_sec)
            async with world.gate.shared():
                assert world.house.active == [wheel_name("a", "1.0")]

        await world.sync.look()
        slots = [asyncio.create_task(slot(100.0)), asyncio.create_task(slot(100.5))]
        await asyncio.sleep(0)
        await add(world.registry, wheel_name("a", "1.0"))
        await world.sync.look()
        await asyncio.gather(*slots)

    run_in_virtual_time(body, first_hold_sec=1.0)


@pytest.mark.spec("004 REQ-0026")
def test_slots_that_are_never_idle_at_once_continue_between_waits_and_the_change_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(world: World) -> None:
        runs, stop = 0, asyncio.Event()

        async def slot(length_sec: float, late_sec: float) -> None:
            nonlocal runs
            await asyncio.sleep(late_sec)
            while not stop.is_set():
                async with world.gate.shared():
                    runs += 1
                    await asyncio.sleep(length_sec)

        async with synchronising(world):
            slots = [asyncio.create_task(slot(0.2, late_sec)) for late_sec in (0.0, 0.1)]
            await wait_until(lambda: runs >= 2)
            await add(world.registry, wheel_name("a", "1.0"))
            before = runs
            await wait_until(lambda: world.house.active)
            assert runs > before, "runs began in between"
            stop.set()
            await asyncio.gather(*slots)

    caplog.set_level(logging.INFO)
    run_in_virtual_time(body, interval_sec=0.01, first_hold_sec=0.02)
    assert any(getattr(record, "action", "") == "wheel_sync_deferred" for record in caplog.records)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
def test_a_wheel_that_fails_is_reported_and_tried_again_and_the_old_one_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("b", "1.0"))
        await world.sync.look()
        await add(world.registry, wheel_name("a", "2.0"))
        await add(world.registry, wheel_name("b", "2.0"))
        world.house.broken.add(wheel_name("a", "2.0"))
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "1.0"), wheel_name("b", "2.0")]
        assert world.status["last_result"] == "error"
        assert world.status["last_error"]["err_id"] == "ERR-PYOCO-0024"
        assert world.status["last_error"]["wheel_name"] == wheel_name("a", "2.0")
        assert world.status["last_success_at"] < world.status["last_attempt_at"]
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert getattr(record, "err_id", "") == "ERR-PYOCO-0024"
        assert getattr(record, "wheel_name", "") == wheel_name("a", "2.0")
        world.house.broken.clear()
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "2.0"), wheel_name("b", "2.0")]
        assert world.status["last_result"] == "ok"
        assert world.status["last_error"] is None

    run(body)


def test_a_wheel_that_fails_is_tried_less_and_less_often() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        world.house.broken.add(wheel_name("a", "1.0"))
        looks = 0
        while len(world.house.installed) < 4:
            await world.sync.look()
            looks += 1
            await asyncio.sleep(0.002)
            assert world.status["last_result"] == "error"
        assert looks > 6

    run_in_virtual_time(body, interval_sec=0.01)


def test_a_worker_that_begins_with_a_broken_wheel_takes_the_one_before() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("a", "2.0"))
        world.house.broken.add(wheel_name("a", "2.0"))
        await world.sync.look()
        assert world.house.active == [wheel_name("a", "1.0")]
        assert world.status["last_result"] == "error"

    run(body)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
def test_a_wheel_that_cannot_be_imported_does_not_replace_one_that_can(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        old, new, other = wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("b", "1.0")
        await add(world.registry, old)
        await world.sync.look()
        await add(world.registry, new)
        await add(world.registry, other)
        world.house.unimportable[new] = wheel_name("c", "1.0")
        await world.sync.look()
        assert world.house.active == [old, other], "what can be imported is not kept waiting"
        status = world.status
        assert status["last_result"] == "error"
        assert status["last_error"]["err_id"] == "ERR-PYOCO-0024"
        assert status["last_error"]["wheel_name"] == new
        assert "a cannot be imported with it: it needs c-1.0" in status["last_error"]["reason"]
        assert [wheel["name"] for wheel in status["installed_wheels"]] == [old, other]
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert (getattr(record, "err_id", ""), getattr(record, "wheel_name", "")) == ("ERR-PYOCO-0024", new)

    run(body, interval_sec=0.001)


def test_a_dependency_of_a_wheel_may_come_later(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        old, new, needed = wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("c", "1.0")
        world.house.unimportable[new] = needed
        await add(world.registry, old)
        await add(world.registry, new)
        await world.sync.look()
        assert world.house.active == [old], "one that has just started takes the one before, too"
        await world.sync.look()
        assert (world.house.active, world.status["last_result"]) == ([old], "error")
        await add(world.registry, needed)
        await world.sync.look()
        assert world.house.active == [new, needed]
        assert world.status["last_result"] == "ok"
        assert world.status["last_error"] is None

    run(body, interval_sec=60.0)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_package_without_a_better_version_is_used_as_it_is_and_reported() -> None:
    async def body(world: World) -> None:
        first, second = wheel_name("a", "1.0"), wheel_name("a", "2.0")
        world.house.unimportable |= {first: "nothing-there", second: "nothing-there"}
        await add(world.registry, first)
        await world.sync.look()
        assert world.house.active == [first]
        assert world.status["last_result"] == "error"
        await add(world.registry, second)
        await world.sync.look()
        assert world.status["last_result"] == "error"
        world.house.unimportable.clear()  # an operator installed what was missing by hand
        for trouble in world.sync._troubles.values():
            trouble.next_at = 0.0  # the pauses are over
        await world.sync.look()
        assert world.house.active == [second]
        assert world.status["last_result"] == "ok"

    run(body)


def test_a_wheel_that_breaks_another_is_not_used() -> None:
    async def body(world: World) -> None:
        mine, old, new = wheel_name("a", "1.0"), wheel_name("b", "1.0"), wheel_name("b", "2.0")
        world.house.unimportable[mine] = old
        await add(world.registry, mine)
        await add(world.registry, old)
        await world.sync.look()
        assert world.status["last_result"] == "ok"
        await add(world.registry, new)
        await world.sync.look()
        assert world.house.active == [mine, old]
        assert world.status["last_error"]["wheel_name"] == new
        trials = world.house.trials
        await world.registry.delete(old, lambda wheel: an_event(wheel.name, "delete"))
        await world.registry.delete(new, lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.look()
        assert world.house.active == [mine], "what is no longer there is removed, even if another wheel needs it"
        assert world.house.trials == trials

    run(body)


def test_an_import_that_takes_long_is_not_tried_again_soon() -> None:
    """Nothing is pulled meanwhile: one wheel that hangs must not cost a good part of a worker's time."""

    async def body(world: World) -> None:
        old, new = wheel_name("a", "1.0"), wheel_name("a", "2.0")
        world.house.unimportable[new] = "nothing-there"
        await add(world.registry, old)
        await world.sync.look()
        world.house.trial_sec = 0.1
        await add(world.registry, new)
        await world.sync.look()
        trials = world.house.trials
        for _ in range(5):
            await world.sync.look()
        assert (world.house.active, world.house.trials) == ([old], trials)

    run(body, interval_sec=0.001)


def test_a_wheel_is_not_blamed_for_what_another_new_one_breaks() -> None:
    async def body(world: World) -> None:
        mine, old, new = wheel_name("a", "1.0"), wheel_name("b", "1.0"), wheel_name("b", "2.0")
        world.house.unimportable[mine] = old
        for name in (mine, old, wheel_name("c", "1.0")):
            await add(world.registry, name)
        await world.sync.look()
        await add(world.registry, new)
        await add(world.registry, wheel_name("c", "2.0"))
        await world.sync.look()
        assert world.house.active == [mine, old, wheel_name("c", "2.0")]
        assert world.status["last_error"]["wheel_name"] == new

    run(body)


def test_a_wheel_is_not_blamed_for_what_a_removal_has_broken() -> None:
    async def body(world: World) -> None:
        mine, needed = wheel_name("a", "1.0"), wheel_name("b", "1.0")
        world.house.unimportable[mine] = needed
        for name in (mine, needed, wheel_name("c", "1.0")):
            await add(world.registry, name)
        await world.sync.look()
        await world.registry.delete(needed, lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.look()
        await add(world.registry, wheel_name("c", "2.0"))
        await world.sync.look()
        assert world.house.active == [mine, wheel_name("c", "2.0")]
        assert world.status["last_result"] == "ok"

    run(body)


def test_a_place_that_is_broken_anyway_does_not_speak_against_others() -> None:
    """A place and a module of one name are two things: all that is in a package, and its top."""
    mine, other = (
        Wheel(name=wheel_name(name, "1.0"), size_bytes=1, bucket="", nuid=name, modified=0.0, sha256_hex=None)
        for name in ("a", "b")
    )
    tried = [Tried("a", mine, None), Tried("a", mine, "no", is_place=True), Tried("b", other, None)]
    importable = Importable()
    importable.take(tried[:2])
    assert importable.worse(tried, {other.nuid}) == {}


def test_a_wheel_that_can_never_be_installed_is_skipped_and_reported() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("a", "2.0"))
        world.house.unfit.add(wheel_name("a", "2.0"))
        for _ in range(3):
            await world.sync.look()
        assert world.house.installed == [wheel_name("a", "2.0"), wheel_name("a", "1.0")]
        assert world.house.active == [wheel_name("a", "1.0")]
        assert world.status["last_result"] == "ok"
        [skipped] = world.status["skipped_incompatible"]
        assert skipped["name"] == wheel_name("a", "2.0")
        assert "will not do" in skipped["reason"]

    run(body)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0003")
def test_slots_wait_for_the_first_look_and_later_looks_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        world.registry.away = True
        async with synchronising(world):
            await wait_until(lambda: world.status["last_result"] == "error")
            assert world.gate.is_claimed
            world.registry.away = False
            async with world.gate.shared():
                assert world.house.active == [wheel_name("a", "1.0")]
        world.registry.away = True
        assert not await world.sync.look()
        assert world.status["last_error"]["err_id"] == "ERR-PYOCO-0003"
        assert world.house.active == [wheel_name("a", "1.0")]
        assert not world.gate.is_claimed

    run(body, interval_sec=60.0)
    assert all(getattr(record, "err_id", "") == "ERR-PYOCO-0003" for record in caplog.records)


def test_long_lists_are_cut_but_counted() -> None:
    async def body(world: World) -> None:
        for number in range(60):
            await add(world.registry, wheel_name(f"package{number:02}", "1.0"), b"x")
        await world.sync.look()
        assert world.status["selected_count"] == world.status["updated_count"] == 60
        assert len(world.status["selected_wheels"]) == len(world.status["installed_wheels"]) == 50

    run(body)
