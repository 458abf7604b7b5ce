"""Whose turn it is: slots are spread over the tags, and those left over go round."""

from collections.abc import Sequence


class Turns:
    """Gives out tags: the one fewest are waiting for, and of those the one whose turn is longest ago."""

    def __init__(self, tags: Sequence[str]) -> None:
        self._waiting = dict.fromkeys(tags, 0)
        self._last = dict.fromkeys(tags, 0)
        self._turn = 0

    def take(self) -> str:
        """The tag to wait for now."""
        tag = min(self._waiting, key=lambda name: (self._waiting[name], self._last[name]))
        self._turn += 1
        self._last[tag] = self._turn
        self._waiting[tag] += 1
        return tag

    def give_back(self, tag: str) -> None:
        """No longer waiting for it."""
        self._waiting[tag] -= 1
