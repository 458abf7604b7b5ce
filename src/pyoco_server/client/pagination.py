"""Series of requests for pages: all runs that match, all events of a log."""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, Final

from typing_extensions import Unpack

from pyoco_server.client.requests import EventPage, Filters, RunPage, events_page, runs_page
from pyoco_server.client.sans_io import Item, RequestSteps, RetryPolicy, Step, intercepted, sending
from pyoco_server.client.watch import RunWatch
from pyoco_server.core.json_codec import JsonObject

OnNotes = Callable[[tuple[str, ...]], object]
"""Called with the notes about an inconsistent log, once for each different set of them."""
EVENTS_AT_ONCE: Final = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class AllRuns:
    """All runs that match, page by page."""

    filters: Filters

    def steps(self, policy: RetryPolicy) -> RequestSteps[JsonObject]:
        """Yield each run once, newest first."""
        filters = self.filters
        while True:
            page: RunPage = yield from sending(runs_page(**filters), policy)
            for run in page.items:
                yield Item(run)
            if page.next_cursor is None:
                return
            filters = {**filters, "cursor": page.next_cursor}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AllEvents:
    """The events of a log up to its end, or with ``follow`` up to the end of the run."""

    run_id: str
    after: int
    follow: bool
    on_notes: OnNotes | None = None

    def steps(self, policy: RetryPolicy) -> RequestSteps[JsonObject]:
        """Yield each event once, in order, with the version after it."""
        known: set[tuple[str, ...]] = {()}
        version = yield from self._rest(self.after, policy, known)
        if not self.follow:
            return

        def take(_: JsonObject) -> RequestSteps[JsonObject]:  # the run changed: read its new events
            nonlocal version
            version = yield from self._rest(version, policy, known)

        yield from intercepted(RunWatch(run_id=self.run_id).steps(policy), take)

    def _rest(
        self, after: int, policy: RetryPolicy, known: set[tuple[str, ...]]
    ) -> Generator[Step | Item[JsonObject], Any, int]:
        while True:
            page: EventPage = yield from sending(events_page(self.run_id, after, EVENTS_AT_ONCE), policy)
            if self.on_notes is not None and page.notes not in known:
                known.add(page.notes)
                self.on_notes(page.notes)
            for event in page.events:
                yield Item(event)
            after = page.version
            if page.next_after is None:
                return after


def iterate(**filters: Unpack[Filters]) -> AllRuns:
    """All runs that match, newest first, a page at a time; ``limit`` is the size of a page."""
    return AllRuns(filters)


def events(run_id: str, after: int = 0, *, follow: bool = False, on_notes: OnNotes | None = None) -> AllEvents:
    """The events of a run after version ``after``; with ``follow``, until the run has ended.

    ``on_notes`` is called with notes if the log is inconsistent.
    """
    return AllEvents(run_id=run_id, after=after, follow=follow, on_notes=on_notes)
