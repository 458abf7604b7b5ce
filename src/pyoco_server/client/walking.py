"""What takes more than one request: all runs that fit, all events of a log."""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, Final

from typing_extensions import Unpack

from pyoco_server.client.calls import EventPage, Filters, RunPage, events_page, runs_page
from pyoco_server.client.steps import Item, Manner, Step, Walk, intercepted, sending
from pyoco_server.client.watching import Watch
from pyoco_server.core.wire import JsonObject

OnNotes = Callable[[tuple[str, ...]], object]
"""Called with the notes about an inconsistent log, once for each different set of them."""
EVENTS_AT_ONCE: Final = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class AllRuns:
    """Walks the cursor from page to page."""

    filters: Filters

    def walk(self, manner: Manner) -> Walk[JsonObject]:
        """Each run once, newest first."""
        filters = self.filters
        while True:
            page: RunPage = yield from sending(runs_page(**filters), manner)
            for run in page.items:
                yield Item(run)
            if page.next_cursor is None:
                return
            filters = {**filters, "cursor": page.next_cursor}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AllEvents:
    """Reads a log to its end, or to the end of its run."""

    run_id: str
    after: int
    follow: bool
    on_notes: OnNotes | None = None

    def walk(self, manner: Manner) -> Walk[JsonObject]:
        """Each event once, in order; the version it led to is with it."""
        known: set[tuple[str, ...]] = {()}
        version = yield from self._rest(self.after, manner, known)
        if not self.follow:
            return

        def take(_: JsonObject) -> Walk[JsonObject]:  # something happened, and the log says what
            nonlocal version
            version = yield from self._rest(version, manner, known)

        yield from intercepted(Watch(run_id=self.run_id).walk(manner), take)

    def _rest(
        self, after: int, manner: Manner, known: set[tuple[str, ...]]
    ) -> Generator[Step | Item[JsonObject], Any, int]:
        while True:
            page: EventPage = yield from sending(events_page(self.run_id, after, EVENTS_AT_ONCE), manner)
            if self.on_notes is not None and page.notes not in known:
                known.add(page.notes)
                self.on_notes(page.notes)
            for event in page.events:
                yield Item(event)
            after = page.version
            if page.next_after is None:
                return after


def iterate(**filters: Unpack[Filters]) -> AllRuns:
    """All runs that fit, newest first, a page at a time; ``limit`` is the size of a page."""
    return AllRuns(filters)


def events(run_id: str, after: int = 0, *, follow: bool = False, on_notes: OnNotes | None = None) -> AllEvents:
    """The events of a run behind version ``after``; with ``follow``, on until the run has ended.

    ``on_notes`` is called with the notes that say where the log is inconsistent, if it is.
    """
    return AllEvents(run_id=run_id, after=after, follow=follow, on_notes=on_notes)
