"""When a worker changes its wheels, and when it does not; slots and runs in this process, a house that takes notes."""

import asyncio
import hashlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from packaging.tags import parse_tag
from typing_extensions import override

from pyoco_server.adapters.clock import SystemClock
from pyoco_server.adapters.memory.wheels import MemoryWheelRegistry
from pyoco_server.app.ports import UnavailableError
from pyoco_server.app.ports.wheels import Tried, Wheel, WheelInstallError, WheelUnfitError
from pyoco_server.app.wheels_selection import interpreter
from pyoco_server.worker.wheel_sync import WheelSync, WheelSyncOptions
from pyoco_server.worker.wheel_sync_imports import Importable
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
    """Not there, as long as it is told so."""

    away = False

    @override
    async def all(self) -> Sequence[Wheel]:
        if self.away:
            raise UnavailableError("away")
        return await super().all()


class World:
    """A worker's hook with everything around it."""

    def __init__(self, *, interval_sec: float = 0.0, first_hold_sec: float = 10.0) -> None:
        self.registry = AwayRegistry()
        self.house = House()
        self.told: dict[str, Any] = {}
        self.changes = 0
        self.sync = WheelSync(
            registry=self.registry,
            house=self.house,
            clock=SystemClock(),
            here=HERE,
            options=WheelSyncOptions(tags=("cpu",), interval_sec=interval_sec, first_hold_sec=first_hold_sec),
            note=self._note,
            on_change=self._changed,
        )

    def _note(self, **fields: Any) -> None:
        self.told = fields["wheel_sync"]

    async def _changed(self, in_use: Sequence[Wheel]) -> None:
        assert sorted(wheel.name for wheel in in_use) == self.house.active
        self.changes += 1


def run(body: Callable[[World], Awaitable[None]], **options: float) -> None:
    async def inside() -> None:
        await body(World(**options))

    asyncio.run(inside())


def run_in_virtual_time(body: Callable[[World], Awaitable[None]], **options: float) -> None:
    """For what is about who comes first: however busy the machine is, what takes longer ends later."""

    async def inside() -> None:
        await body(World(**options))

    loop = SimLoop(random.Random(0))
    try:
        loop.run_until_complete(inside())
    finally:
        loop.tear_down()


@pytest.mark.spec("004 REQ-0026", "004 §付録F")
def test_before_the_first_pull_all_that_is_meant_for_the_worker_is_there() -> None:
    async def body(world: World) -> None:
        assert world.told["last_result"] == "idle"
        assert world.told["enabled"] is True
        for name in (wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("b", "1.0", "cp27-cp27m-win32")):
            await add(world.registry, name)
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "2.0")]
        told = world.told
        assert told["last_result"] == "ok"
        assert told["selected_wheels"] == told["updated_wheels"] == [wheel_name("a", "2.0")]
        assert (told["selected_count"], told["updated_count"], told["removed_count"]) == (1, 1, 0)
        assert told["skipped_incompatible_count"] == 1
        assert told["skipped_incompatible"][0]["name"] == wheel_name("b", "1.0", "cp27-cp27m-win32")
        assert told["last_attempt_at"] <= told["last_synced_at"] <= told["last_success_at"]
        [installed] = told["installed_wheels"]
        assert (installed["package"], installed["version"]) == ("a", "2.0")
        assert world.changes == 1

    run(body)


@pytest.mark.spec("004 REQ-0026")
def test_only_what_differs_is_installed_and_what_is_gone_is_removed() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("b", "1.0"))
        await world.sync.before_pull()
        await world.sync.before_pull()
        assert len(world.house.installed) == 2
        assert world.changes == 1
        await add(world.registry, wheel_name("a", "1.1"))
        await world.sync.before_pull()
        assert world.house.installed[2:] == [wheel_name("a", "1.1")]
        assert world.told["updated_wheels"] == [wheel_name("a", "1.1")]
        assert world.told["removed_wheels"] == []
        await world.registry.delete(wheel_name("b", "1.0"), lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "1.1")]
        assert world.told["removed_wheels"] == [wheel_name("b", "1.0")]
        await world.registry.delete(wheel_name("a", "1.1"), lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "1.0")]

    run(body)


@pytest.mark.spec("004 REQ-0026")
def test_a_wheel_under_the_same_name_with_other_content_is_installed_again() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"), b"one")
        await world.sync.before_pull()
        await world.registry.delete(wheel_name("a", "1.0"), lambda wheel: an_event(wheel.name, "delete"))
        await add(world.registry, wheel_name("a", "1.0"), b"two")
        await world.sync.before_pull()
        assert world.house.installed == [wheel_name("a", "1.0")] * 2
        assert world.changes == 2

    run(body)


def test_between_two_looks_the_registry_is_left_alone() -> None:
    async def body(world: World) -> None:
        await world.sync.before_pull()
        await add(world.registry, wheel_name("a", "1.0"))
        await world.sync.before_pull()
        assert world.house.installed == []

    run(body, interval_sec=60.0)


@pytest.mark.spec("004 REQ-0026")
def test_nothing_begins_while_a_run_is_in_progress() -> None:
    async def body(world: World) -> None:
        at_work, may_end, pulls = asyncio.Event(), asyncio.Event(), list[str]()
        busy = 0

        def check() -> None:
            assert busy == 0

        world.house.on_install = check

        async def long_run() -> None:
            nonlocal busy
            await world.sync.before_pull()
            busy += 1
            at_work.set()
            await may_end.wait()
            busy -= 1
            await world.sync.before_pull()

        async def other_slot() -> None:
            await at_work.wait()
            while not pulls:
                await world.sync.before_pull()
                await asyncio.sleep(0)
                if world.house.active:
                    pulls.append("after")

        slots = [asyncio.create_task(long_run()), asyncio.create_task(other_slot())]
        await at_work.wait()
        await add(world.registry, wheel_name("a", "1.0"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.house.installed == []
        assert not slots[1].done()
        told = world.told
        assert told["selected_wheels"] == told["pending_wheels"] == [wheel_name("a", "1.0")]
        assert (told["last_result"], told["pending_count"], told["installed_wheels"]) == ("idle", 1, [])
        may_end.set()
        await asyncio.gather(*slots)
        assert world.house.active == [wheel_name("a", "1.0")]
        assert (world.told["last_result"], world.told["pending_wheels"]) == ("ok", [])

    run(body)


def test_a_slot_that_has_ended_is_not_waited_for() -> None:
    async def body(world: World) -> None:
        await asyncio.create_task(world.sync.before_pull())
        await add(world.registry, wheel_name("a", "1.0"))
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "1.0")]

    run(body)


@pytest.mark.spec("004 REQ-0026")
def test_a_long_run_is_not_waited_for_without_end_and_the_change_comes_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(world: World) -> None:
        pulled, stop = 0, asyncio.Event()

        async def slot(length_sec: float, late_sec: float) -> None:
            nonlocal pulled
            await asyncio.sleep(late_sec)
            while not stop.is_set():
                await world.sync.before_pull()
                pulled += 1
                await asyncio.sleep(length_sec)

        slots = [asyncio.create_task(slot(0.2, 0.0)), asyncio.create_task(slot(0.2, 0.1))]  # never idle by themselves
        await wait_until(lambda: pulled >= 2)
        await add(world.registry, wheel_name("a", "1.0"))
        before = pulled
        await wait_until(lambda: world.house.active, timeout=10)
        assert pulled > before, "runs went on in between"
        stop.set()
        await asyncio.gather(*slots)

    caplog.set_level(logging.INFO)
    run_in_virtual_time(body, interval_sec=0.01, first_hold_sec=0.02)
    assert any(getattr(record, "action", "") == "wheel_sync_deferred" for record in caplog.records)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
def test_a_wheel_that_fails_is_told_tried_again_and_leaves_the_old_one_in_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("b", "1.0"))
        await world.sync.before_pull()
        await add(world.registry, wheel_name("a", "2.0"))
        await add(world.registry, wheel_name("b", "2.0"))
        world.house.broken.add(wheel_name("a", "2.0"))
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "1.0"), wheel_name("b", "2.0")]
        assert world.told["last_result"] == "error"
        assert world.told["last_error"]["err_id"] == "ERR-PYOCO-0024"
        assert world.told["last_error"]["wheel_name"] == wheel_name("a", "2.0")
        assert world.told["last_success_at"] < world.told["last_attempt_at"]
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert getattr(record, "err_id", "") == "ERR-PYOCO-0024"
        assert getattr(record, "wheel_name", "") == wheel_name("a", "2.0")
        world.house.broken.clear()
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "2.0"), wheel_name("b", "2.0")]
        assert world.told["last_result"] == "ok"
        assert world.told["last_error"] is None

    run(body)


def test_a_wheel_that_fails_is_tried_less_and_less_often() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        world.house.broken.add(wheel_name("a", "1.0"))
        looks = 0
        while len(world.house.installed) < 4:
            await world.sync.before_pull()
            looks += 1
            await asyncio.sleep(0.002)
            assert world.told["last_result"] == "error"
        assert looks > 6

    run_in_virtual_time(body, interval_sec=0.01)


def test_a_worker_that_begins_with_a_broken_wheel_takes_the_one_before() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("a", "2.0"))
        world.house.broken.add(wheel_name("a", "2.0"))
        await world.sync.before_pull()
        assert world.house.active == [wheel_name("a", "1.0")]
        assert world.told["last_result"] == "error"

    run(body)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0024")
def test_a_wheel_that_cannot_be_imported_does_not_replace_one_that_can(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        old, new, other = wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("b", "1.0")
        await add(world.registry, old)
        await world.sync.before_pull()
        await add(world.registry, new)
        await add(world.registry, other)
        world.house.unimportable[new] = wheel_name("c", "1.0")
        await world.sync.before_pull()
        assert world.house.active == [old, other], "what can be imported is not kept waiting"
        told = world.told
        assert told["last_result"] == "error"
        assert told["last_error"]["err_id"] == "ERR-PYOCO-0024"
        assert told["last_error"]["wheel_name"] == new
        assert "a cannot be imported with it: it needs c-1.0" in told["last_error"]["reason"]
        assert [wheel["name"] for wheel in told["installed_wheels"]] == [old, other]
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert (getattr(record, "err_id", ""), getattr(record, "wheel_name", "")) == ("ERR-PYOCO-0024", new)

    run(body, interval_sec=0.001)


def test_what_a_wheel_needs_may_come_later(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        old, new, needed = wheel_name("a", "1.0"), wheel_name("a", "2.0"), wheel_name("c", "1.0")
        world.house.unimportable[new] = needed
        await add(world.registry, old)
        await add(world.registry, new)
        await world.sync.before_pull()
        assert world.house.active == [old], "one that has just started takes the one before, too"
        world.sync._next_at = 0.0  # the next look is due; to try that wheel again by itself is not
        await world.sync.before_pull()
        assert (world.house.active, world.told["last_result"]) == ([old], "error")
        await add(world.registry, needed)
        world.sync._next_at = 0.0
        await world.sync.before_pull()
        assert world.house.active == [new, needed]
        assert world.told["last_result"] == "ok"
        assert world.told["last_error"] is None

    run(body, interval_sec=60.0)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_package_that_has_nothing_better_is_used_as_it_is_and_told() -> None:
    async def body(world: World) -> None:
        first, second = wheel_name("a", "1.0"), wheel_name("a", "2.0")
        world.house.unimportable |= {first: "nothing-there", second: "nothing-there"}
        await add(world.registry, first)
        await world.sync.before_pull()
        assert world.house.active == [first]
        assert world.told["last_result"] == "error"
        await add(world.registry, second)
        await world.sync.before_pull()
        assert world.told["last_result"] == "error"
        world.house.unimportable.clear()  # somebody has installed what was missing by hand
        for trouble in world.sync._troubles.values():
            trouble.next_at = 0.0  # the pauses are over
        await world.sync.before_pull()
        assert world.house.active == [second]
        assert world.told["last_result"] == "ok"

    run(body)


def test_a_wheel_that_breaks_another_is_not_used() -> None:
    async def body(world: World) -> None:
        mine, old, new = wheel_name("a", "1.0"), wheel_name("b", "1.0"), wheel_name("b", "2.0")
        world.house.unimportable[mine] = old
        await add(world.registry, mine)
        await add(world.registry, old)
        await world.sync.before_pull()
        assert world.told["last_result"] == "ok"
        await add(world.registry, new)
        await world.sync.before_pull()
        assert world.house.active == [mine, old]
        assert world.told["last_error"]["wheel_name"] == new
        trials = world.house.trials
        await world.registry.delete(old, lambda wheel: an_event(wheel.name, "delete"))
        await world.registry.delete(new, lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.before_pull()
        assert world.house.active == [mine], "what is no longer there is removed, whoever needs it"
        assert world.house.trials == trials

    run(body)


def test_an_import_that_takes_long_is_not_tried_again_soon() -> None:
    """Nothing is pulled meanwhile: one wheel that hangs must not cost a good part of a worker's time."""

    async def body(world: World) -> None:
        old, new = wheel_name("a", "1.0"), wheel_name("a", "2.0")
        world.house.unimportable[new] = "nothing-there"
        await add(world.registry, old)
        await world.sync.before_pull()
        world.house.trial_sec = 0.1
        await add(world.registry, new)
        await world.sync.before_pull()
        trials = world.house.trials
        for _ in range(5):
            await world.sync.before_pull()
        assert (world.house.active, world.house.trials) == ([old], trials)

    run(body, interval_sec=0.001)


def test_a_wheel_is_not_blamed_for_what_another_new_one_breaks() -> None:
    async def body(world: World) -> None:
        mine, old, new = wheel_name("a", "1.0"), wheel_name("b", "1.0"), wheel_name("b", "2.0")
        world.house.unimportable[mine] = old
        for name in (mine, old, wheel_name("c", "1.0")):
            await add(world.registry, name)
        await world.sync.before_pull()
        await add(world.registry, new)
        await add(world.registry, wheel_name("c", "2.0"))
        await world.sync.before_pull()
        assert world.house.active == [mine, old, wheel_name("c", "2.0")]
        assert world.told["last_error"]["wheel_name"] == new

    run(body)


def test_a_wheel_is_not_blamed_for_what_a_removal_has_broken() -> None:
    async def body(world: World) -> None:
        mine, needed = wheel_name("a", "1.0"), wheel_name("b", "1.0")
        world.house.unimportable[mine] = needed
        for name in (mine, needed, wheel_name("c", "1.0")):
            await add(world.registry, name)
        await world.sync.before_pull()
        await world.registry.delete(needed, lambda wheel: an_event(wheel.name, "delete"))
        await world.sync.before_pull()
        await add(world.registry, wheel_name("c", "2.0"))
        await world.sync.before_pull()
        assert world.house.active == [mine, wheel_name("c", "2.0")]
        assert world.told["last_result"] == "ok"

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


def test_a_wheel_that_will_never_do_is_skipped_and_told() -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        await add(world.registry, wheel_name("a", "2.0"))
        world.house.unfit.add(wheel_name("a", "2.0"))
        for _ in range(3):
            await world.sync.before_pull()
        assert world.house.installed == [wheel_name("a", "2.0"), wheel_name("a", "1.0")]
        assert world.house.active == [wheel_name("a", "1.0")]
        assert world.told["last_result"] == "ok"
        [skipped] = world.told["skipped_incompatible"]
        assert skipped["name"] == wheel_name("a", "2.0")
        assert "will not do" in skipped["reason"]

    run(body)


@pytest.mark.spec("004 REQ-0026", "004 ERR-PYOCO-0003")
def test_without_a_first_look_nothing_is_pulled_and_later_ones_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    async def body(world: World) -> None:
        await add(world.registry, wheel_name("a", "1.0"))
        world.registry.away = True
        first = asyncio.create_task(world.sync.before_pull())
        await wait_until(lambda: world.told["last_result"] == "error")
        assert not first.done()
        world.registry.away = False
        await first
        assert world.house.active == [wheel_name("a", "1.0")]
        world.registry.away = True
        await world.sync.before_pull()
        assert world.told["last_error"]["err_id"] == "ERR-PYOCO-0003"
        assert world.house.active == [wheel_name("a", "1.0")]

    run(body)
    assert all(getattr(record, "err_id", "") == "ERR-PYOCO-0003" for record in caplog.records)


def test_long_lists_are_cut_but_counted() -> None:
    async def body(world: World) -> None:
        for number in range(60):
            await add(world.registry, wheel_name(f"package{number:02}", "1.0"), b"x")
        await world.sync.before_pull()
        assert world.told["selected_count"] == world.told["updated_count"] == 60
        assert len(world.told["selected_wheels"]) == len(world.told["installed_wheels"]) == 50

    run(body)
