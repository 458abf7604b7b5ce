"""Spreads the slots of a worker over its tags; with more tags than free slots, the slots take turns."""

from collections.abc import Sequence


class TagScheduler:
    """Chooses the tag that the fewest slots pull from, and of those the one chosen longest ago."""

    def __init__(self, tags: Sequence[str]) -> None:
        self._waiting = dict.fromkeys(tags, 0)
        self._last = dict.fromkeys(tags, 0)
        self._turn = 0

    def take(self) -> str:
        """Return the tag to pull from now."""
        tag = min(self._waiting, key=lambda name: (self._waiting[name], self._last[name]))
        self._turn += 1
        self._last[tag] = self._turn
        self._waiting[tag] += 1
        return tag

    def give_back(self, tag: str) -> None:
        """Note that the pull from the tag has ended."""
        self._waiting[tag] -= 1
