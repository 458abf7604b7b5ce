"""A gateway that requires keys, and one whose NATS stops and starts again."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment, command
from tests.dashboard.conftest import Look
from tests.dashboard.site import Site, a_site


@pytest.fixture
def guarded(nats: NatsServer, tmp_path: Path) -> Iterator[Site]:
    """A gateway that asks for keys, on a NATS of its own."""
    variables = {"PYOCO_HTTP_AUTH_MODE": "api_key", "PYOCO_DATA_DIR": str(tmp_path / "data")}
    with a_site(tmp_path, "up", "--nats-url", nats.url, **variables) as made:
        yield made


def new_key(nats: NatsServer, *scopes: str) -> str:
    """A key that is good for this."""
    arguments = ["keys", "create", "--all-tenants", "--json", "--nats-url", nats.url]
    for scope in scopes:
        arguments += ["--scope", scope]
    done = subprocess.run(command(*arguments), env=clean_environment(), capture_output=True, text=True, check=True)  # noqa: S603
    api_key: str = json.loads(done.stdout)["api_key"]
    return api_key


def enter(page: Page, key: str) -> None:
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key (sent as X-API-Key)").fill(key)
    dialog.get_by_role("button", name="Use this key").click()


def test_a_key_is_asked_for_used_and_forgotten(look: Look, nats: NatsServer, guarded: Site) -> None:
    key = new_key(nats, "runs")
    sent = guarded.client.post("/runs", json={"flow_name": "hello"}, headers={"X-API-Key": key})
    run_id = sent.json()["run_id"]
    with look(guarded.url) as visit:
        page = visit.go()
        expect(page.get_by_role("dialog")).to_contain_text("ERR-PYOCO-0014")
        enter(page, "pyoco_wrong")
        expect(page.get_by_role("dialog")).to_contain_text("ERR-PYOCO-0015")
        enter(page, key)
        expect(page.locator(f"[id='run-{run_id}']")).to_be_visible()
        places = page.get_by_role("navigation").get_by_role("link")
        expect(places).to_have_count(1)  # what the key is not good for is not offered
        page.locator(f"[id='run-{run_id}']").click()
        expect(page.locator(".run-id")).to_have_text(run_id)
        expect(page.locator(".travel output")).to_contain_text("1/1")
        assert key not in page.url
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert key not in stored
        page.reload()
        expect(page.get_by_role("dialog")).to_contain_text("ERR-PYOCO-0014")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("button", name="API key").click()
        enter(page, key)
        expect(page.locator(".run-id")).to_have_text(run_id)
        visit.check("401", "403")


def test_an_outage_is_shown_until_it_ends(look: Look, nats: NatsServer, tmp_path: Path) -> None:
    with a_site(tmp_path, "up", "--nats-url", nats.url, PYOCO_DATA_DIR=str(tmp_path / "data")) as site:
        before = site.submit("hello")
        with look(site.url) as visit:
            page = visit.go(f"#/runs/{before}")
            expect(page.locator(".run-header .badge").first).to_have_text("○Pending")
            nats.kill()
            expect(page.locator(".notice")).to_contain_text("NATS", timeout=15_000)
            nats.start()
            expect(page.locator(".notice")).to_be_hidden(timeout=30_000)
            answer = site.client.post(f"/runs/{before}/cancel")
            assert answer.status_code == 200
            expect(page.locator(".run-header .badge").first).to_have_text("⊘Cancelled", timeout=15_000)
            visit.check("503")
