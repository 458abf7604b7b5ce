"""The list of runs."""

import re

from playwright.sync_api import expect

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site

SOON_MS = 2_000


def test_a_run_appears_and_changes_by_itself(look: Look, site: Site) -> None:
    with look() as visit:
        page = visit.go("#/runs?flow=ask")
        expect(page.locator(".chip-count").first).not_to_be_empty()
        run_id = site.waiting("ask")
        row = page.locator(f"[id='run-{run_id}']")
        expect(row).to_contain_text("Waiting", timeout=SOON_MS)
        site.client.post(f"/runs/{run_id}/cancel", json={"reason": "not today"})
        expect(row).to_contain_text("Cancelled", timeout=SOON_MS)
        expect(row).to_contain_text("not today")
        visit.check()


def test_filters_stand_in_the_address(look: Look, site: Site) -> None:
    failed, fine = site.ended("boom"), site.ended("hello")
    with look() as visit:
        page = visit.go()
        expect(page.locator(f"[id='run-{fine}']")).to_be_visible()
        page.locator(".chip[data-status=FAILED]").click()
        expect(page).to_have_url(re.compile(r"status=FAILED"))
        expect(page.locator(f"[id='run-{failed}']")).to_be_visible()
        expect(page.locator(f"[id='run-{fine}']")).to_have_count(0)
        page.reload()
        expect(page.locator(".chip[data-status=FAILED]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator(f"[id='run-{failed}']")).to_be_visible()
        page.locator("[data-filter=flow]").fill("hello")
        page.locator("[data-filter=flow]").press("Enter")
        expect(page.get_by_text("No run fits")).to_be_visible()
        visit.check()


def test_a_run_is_found_by_its_id(look: Look, site: Site) -> None:
    run_id = site.ended("hello")
    with look() as visit:
        page = visit.go()
        page.get_by_role("searchbox").fill(run_id[:8])
        expect(page.locator(".run-rows .run-row")).to_have_count(1)
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator(".run-id")).to_have_text(run_id)
        visit.check()


def test_many_are_cancelled_at_once(look: Look, site: Site) -> None:
    runs = [site.submit("hello", tag="unused-tag") for _ in range(3)]
    with look() as visit:
        page = visit.go("#/runs?tag=unused-tag&status=PENDING")
        expect(page.locator(".run-rows .run-row")).to_have_count(3)
        page.get_by_role("checkbox", name="Select all").check()
        page.get_by_role("button", name="Cancel 3 runs").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("cleaning up")
        dialog.get_by_role("button", name="Cancel 3 runs").click()
        expect(page.locator(".run-rows .run-row")).to_have_count(0, timeout=SOON_MS)
        visit.check()
    for run_id in runs:
        found = site.until(run_id, lambda run: run["status"] == "CANCELLED")
        assert found["cancel_reason"] == "cleaning up"


def test_keys_choose_and_open(look: Look, site: Site) -> None:
    older, newer = site.waiting("form"), site.waiting("form")
    with look() as visit:
        page = visit.go("#/runs?flow=form&status=RUNNING")
        expect(page.locator(f"[id='run-{newer}']")).to_be_visible()
        page.locator(".run-rows").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
        expect(page.locator(f"[id='run-{newer}']")).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("button", name="Cancel 1 runs")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator(".run-id")).to_have_text(older)
        visit.check()
