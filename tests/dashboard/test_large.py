"""Much of it: a graph of five hundred nodes, a hundred thousand runs. Little of that is ever in the page."""

import json
import os
from pathlib import Path

from playwright.sync_api import expect

from pyoco_server.app.ports import SnapshotChange
from pyoco_server.gateway.services import Services
from tests.adapters.nats_server import NatsServer
from tests.dashboard.conftest import Look
from tests.dashboard.site import Site
from tests.gateway.stand import Stand, settings_for
from tests.readmodel.snapshots import snapshot

RUNS = 100_000
SCROLLED = int(os.environ.get("PYOCO_TEST_SCROLLED", "5000"))
"""So many of them are scrolled through, a page of 200 at a time: all of them, if there is time."""
MOST_HEAP_BYTES = 300 * 1024 * 1024
"""All rows that were loaded are held as data; what is in the page does not grow."""
SLOW_FRAME_MS = 250
"""Far above what it takes, on a machine that does other things at the same time."""
SCROLL = """async ([rows, to]) => {
  const frames = [];
  let last = performance.now();
  while (Number(rows.closest("[role=table]").getAttribute("aria-rowcount")) <= to) {
    rows.scrollTop += 3_000;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return frames;
}"""
FILL = """async () => {
  const { layout } = await import("/static/views/run/layout.js");
  const nodes = new Map();
  for (let at = 0; at < 500; at += 1) {
    const edges = [at * 2 + 1, at * 2 + 2, at + 7].filter((to) => to < 500).map((to) => ({ to: `n${to}` }));
    nodes.set(`n${at}`, { id: `n${at}`, type: "Task", label: `n${at}`, edges });
  }
  const began = performance.now();
  const made = layout(nodes);
  const took = performance.now() - began;
  return { took, boxes: [...made.nodes.values()].map(({ x, y, width, height }) => [x, y, width, height]) };
}"""


def test_five_hundred_nodes_are_drawn_and_can_be_read(look: Look, site: Site) -> None:
    run_id = site.ended("wide")
    graph = site.client.get(f"/runs/{run_id}/graph").json()
    assert len(graph["nodes"]) >= 500
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".graph .node")).to_have_count(len(graph["nodes"]))
        box = page.locator(".graph").bounding_box()
        scene = page.locator(".graph > g").bounding_box()
        assert box is not None
        assert scene is not None
        assert scene["width"] <= box["width"] + 2
        assert scene["height"] <= box["height"] + 2
        part = page.locator(".node[data-id=part_250]")
        part.click()
        expect(page.locator(".inspector h2")).to_have_text("part_250")
        part.focus()
        for _ in range(8):
            page.keyboard.press("+")
        expect(page.locator(".graph")).to_have_attribute("data-detail", "all")
        visit.check()


def test_five_hundred_tangled_nodes_are_laid_out_at_once_and_apart(look: Look) -> None:
    with look() as visit:
        made = visit.go().evaluate(FILL)
        visit.check()
    assert made["took"] < 1_000
    boxes = sorted(made["boxes"])
    assert len(boxes) == 500
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, _, other_height in boxes[index + 1 :]:
            if other_x >= x + width:
                break
            assert other_y >= y + height or y >= other_y + other_height, (x, y, other_x, other_y)


async def _fill(given: Services) -> None:
    """An index as it is after a hundred thousand runs."""
    position = await given.index.position()
    for begin in range(0, RUNS, 10_000):
        await given.index.apply([_ended(number) for number in range(begin, begin + 10_000)], position)


def _ended(number: int) -> SnapshotChange:
    at = 1_700_000_000.0 + number
    times = {"submitted_at": at, "updated_at": at + 2, "start_time": at + 1, "end_time": at + 2}
    missing = {"error": None, "cancel_requested_at": None, "cancel_reason": None, "archived_at": None}
    run_id = f"run-{number:06d}"
    told = snapshot(run_id=run_id, status="COMPLETED", tasks={"t": "SUCCEEDED"}, version=9, **times, **missing)
    return SnapshotChange(run_id, json.dumps(told).encode(), 1)


def test_a_hundred_thousand_runs_are_scrolled_smoothly(look: Look, tmp_path: Path) -> None:
    nats = NatsServer(tmp_path)
    nats.start()
    try:
        with Stand(settings_for(nats.url, tmp_path / "data"), workers=0) as stand, look(stand.url) as visit:
            stand.call(_fill)
            page = visit.go()
            rows = page.locator(".run-rows")
            expect(page.locator("[id='run-run-099999']")).to_be_visible()
            expect(page.locator(".chip[data-status=COMPLETED] .chip-count")).to_have_text("100,000")
            frames = sorted(page.evaluate(SCROLL, [rows.element_handle(), SCROLLED]))
            assert frames[len(frames) * 95 // 100] < SLOW_FRAME_MS, frames[-10:]
            assert page.locator(".run-row").count() < 80
            expect(page.locator("[id='run-run-099999']")).to_have_count(0)
            heap = page.evaluate("performance.memory.usedJSHeapSize")
            assert heap < MOST_HEAP_BYTES
            rows.evaluate("rows => { rows.scrollTop = 0; }")
            expect(page.locator("[id='run-run-099999']")).to_be_visible()
            visit.check()
    finally:
        nats.kill()
