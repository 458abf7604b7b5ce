"""What a worker publishes about its wheels in the registry of workers."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pyoco_server.app.ports.wheels import Wheel
from pyoco_server.app.wheels.names import known_name
from pyoco_server.app.wheels.selection import SkippedWheel
from pyoco_server.texts import shortened

MOST_LISTED: Final = 50
"""Of anything; the counts are those of all."""

_LONGEST_REASON: Final = 500


class WheelSyncStatus:
    """The ``wheel_sync`` object, kept up to date.

    ``last_result`` is ``ok`` only while every selected wheel is in use; those that are not are in ``pending_wheels``.
    What was updated and removed is what the last synchronisation that changed something did, at ``last_synced_at``;
    the rest is as of the last look, at ``last_attempt_at``.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._fields: dict[str, Any] = {
            "enabled": enabled,
            "last_result": "idle" if enabled else "disabled",
            "last_attempt_at": None,
            "last_success_at": None,
            "last_synced_at": None,
            "last_error": None,
        }
        self._selected: Sequence[Wheel] = ()
        self._installed: dict[str, float] = {}
        for kind in ("selected", "pending", "updated", "removed"):
            self._list(kind, ())
        self._skipped(())
        self._fields["installed_wheels"] = []

    def looked(self, now: float, selected: Sequence[Wheel], skipped: Sequence[SkippedWheel]) -> None:
        """Take note of what the registry has for this worker."""
        self._fields["last_attempt_at"] = now
        self._selected = selected
        self._list("selected", selected)
        self._skipped(skipped)

    def synced(self, now: float, updated: Sequence[Wheel], removed: Sequence[Wheel], active: Sequence[Wheel]) -> None:
        """Take note of a change."""
        self._fields["last_synced_at"] = now
        self._list("updated", updated)
        self._list("removed", removed)
        self._installed = {wheel.nuid: self._installed.get(wheel.nuid, now) for wheel in active}
        self._fields["installed_wheels"] = [
            _installed(wheel, self._installed[wheel.nuid]) for wheel in active[:MOST_LISTED]
        ]

    def succeeded(self, now: float) -> None:
        """Take note that every selected wheel is in use."""
        self._fields.update(last_result="ok", last_success_at=now, last_error=None)

    def failed(self, now: float, err_id: str, reason: str, wheel_name: str | None = None) -> None:
        """Take note that a selected wheel is not in use, or that the registry could not be read."""
        error = {"err_id": err_id, "wheel_name": wheel_name, "reason": shortened(reason, _LONGEST_REASON)}
        self._fields.update(last_result="error", last_attempt_at=now, last_error=error)

    def to_json(self) -> dict[str, Any]:
        """The object as it is now."""
        pending = [wheel for wheel in self._selected if wheel.nuid not in self._installed]
        self._list("pending", pending)
        is_stale = pending and self._fields["last_result"] == "ok"
        return {**self._fields, "last_result": "idle"} if is_stale else dict(self._fields)

    def _list(self, kind: str, wheels: Iterable[Wheel]) -> None:
        names = sorted(wheel.name for wheel in wheels)
        self._fields[f"{kind}_count"] = len(names)
        self._fields[f"{kind}_wheels"] = names[:MOST_LISTED]

    def _skipped(self, skipped: Sequence[SkippedWheel]) -> None:
        self._fields["skipped_incompatible_count"] = len(skipped)
        self._fields["skipped_incompatible"] = [
            {"name": wheel.name, "nuid": wheel.nuid, "reason": shortened(reason, _LONGEST_REASON)}
            for wheel, reason in skipped[:MOST_LISTED]
        ]


def _installed(wheel: Wheel, installed_at: float) -> dict[str, Any]:
    name = known_name(wheel)
    return {
        "name": wheel.name,
        "package": None if name is None else name.package,
        "version": None if name is None else str(name.version),
        "nuid": wheel.nuid,
        "sha256_hex": wheel.sha256_hex,
        "tags": list(wheel.tags),
        "installed_at": installed_at,
    }
