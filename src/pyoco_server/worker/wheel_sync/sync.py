"""Keeps the wheels that a worker uses as the registry of wheels says: a background loop beside the worker's slots.

To read the registry costs one request each interval and disturbs no slot. Only when wheels are to change does the loop
claim the worker's ``SlotGate``: slots that come back wait, and the change begins when no slot is inside any more, with
a run or with a request for a job. So no run ever sees its code change. Runs can be long, so the wait is limited; then
the slots continue, and the next wait is twice as long. So the idle time that a change costs is in proportion to the
runs it waits for, and a worker that is never idle by itself still gets its wheels in the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from pyoco_server.app.ports import Clock, UnavailableError
from pyoco_server.app.ports.wheels import Tried, Wheel, WheelHouse, WheelInstallError, WheelRegistry, WheelUnfitError
from pyoco_server.app.wheels.selection import Interpreter, Selection, SkippedWheel, select
from pyoco_server.logs import log_error
from pyoco_server.worker.slot_gate import SlotGate
from pyoco_server.worker.wheel_sync.importable import Importable
from pyoco_server.worker.wheel_sync.status import WheelSyncStatus

_log = logging.getLogger(__name__)

_AWAY_SEC: Final = 0.5
_FIRST_HOLD_SEC: Final = 10.0
_MOST_DOUBLINGS: Final = 5
"""A wheel that fails is tried again after 1, 2, 4 … and at last every 32 intervals."""
_TRIAL_SHARE: Final = 20
"""An import that takes long is not tried again before so many times as long: slots wait meanwhile."""

OnChange = Callable[[Sequence[Wheel]], Awaitable[None]]
"""Called with the wheels in use from now on."""


class WheelSyncOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How often to read the registry, and how long to wait for runs at first."""

    tags: tuple[str, ...]
    places: tuple[str, ...] = ()
    """Where flows are: modules, packages (``name.*``), files. What could be imported there must stay importable."""
    interval_sec: float = 10.0
    first_hold_sec: float = _FIRST_HOLD_SEC


class _Trouble(msgspec.Struct):
    """A wheel that could not be installed, or not be imported."""

    times: int
    next_at: float
    is_of_import: bool = False


class WheelSync:
    """The loop of one worker; it holds the gate from the beginning until it has read the registry once."""

    def __init__(
        self,
        *,
        registry: WheelRegistry,
        house: WheelHouse,
        clock: Clock,
        here: Interpreter,
        options: WheelSyncOptions,
        gate: SlotGate,
        note: Callable[..., None],
        on_change: OnChange,
    ) -> None:
        """``note`` publishes ``wheel_sync``; ``on_change`` is awaited when other code is to be used."""
        self._registry = registry
        self._house = house
        self._clock = clock
        self._here = here
        self._options = options
        self._gate = gate
        self._note = note
        self._on_change = on_change
        self._status = WheelSyncStatus(enabled=True)
        self._active: dict[str, Wheel] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._unfit: dict[str, str] = {}
        self._importable = Importable()
        self._offered: frozenset[str] = frozenset()
        self._hold_sec = options.first_hold_sec
        self._next_at: float | None = None
        self._has_gate = gate.claim()
        self._publish()

    async def run(self) -> None:
        """Look now and then every interval, until cancelled."""
        while True:
            await self.look_if_due()
            await asyncio.sleep(max((self._next_at or 0.0) - self._elapsed(), 0.0))

    async def look_if_due(self) -> None:
        """Look if the last look is an interval ago; wait for the first one: without it the right code is not known."""
        if self._next_at is not None and self._elapsed() < self._next_at:
            return
        while True:
            if await self.look() or self._next_at is not None:
                break
            await asyncio.sleep(_AWAY_SEC)
        self._next_at = self._elapsed() + self._options.interval_sec

    async def look(self) -> bool:
        """Compare the wheels in use with the registry, and change what has to be; False if it cannot be read."""
        try:
            wheels = await self._registry.all()
        except UnavailableError as error:
            log_error(_log, "ERR-PYOCO-0003", action="wheel_sync_failed", exc=error, level=logging.WARNING)
            self._status.failed(self._now(), "ERR-PYOCO-0003", str(error))
            self._publish()
            return False
        selection = self._selected(wheels)
        self._reconsider(selection)
        self._status.looked(self._now(), selection.wanted, selection.skipped)
        self._publish()  # to wait for runs may take its time
        try:
            if not self._is_due(selection):
                if not self._troubled(selection):
                    self._status.succeeded(self._now())
            elif await self._acquire_gate():
                await self._sync(wheels, selection)
        finally:
            if self._has_gate:
                self._has_gate = False
                self._gate.release()
        self._publish()
        return True

    def _selected(self, wheels: Sequence[Wheel]) -> Selection:
        """Select from the registry what fits this worker, without wheels that turned out to be unfit."""
        fit = [wheel for wheel in wheels if wheel.nuid not in self._unfit]
        selection = select(fit, self._options.tags, self._here)
        meant = select([wheel for wheel in wheels if wheel.nuid in self._unfit], self._options.tags, self._here)
        unfit = [SkippedWheel(wheel, self._unfit[wheel.nuid]) for found in meant.packages.values() for wheel in found]
        return Selection(selection.packages, [*selection.skipped, *unfit])

    def _is_due(self, selection: Selection) -> bool:
        if any(package not in selection.packages for package in self._active):
            return True
        return any(
            self._may_try(wheels[0]) and (not self._is_active(package, wheels[0]) or wheels[0].nuid in self._troubles)
            for package, wheels in selection.packages.items()
        )

    def _reconsider(self, selection: Selection) -> None:
        """Try again what could not be imported if the selection has changed: what it needs may be there now."""
        offered = frozenset(wheel.nuid for wheels in selection.packages.values() for wheel in wheels)
        if offered != self._offered:
            self._offered = offered
            for trouble in self._troubles.values():
                if trouble.is_of_import:
                    trouble.next_at = self._elapsed()

    def _is_active(self, package: str, wheel: Wheel) -> bool:
        active = self._active.get(package)
        return active is not None and active.nuid == wheel.nuid

    def _may_try(self, wheel: Wheel) -> bool:
        trouble = self._troubles.get(wheel.nuid)
        return trouble is None or self._elapsed() >= trouble.next_at

    def _troubled(self, selection: Selection) -> bool:
        return any(wheel.nuid in self._troubles for wheel in selection.wanted)

    async def _acquire_gate(self) -> bool:
        """Claim the gate and wait until no slot is inside; False if that takes too long, or a job has the gate."""
        if not self._has_gate and not self._gate.claim():
            return False
        self._has_gate = True
        if await self._gate.until_empty(self._hold_sec):
            self._hold_sec = self._options.first_hold_sec
            return True
        _log.info(
            "wheels are to change, but %d slots are still busy after %g s; trying again later",
            self._gate.present,
            self._hold_sec,
            extra={"action": "wheel_sync_deferred"},
        )
        self._hold_sec *= 2
        return False

    # --- Changing ----------------------------------------------------------------------------------------------------

    async def _sync(self, wheels: Sequence[Wheel], selection: Selection) -> None:
        refused: dict[str, str] = {}
        while True:
            active, sound = await self._ready(selection, refused)
            try:
                worse = await self._worse(active, refused)
            except WheelInstallError as error:
                self._failed(error)
                return
            if not worse:
                break
            refused |= worse
        for nuid in {wheel.nuid for wheel in active.values()} - {*refused}:
            self._troubles.pop(nuid, None)
        sound = await self._switch_to(active) and sound and not refused
        self._troubles = {wheel.nuid: self._troubles[wheel.nuid] for wheel in wheels if wheel.nuid in self._troubles}
        await self._house.tidy(wheels)
        if self._unfit:
            again = self._selected(wheels)
            self._status.looked(self._now(), again.wanted, again.skipped)
        if sound:
            self._status.succeeded(self._now())

    async def _ready(self, selection: Selection, refused: Mapping[str, str]) -> tuple[dict[str, Wheel], bool]:
        """Install what is to be used of each package, and return it; False if something else was wanted.

        Of a package that has nothing better, what is refused is used all the same: its runs fail with the reason.
        """
        active, sound = dict[str, Wheel](), True
        for package, candidates in selection.packages.items():
            left = [wheel for wheel in candidates if wheel.nuid not in refused]
            chosen, is_wanted = await self._install_one_of(package, left)
            sound = sound and is_wanted
            if chosen is None:
                chosen = next((wheel for wheel in candidates if wheel.nuid in refused), None)
            if chosen is not None:
                active[package] = chosen
        return active, sound

    async def _worse(self, active: Mapping[str, Wheel], refused: Mapping[str, str]) -> dict[str, str]:
        """Return the new wheels that must not be used, each with what cannot be imported with it."""
        used = {wheel.nuid for wheel in self._active.values()} - {*self._troubles}
        new = {wheel.nuid: wheel for wheel in active.values() if wheel.nuid not in used}
        if not new:
            return {}
        began = self._elapsed()
        tried = await self._house.trial([*active.values()], self._options.places)
        fresh = {nuid for nuid in new if nuid not in refused}
        worse = self._importable.worse(tried, fresh)
        if worse:
            worse = await self._found_guilty(active, tried, fresh)
        for nuid, problem in worse.items():
            refusal = f"'{new[nuid].name}' is not to be used: {problem}"
            self._put_off(new[nuid], WheelInstallError(refusal), tried_for=self._elapsed() - began)
        if not worse:
            self._importable.take(tried)
        return worse

    async def _found_guilty(
        self, active: Mapping[str, Wheel], tried: Sequence[Tried], fresh: Collection[str]
    ) -> dict[str, str]:
        """Find the wheels to blame, by a trial without them: what they seem to break may be broken anyway.

        Of several, return those that do harm by themselves, or all if only together they do.
        """
        before = {package: self._active[package] for package in active if package in self._active}
        self._importable.take(await self._house.trial([*before.values()], self._options.places))
        worse = self._importable.worse(tried, fresh)
        if len(worse) <= 1:
            return worse
        alone: dict[str, str] = {}
        for package, wheel in active.items():
            if wheel.nuid in worse:
                found = await self._house.trial([*{**before, package: wheel}.values()], self._options.places)
                alone |= self._importable.worse(found, {wheel.nuid})
        return alone or worse

    async def _install_one_of(self, package: str, candidates: Sequence[Wheel]) -> tuple[Wheel | None, bool]:
        """Install the newest that can be; a version that works is never replaced by an older one."""
        sound = True
        for wheel in candidates:
            if self._is_active(package, wheel):
                return wheel, sound
            if not self._may_try(wheel):
                sound = False
            elif await self._install(wheel):
                return wheel, sound
            else:
                sound = wheel.nuid in self._unfit and sound
            if package in self._active:
                break
        return self._active.get(package), sound

    async def _install(self, wheel: Wheel) -> bool:
        try:
            await self._house.install(wheel, lambda: self._registry.content(wheel))
        except WheelUnfitError as error:
            self._unfit[wheel.nuid] = str(error)
            return False
        except (WheelInstallError, UnavailableError) as error:
            self._put_off(wheel, error)
            return False
        trouble = self._troubles.get(wheel.nuid)
        if trouble is not None and not trouble.is_of_import:  # whether it can be imported is another question
            del self._troubles[wheel.nuid]
        return True

    def _put_off(self, wheel: Wheel, error: Exception, *, tried_for: float | None = None) -> None:
        """Try the wheel again later; ``tried_for``: how long its import took, if that is what failed."""
        known = self._troubles.get(wheel.nuid)
        times = known.times + 1 if known else 1
        pause = self._options.interval_sec * 2 ** min(times - 1, _MOST_DOUBLINGS)
        pause = max(pause, _TRIAL_SHARE * (tried_for or 0.0))
        self._troubles[wheel.nuid] = _Trouble(times, self._elapsed() + pause, is_of_import=tried_for is not None)
        log_error(
            _log,
            "ERR-PYOCO-0024",
            action="wheel_sync_failed",
            exc=error,
            wheel_name=wheel.name,
            reason=str(error),
            times=times,
        )
        self._status.failed(self._now(), "ERR-PYOCO-0024", str(error), wheel.name)

    async def _switch_to(self, active: dict[str, Wheel]) -> bool:
        """Use exactly these; False if that could not be done."""
        before, after = ({wheel.nuid: wheel for wheel in some.values()} for some in (self._active, active))
        updated = [wheel for nuid, wheel in after.items() if nuid not in before]
        removed = [wheel for package, wheel in self._active.items() if package not in active]
        if not updated and not removed:
            return True
        try:
            await self._house.activate([*after.values()])
        except WheelInstallError as error:
            self._failed(error)
            return False
        self._active = active
        await self._on_change([*active.values()])
        self._status.synced(self._now(), updated, removed, [*active.values()])
        _log.info(
            "wheels are up to date: %d installed, %d removed",
            len(updated),
            len(removed),
            extra={
                "action": "wheels_synced",
                "updated": sorted(wheel.name for wheel in updated),
                "removed": sorted(wheel.name for wheel in removed),
            },
        )
        return True

    def _failed(self, error: WheelInstallError) -> None:
        log_error(_log, "ERR-PYOCO-0024", action="wheel_sync_failed", exc=error, reason=str(error))
        self._status.failed(self._now(), "ERR-PYOCO-0024", str(error))

    def _publish(self) -> None:
        self._note(wheel_sync=self._status.to_json())

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time()
