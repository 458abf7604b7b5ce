"""The live list of runs: updated by a stream without polling; counted, searched and measured by the server."""

import re
from typing import Any

from playwright.sync_api import Page, Request, expect

from tests.dashboard.browser import Visit
from tests.dashboard.conftest import Look
from tests.dashboard.site import Site

SOON_MS = 3_000
SCROLLED = """position => {
  const rows = document.querySelector(".run-rows");
  rows.scrollTop = position;
  return rows.scrollTop === position;
}"""
"""Scroll the list; true as soon as it is long enough for that."""
QUANTILES = """async ([bounds, counts, parts]) => {
  const { quantile } = await import("/static/views/metrics/series.js");
  return parts.map((part) => quantile(bounds, counts, part));
}"""


def asked(visit: Visit) -> list[str]:
    """Record the requests from now on."""
    found: list[str] = []

    def note(request: Request) -> None:
        found.append(request.url.removeprefix(visit.url))

    visit.page.on("request", note)
    return found


def count(page: Page, status: str) -> Any:
    return page.locator(f".chip[data-status='{status}'] .chip-count")


def test_the_list_is_updated_by_a_stream_without_polling(look: Look, site: Site) -> None:
    with look() as visit:
        page = visit.go("#/runs?tag=live")
        expect(page.get_by_text("No run fits")).to_be_visible()
        requests = asked(visit)
        runs = [site.submit("hello", tag="live") for _ in range(3)]
        expect(page.locator(".run-rows .run-row")).to_have_count(3, timeout=SOON_MS)
        for run_id in runs:
            site.client.post(f"/runs/{run_id}/cancel", json={})
        expect(count(page, "CANCELLED")).to_have_text("3", timeout=SOON_MS)
        assert not [path for path in requests if path.startswith("/runs")]
        visit.check()


def test_a_stream_that_ends_is_opened_again_and_nothing_is_missed(look: Look, site: Site) -> None:
    with look() as visit:
        page = visit.go("#/runs?tag=gap")
        expect(page.get_by_text("No run fits")).to_be_visible()
        visit.context.set_offline(offline=True)
        expect(page.locator(".notice")).to_be_visible(timeout=30_000)
        run_id = site.submit("hello", tag="gap")
        visit.context.set_offline(offline=False)
        expect(page.locator(f"[id='run-{run_id}']")).to_be_visible(timeout=20_000)
        expect(page.locator(".notice")).to_be_hidden(timeout=20_000)
        visit.check("ERR_INTERNET_DISCONNECTED", "ERR_NETWORK_CHANGED")


def test_counts_follow_the_other_filters(look: Look, site: Site) -> None:
    site.ended("boom")
    runs = [site.submit("boom", tag="counted") for _ in range(2)]
    with look() as visit:
        page = visit.go("#/runs?tag=counted")
        expect(count(page, "PENDING")).to_have_text("2")
        expect(count(page, "FAILED")).to_have_text("0")
        expect(count(page, "")).to_have_text("2")
        page.get_by_role("searchbox").fill(runs[0])
        expect(count(page, "PENDING")).to_have_text("1")
        expect(count(page, "")).to_have_text("1")
        page.get_by_role("searchbox").fill("")
        expect(count(page, "PENDING")).to_have_text("2")
        page.locator("[data-filter=tag]").fill("")
        page.locator("[data-filter=tag]").press("Enter")
        expect(count(page, "FAILED")).not_to_have_text("0")
        visit.check()


def test_the_search_finds_runs_that_were_never_loaded(look: Look, site: Site) -> None:
    run_id = site.submit("hello", tag="needle")
    with look() as visit:
        page = visit.go("#/runs?status=CANCELLED&tag=needle")
        expect(page.get_by_text("No run fits")).to_be_visible()
        page.locator(".chip[data-status='']").click()
        page.get_by_role("searchbox").fill(run_id[:13])
        expect(page.locator(".run-rows .run-row")).to_have_count(1)
        expect(page).to_have_url(re.compile(f"q={run_id[:13]}"))
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.reload()
        expect(page.get_by_role("searchbox")).to_have_value(run_id[:13])
        expect(page.locator(".run-rows .run-row")).to_have_count(1)
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator(".run-id")).to_have_text(run_id)
        page.go_back()
        page.get_by_role("searchbox").fill("no-such")
        expect(page.get_by_text("No run fits")).to_be_visible()
        page.get_by_role("searchbox").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("ERR-PYOCO-0005")
        visit.check("404")


def test_the_same_runs_stay_visible_after_scrolling(look: Look, site: Site) -> None:
    for _ in range(40):
        site.submit("hello", tag="scrolled")
    with look(viewport={"width": 1200, "height": 500}) as visit:
        page = visit.go("#/runs?tag=scrolled")
        expect(count(page, "PENDING")).to_have_text("40")
        page.wait_for_function(SCROLLED, arg=510)
        seen = page.locator(".run-row[aria-rowindex='20']")
        expect(seen).to_be_visible()
        name = seen.get_attribute("id")
        box = page.locator(f"[id='{name}']").bounding_box()
        for _ in range(5):
            site.submit("hello", tag="scrolled")
        expect(count(page, "PENDING")).to_have_text("45", timeout=SOON_MS)
        expect(page.locator(f"[id='{name}']")).to_have_attribute("aria-rowindex", "25")
        assert page.locator(f"[id='{name}']").bounding_box() == box
        visit.check()


def test_latencies_are_drawn_from_what_the_server_counts(look: Look, site: Site) -> None:
    site.ended("hello")
    with look() as visit:
        page = visit.go("#/metrics")
        card = page.locator(".plots .card", has_text="From submission to end")
        expect(card.locator(".plot-note")).to_contain_text(re.compile(r"runs counted so far: p50 .+, p95 .+, p99 "))
        expect(card.locator(".plot-legend")).to_contain_text("p99–")  # nothing has ended since the page was opened
        requests = asked(visit)
        site.ended("hello")
        expect(card.locator(".plot-legend")).not_to_contain_text("–", timeout=10_000)
        assert {path for path in requests if not path.startswith("/metrics")} == set()
        counts = [0, 50, 90, 100, 100]
        found = page.evaluate(QUANTILES, [[1, 2, 3, 4, 1e999], counts, [0.25, 0.5, 0.9, 0.95, 1]])
        assert found == [1.5, 2, 3, 3.5, 4]
        assert page.evaluate(QUANTILES, [[1, 1e999], [0, 0], [0.5]]) == [None]
        assert page.evaluate(QUANTILES, [[1, 1e999], [0, 5], [0.5]]) == [1]  # above the last bound
        visit.check()


def test_a_tag_without_workers_is_pointed_out(look: Look, site: Site) -> None:
    first, failed = site.submit("hello", tag="unserved"), site.ended("boom")
    with look() as visit:
        page = visit.go("#/queue")
        row = page.locator("tr", has_text="unserved").filter(has_text="no worker takes this tag")
        expect(row).to_be_visible(timeout=10_000)
        letter = page.locator("tr", has_text="execution_error").filter(has=page.locator(f"a[title='{failed}']"))
        expect(letter).to_have_count(1)
        oldest = site.client.get("/runs", params={"status": "PENDING", "order": "oldest", "limit": 1}).json()[0]
        expect(page.locator(".columns .card").nth(1).locator("tbody a").first).to_have_attribute(
            "title", oldest["run_id"]
        )
        visit.check()
    site.client.post(f"/runs/{first}/cancel", json={})
