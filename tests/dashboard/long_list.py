"""A list of a hundred thousand runs, and a scroll through all of them while the browser is measured."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from playwright.sync_api import CDPSession, Page, Request
from typing_extensions import override

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.services import Services
from tests.adapters.sqlite_index.snapshots import snapshot
from tests.dashboard.browser import Visit

RUNS = 100_000
FLOW = "nightly"
MIB = 1024 * 1024
_TRACK = """() => {
  window.tracked = { seen: new Uint8Array(1_000_000), count: 0, misplaced: 0, blank: 0, long: [] };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.tracked.long.push(entry.duration);
  }).observe({ type: "longtask" });
}"""
_SCROLL = """async ([runs, to]) => {
  const rows = document.querySelector(".run-rows");
  const { tracked } = window;
  const frames = [];
  let [last, left] = [performance.now(), performance.now()];
  while (tracked.count < to && performance.now() - left < 20_000) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    const shown = new Set();
    for (const row of rows.querySelectorAll(".run-row:not(.blank)")) {
      const [number, index] = [Number(row.dataset.id.slice(4)), Number(row.getAttribute("aria-rowindex")) - 2];
      shown.add(index);
      if (index !== runs - 1 - number) tracked.misplaced += 1;
      if (!tracked.seen[number]) tracked.count += 1;
      tracked.seen[number] = 1;
    }
    let index = Math.floor(rows.scrollTop / 34);
    const end = Math.min(runs, Math.ceil((rows.scrollTop + rows.clientHeight) / 34));
    while (index < end && shown.has(index)) index += 1;
    if (index === end) {
      rows.scrollTop += rows.clientHeight - 34;
      left = now;
    } else if (rows.querySelector(`.blank[aria-rowindex="${index + 2}"]`)) tracked.blank += 1;
  }
  return frames;
}"""


def ended(number: int, sequence: int, flow: str) -> SnapshotChange:
    """The run with this number: the higher, the newer."""
    at = 1_700_000_000.0 + number
    times = {"submitted_at": at, "updated_at": at + 2, "start_time": at + 1, "end_time": at + 2}
    missing = {"error": None, "cancel_requested_at": None, "cancel_reason": None, "archived_at": None}
    known = {
        "run_id": name(number),
        "flow_name": flow,
        "status": "COMPLETED",
        "tasks": {"t": "SUCCEEDED"},
        "version": 9,
    }
    known_run = snapshot(**known, **times, **missing)
    return SnapshotChange(name(number), json.dumps(known_run).encode(), sequence)


def name(number: int) -> str:
    return f"run-{number:06d}"


async def add(given: Services, numbers: Sequence[int], flow: str = FLOW) -> None:
    """Fill the index with these runs, and notify the streams."""
    position = await given.index_updater.index.position()
    for begin in range(0, len(numbers), 10_000):
        changes = [ended(number, position + 1, flow) for number in numbers[begin : begin + 10_000]]
        await given.index_updater.index.apply(changes, position)
        for change in changes:
            given.hub.changes.notify(change)


class Stage(NamedTuple):
    """How it was up to so many rows."""

    rows: int
    frames: list[float]
    heap: float
    """What the page's code holds, in MiB, after the garbage was collected."""
    nodes: int
    """All the browser holds of this page, also those that are in no document any more."""

    @override
    def __str__(self) -> str:
        found = sorted(self.frames) or [0.0]
        at = {part: found[min(len(found) - 1, len(found) * part // 100)] for part in (50, 95, 99)}
        times = " ".join(f"p{part} {took:.0f}" for part, took in at.items())
        return f"{self.rows:7d} rows  {times} worst {found[-1]:.0f} ms  heap {self.heap:.1f} MiB  {self.nodes} nodes"


class Measured:
    """A visit whose frames, memory and requests are looked at."""

    def __init__(self, visit: Visit) -> None:
        self.page: Page = visit.page
        self.requests: list[str] = []
        self._session: CDPSession = visit.context.new_cdp_session(visit.page)
        visit.page.on("request", self._asked)

    def _asked(self, request: Request) -> None:
        if "/runs?" in request.url:
            self.requests.append(request.url)

    def begin(self) -> Stage:
        self.page.evaluate(_TRACK)
        return self._stage(0, [])

    def scroll(self, stops: Iterable[int]) -> list[Stage]:
        """Scroll on, a screen at a time, until so many rows have been seen."""
        return [self._stage(to, self.page.evaluate(_SCROLL, [RUNS, to])) for to in stops]

    def tracked(self) -> dict[str, int]:
        """How many runs were seen, how often one in a wrong place; frames that lacked rows; tasks of 50 ms and more."""
        found: dict[str, int] = self.page.evaluate(
            "() => (({ seen, long, ...counted }) => ({ ...counted, long: long.length }))(tracked)"
        )
        return found

    def _stage(self, rows: int, frames: list[float]) -> Stage:
        self._session.send("HeapProfiler.collectGarbage")
        heap = self._session.send("Runtime.getHeapUsage")["usedSize"] / MIB
        return Stage(rows, frames, heap, self._session.send("Memory.getDOMCounters")["nodes"])
