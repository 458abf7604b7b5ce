"""The page with a held run, with an inconsistent log, and with failing requests."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site

REFUSAL = {
    "error": {
        "err_id": "ERR-PYOCO-0003",
        "msg_id": "MSG-PYOCO-0003",
        "message": "NATS is not available",
        "action": "Try again later.",
        "details": None,
    },
    "detail": None,
}
HELD = {"needs": ["publish"], "since": 1.0, "seen_by": "worker-2"}
EVENTS = re.compile(r"/events\?")
ASKED = re.compile(r"^http://[^/]+/(workers\?|wheels$|wheels/history|dlq\?|runs\?|runs/counts|runs/~/watch|metrics$)")
NOTES = ["node 'new' cannot be reached from Start and is left out of the graph"]


def refuse(route: Route) -> None:
    route.fulfill(status=503, content_type="application/json", body=json.dumps(REFUSAL))


def with_more(page: Page, pattern: str | re.Pattern[str], **more: Any) -> None:
    """Answer as the gateway does, with more fields than this run has."""

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=json.dumps({**response.json(), **more}))

    page.route(pattern, answer)


def test_a_log_that_cannot_be_read_is_an_error_with_a_retry(look: Look, site: Site) -> None:
    run_id = site.ended("diamond")
    with look() as visit:
        page = visit.page
        page.route(EVENTS, refuse)
        visit.go(f"#/runs/{run_id}")
        expect(page.locator(".error-panel .error-id")).to_have_text("ERR-PYOCO-0003")
        expect(page.get_by_text("The log could not be read")).to_be_visible()
        expect(page.get_by_text("Loading…")).to_have_count(0)
        page.unroute(EVENTS)
        page.locator(".error-panel").get_by_role("button", name="Try again").click()
        expect(page.locator(".node[data-id=finish]")).to_be_visible()
        expect(page.locator(".error-panel")).to_have_count(0)


@pytest.mark.parametrize("view", ["workers", "wheels", "queue", "runs", "metrics"])
def test_no_page_says_loading_for_an_error(look: Look, view: str) -> None:
    with look() as visit:
        page = visit.page
        page.route(ASKED, refuse)
        visit.go(f"#/{view}")
        expect(page.locator(".error-panel .error-id").first).to_have_text("ERR-PYOCO-0003")
        expect(page.get_by_text("Loading…")).to_have_count(0)


@pytest.mark.parametrize(("language", "word"), [("en", "Held"), ("ja", "保留中")])
def test_a_held_run_says_what_it_is_held_for(look: Look, site: Site, language: str, word: str) -> None:
    run_id = site.waiting("ask")
    with look() as visit:
        page = visit.page
        page.add_init_script(f"localStorage.setItem('pyoco.language', '{language}')")
        with_more(page, f"**/runs/{run_id}", held=HELD)
        with_more(page, EVENTS, notes=NOTES)
        visit.go(f"#/runs/{run_id}")
        expect(page.locator(".run-header .badge").first).to_have_attribute("data-tone", "held")
        expect(page.locator(".run-header .badge").first).to_contain_text(word)
        expect(page.locator(".run-held")).to_contain_text("publish")
        expect(page.locator(".run-held")).to_contain_text("worker-2")
        expect(page.locator(".run-notes li")).to_have_text(NOTES)
        page.unroute_all(behavior="ignoreErrors")
