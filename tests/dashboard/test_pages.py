"""Every page with content: it loads, obeys its policy, is accessible, and fits any screen."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tools.dashboard_setup import node_tool

from tests.dashboard.browser import PHONE, Visit
from tests.dashboard.conftest import Look
from tests.dashboard.flows import MARKUP
from tests.dashboard.site import Site

PLACES = {
    "runs": "#/runs",
    "graph": "#/runs/{run}?node=flaky",
    "timeline": "#/runs/{run}?tab=timeline",
    "events": "#/runs/{run}?tab=events",
    "data": "#/runs/{run}?tab=data",
    "failed": "#/runs/{failed}?node=fails",
    "waiting": "#/runs/{waiting}?node=approval",
    "odd": "#/runs/{odd}?tab=data",
    "workers": "#/workers?scope=all",
    "wheels": "#/wheels",
    "queue": "#/queue",
    "metrics": "#/metrics",
}
AXE = "() => axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag22aa']})"


@pytest.fixture(scope="module")
def places(site: Site) -> dict[str, str]:
    """All pages, with runs to show."""
    runs = {
        "run": site.ended("retried"),
        "failed": site.ended("boom"),
        "waiting": site.waiting("ask"),
        "odd": site.ended(MARKUP, params={MARKUP: MARKUP}, tags=[MARKUP]),
    }
    return {name: place.format(**runs) for name, place in PLACES.items()}


def settled(page: Page) -> None:
    """The page has what it asked for."""
    expect(page.locator("main h1").first).not_to_have_text("…")
    expect(page.get_by_text("Loading…")).to_have_count(0)
    expect(page.get_by_text("読み込み中…")).to_have_count(0)


def serious(found: dict[str, Any]) -> list[str]:
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:160]} {one['nodes'][0]['failureSummary'][:200]}"
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_quiet(look: Look, places: dict[str, str], scheme: str) -> None:
    source = node_tool("axe-core/axe.min.js").read_text(encoding="utf-8")
    with look(color_scheme=scheme) as visit:
        visit.go().evaluate(source)
        for name, place in places.items():
            page = visit.move(place)
            settled(page)
            assert not serious(page.evaluate(AXE)), name
        visit.check()


def test_pages_fit_a_phone_and_speak_japanese(look: Look, places: dict[str, str]) -> None:
    with look(viewport=PHONE) as visit:
        visit.go()
        visit.page.get_by_role("button", name="日本語").click()
        for name, place in places.items():
            page = visit.move(place)
            settled(page)
            assert page.locator("html").get_attribute("lang") == "ja"
            beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert beyond <= 0, f"{name} is {beyond} px too wide"
            expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(5)
        visit.check()


def test_the_language_is_switched_in_place_and_remembered(look: Look, site: Site) -> None:
    with look() as visit:
        page = visit.go("#/workers")
        expect(page.locator("h1")).to_have_text("Workers")
        page.get_by_role("button", name="日本語").click()
        expect(page.locator("h1")).to_have_text("Worker 一覧")
        page.reload()
        expect(page.locator("h1")).to_have_text("Worker 一覧")
        page.goto(f"{site.url}/#/runs/no-such-run")
        expect(page.get_by_role("alert")).to_contain_text("runが見つかりません")
        expect(page.get_by_role("alert")).to_contain_text("ERR-PYOCO-0005")
        visit.check("404")


def test_colours_follow_the_system_or_the_reader(look: Look) -> None:
    def ground(page: Page) -> str:
        colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return colour

    with look(color_scheme="dark") as visit:
        page = visit.go()
        dark = ground(page)
        page.locator("button.theme").click()
        assert ground(page) != dark
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.locator("button.theme").click()
        assert ground(page) == dark
        visit.check()


def test_texts_of_users_are_shown_as_text(look: Look, places: dict[str, str]) -> None:
    with look() as visit:
        visit.page.on("dialog", lambda dialog: visit.errors.append(f"dialog: {dialog.message}"))
        for name in ("runs", "failed", "waiting", "odd", "queue"):
            page = visit.go(places[name])
            settled(page)
            expect(page.get_by_text(MARKUP).first).to_be_attached()
            assert page.locator("main script, main img").count() == 0
        visit.check()


def test_keys_lead_everywhere(look: Look, site: Site) -> None:
    def pressed(visit: Visit, *keys: str) -> None:
        for key in keys:
            visit.page.keyboard.press(key)

    site.ended("hello")
    with look() as visit:
        page = visit.go()
        settled(page)
        for key, title in (("w", "Workers"), ("q", "Queue and dead letters"), ("m", "Metrics"), ("r", "Runs")):
            pressed(visit, "g", key)
            expect(page.locator("h1")).to_have_text(title)
        expect(page.locator(".run-rows [data-id]").first).to_be_visible()  # else there is none to go to
        pressed(visit, "/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.locator(".run-rows").focus()
        pressed(visit, "?")
        expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
        pressed(visit, "Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        pressed(visit, "ArrowDown", "Enter")
        expect(page.locator(".run-header")).to_be_visible()
        visit.check()


def test_a_worker_is_hidden_and_shown_again(look: Look, site: Site) -> None:
    site.ended("hello")
    seen: Callable[[], list[Any]] = lambda: site.client.get("/workers").json()  # noqa: E731
    with look() as visit:
        page = visit.go("#/workers?hidden=1")
        card = page.locator("[data-worker=dev]")
        expect(card).to_contain_text("Heartbeat")
        expect(card).to_contain_text("default")
        expect(card.locator("a[href^='#/runs/']").last).to_be_visible()  # the run it had last
        card.get_by_text("Wheel sync details").click()
        expect(card.get_by_role("region", name="Wheel sync details")).to_contain_text('"enabled": false')
        card.get_by_role("button", name="Hide this worker").click()
        expect(card).to_contain_text("hidden")
        assert seen() == []
        card.get_by_role("button", name="Show this worker").click()
        expect(card.get_by_role("button", name="Hide this worker")).to_be_visible()
        assert [worker["worker_id"] for worker in seen()] == ["dev"]
        visit.check()
