"""A hundred thousand runs: a scroll shows each of them once, and neither the page nor its memory grows."""

import os
import sys
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.adapters.real_nats import NatsServer
from tests.dashboard.conftest import Look
from tests.dashboard.long_list import FLOW, RUNS, Measured, add, name
from tests.gateway.stand import Stand, settings_for, submit

SCROLLED = min(RUNS, int(os.environ.get("PYOCO_TEST_SCROLLED", "3000")))
"""So many of them are scrolled through, a screen at a time. All of them take minutes: see docs/dashboard.md."""
STAGE = 20_000
FIRST_STAGE = 1_000
"""By then everything that comes with the first rows is there."""
MOST_GROWTH_MIB = 6
MOST_NODES = 6_000
MOST_ROWS = 80
PAGE = 200
MOST_AT_ONCE = 2_000
"""With more changes at a time, the stream sends a reset and the list is read again."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A gateway whose index has a hundred thousand runs."""
    directory = tmp_path_factory.mktemp("long")
    with NatsServer(directory) as nats, Stand(settings_for(nats.url, directory / "data"), workers=0) as made:
        made.call(lambda given: add(given, range(RUNS)), timeout_sec=110)  # on a busy machine it takes a minute
        yield made


def row(page: Page, number: int) -> Locator:
    return page.locator(f"[id='run-{name(number)}']")


def scrolled(page: Page, part: float) -> None:
    """Drag the scroll bar there."""
    page.locator(".run-rows").evaluate("(rows, part) => { rows.scrollTop = rows.scrollHeight * part; }", part)


@pytest.mark.timeout(1_200)
def test_every_run_is_seen_once_and_nothing_grows(look: Look, stand: Stand) -> None:
    with look(stand.url) as visit:
        measured = Measured(visit)
        page = visit.go(f"#/runs?flow={FLOW}")
        expect(page.locator(".chip[data-status=COMPLETED] .chip-count")).not_to_be_empty()
        expect(row(page, RUNS - 1)).to_be_visible()
        began = time.monotonic()
        stops = sorted({FIRST_STAGE, *range(STAGE, SCROLLED, STAGE), SCROLLED})
        stages = [measured.begin(), *measured.scroll(stops)]
        found = measured.tracked()
        lines = [*map(str, stages), f"{time.monotonic() - began:.0f} s, {len(measured.requests)} requests, {found}"]
        sys.stdout.write("\n".join(lines) + "\n")
        assert found["count"] >= SCROLLED
        assert found["misplaced"] == 0
        assert len(measured.requests) <= SCROLLED / PAGE + 4
        assert page.locator(".run-row").count() < MOST_ROWS
        assert max(stage.nodes for stage in stages) < MOST_NODES
        assert max(stage.heap for stage in stages[1:]) - stages[1].heap < MOST_GROWTH_MIB
        asked = len(measured.requests)
        scrolled(page, 0)
        expect(row(page, RUNS - 1)).to_be_visible()
        assert len(measured.requests) <= asked + 4
        visit.check()


def test_the_end_is_one_step_away(look: Look, stand: Stand) -> None:
    with look(stand.url) as visit:
        measured = Measured(visit)
        page = visit.go(f"#/runs?flow={FLOW}")
        expect(row(page, RUNS - 1)).to_be_visible()
        expect(page.get_by_role("status").first).to_have_text("100,000 runs")
        page.locator(".run-rows").focus()
        page.keyboard.press("End")
        expect(row(page, 0)).to_have_class("run-row active")
        expect(row(page, 0)).to_have_attribute("aria-rowindex", str(RUNS + 1))
        page.keyboard.press("Enter")
        expect(page.locator(".run-id")).to_have_text(name(0))
        page.go_back()
        expect(row(page, RUNS - 1)).to_be_visible()
        scrolled(page, 1)
        expect(row(page, 0)).to_be_visible()
        page.locator(".run-rows").focus()
        page.keyboard.press("Home")
        expect(row(page, RUNS - 1)).to_be_visible()
        assert len(measured.requests) < 20
        visit.check("404")  # these runs are in the index only


def test_the_bar_is_dragged_into_the_midst(look: Look, stand: Stand) -> None:
    with look(stand.url) as visit:
        measured = Measured(visit)
        page = visit.go(f"#/runs?flow={FLOW}")
        expect(row(page, RUNS - 1)).to_be_visible()
        scrolled(page, 0.03)
        expect(row(page, RUNS - 1 - 3_005)).to_be_visible(timeout=20_000)
        assert len(measured.requests) <= 3_200 / PAGE + 3
        scrolled(page, 0.01)
        expect(row(page, RUNS - 1 - 1_005)).to_be_visible()
        expect(page.locator(".run-row.blank")).to_have_count(0)
        assert len(measured.requests) <= 3_200 / PAGE + 8  # known pages are not loaded again
        visit.check()


def test_the_scroll_position_is_kept_while_runs_arrive(look: Look, stand: Stand) -> None:
    with look(stand.url) as visit, stand.client() as client:
        page = visit.go()
        expect(row(page, RUNS - 1)).to_be_visible()
        before = int(page.locator(".run-table").get_attribute("aria-rowcount") or 0)
        scrolled(page, 0.02)
        held = row(page, RUNS - 1 - 2_005)
        expect(held).to_be_visible()
        box = held.bounding_box()
        submitted = submit(client, tag="no-worker")
        expect(page.locator(".run-table")).to_have_attribute("aria-rowcount", str(before + 1))
        assert held.bounding_box() == box
        stand.call(lambda given: add(given, range(RUNS, RUNS + MOST_AT_ONCE + 100), "another"))
        expect(page.locator(".run-table")).to_have_attribute("aria-rowcount", str(before + 2_101), timeout=15_000)
        expect(held).to_have_attribute("aria-rowindex", str(2_005 + 2_101 + 2))
        assert held.bounding_box() == box
        page.locator(".chip[data-status=PENDING]").click()
        expect(page.locator(f"[id='run-{submitted}']")).to_be_visible()
        page.locator(".chip[data-status='']").click()
        expect(page.locator(f"[id='run-{submitted}']")).to_be_visible()  # at the top again
        visit.check()
