"""Decides whether other wheels would leave a worker worse off: what it could import must stay importable."""

from collections.abc import Collection, Iterator, Sequence

from pyoco_server.app.ports.wheels import Tried


class Importable:
    """What could be imported with the wheels in use.

    A wheel may bring modules that need not work here (its tests, parts for another system). So a module that cannot be
    imported speaks against a new wheel if it could be before, if flows are to be found in it, or if nothing else of
    the wheel can be imported either.
    """

    def __init__(self) -> None:
        self._known: frozenset[tuple[str, bool]] = frozenset()

    def take(self, tried: Sequence[Tried]) -> None:
        """Remember what can be imported now."""
        self._known = frozenset((one.name, one.is_place) for one in tried if one.problem is None)

    def worse(self, tried: Sequence[Tried], new: Collection[str]) -> dict[str, str]:
        """Return those of the ``new`` wheels (by nuid) that are to blame for a failed import, with that failure."""
        blamed: dict[str, str] = {}
        for one in tried:
            if one.problem is not None:
                for nuid in self._to_blame(one, tried, new):
                    blamed.setdefault(nuid, f"{one.name} cannot be imported with it: {one.problem}")
        return blamed

    def _to_blame(self, failed: Tried, tried: Sequence[Tried], new: Collection[str]) -> Iterator[str]:
        was_known = (failed.name, failed.is_place) in self._known
        if failed.wheel is not None and failed.wheel.nuid in new:
            if was_known or failed.is_place or not _has_any(failed.wheel.nuid, tried):
                yield failed.wheel.nuid
        elif was_known:  # whose code it is has not changed: one of the others has broken it
            yield from new


def _has_any(nuid: str, tried: Sequence[Tried]) -> bool:
    """Can any of its modules be imported?"""
    return any(one.problem is None and one.wheel is not None and one.wheel.nuid == nuid for one in tried)
