"""A killed worker: shown as lost in the list of workers and with its run, and replaced by another."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.adapters.real_nats import NatsServer
from tests.cli.serving import clean_environment
from tests.dashboard.conftest import Look
from tests.dashboard.site import FLOWS, Site, a_site
from tests.kill.processes import WorkerProcess

HASTY = {
    "PYOCO_WORKER_HEARTBEAT_INTERVAL_SEC": "0.5",
    "PYOCO_WORKER_DISCONNECT_TIMEOUT_SEC": "2",
    "PYOCO_CONSUMER_ACK_WAIT_SEC": "2",
    "PYOCO_ACK_PROGRESS_INTERVAL_SEC": "0.5",
    "PYOCO_WHEEL_SYNC_ENABLED": "0",
}
MISSED_MS = 15_000
"""Two seconds after its last heartbeat it is missed, and the page asks every five; the rest is for busy machines."""

Start = Callable[[str], WorkerProcess]


@pytest.fixture
def shop(nats: NatsServer, tmp_path: Path) -> Iterator[Site]:
    """A gateway that misses workers soon, and has none."""
    with a_site(tmp_path, "up", "--nats-url", nats.url, PYOCO_DATA_DIR=str(tmp_path / "data"), **HASTY) as made:
        yield made


@pytest.fixture
def start(nats: NatsServer, tmp_path: Path) -> Iterator[Start]:
    """Start a worker of this name."""
    started: list[WorkerProcess] = []

    def worker(name: str) -> WorkerProcess:
        command = [sys.executable, "-m", "pyoco_server.cli.worker", "--worker-id", name, "--flows", str(FLOWS)]
        environment = clean_environment(PYOCO_NATS_URL=nats.url, PYOCO_LOG_LEVEL="ERROR", **HASTY)
        started.append(
            WorkerProcess.start(name, command, tmp_path / f"{name}.log", cwd=tmp_path, env=environment),
        )
        return started[-1]

    yield worker
    for process in started:
        process.kill()


def fact(label: str) -> str:
    """The value beside this label at the head of a run."""
    return f".run-facts .facts > div:has(dt:text-is('{label}')) dd"


def test_a_killed_worker_is_missed_and_replaced(look: Look, shop: Site, start: Start) -> None:
    first = start("first")
    run_id = shop.busy()
    with look(shop.url) as visit, look(shop.url) as second_visit:
        run = visit.go(f"#/runs/{run_id}")
        workers = second_visit.go("#/workers")
        holder = run.locator(fact("Worker"))
        expect(holder).to_have_text("first alive")
        card = workers.locator("[data-worker=first]")
        expect(card.locator(".badge").first).to_have_text("●Running")
        card.get_by_role("button", name="Hide this worker").focus()

        first.kill()
        expect(card.locator(".badge").first).to_have_text("✕Disconnected", timeout=MISSED_MS)
        expect(card).to_contain_text(re.compile(r"Heartbeat\d+ s ago"))
        expect(card).to_contain_text("Run at disconnection")
        expect(card.locator(f"a[href='#/runs/{run_id}']")).to_be_visible()
        expect(card.get_by_role("button", name="Hide this worker")).to_be_focused()  # it was not replaced
        expect(holder).to_have_text(re.compile(r"^first stale, last heartbeat \d+ s ago$"), timeout=MISSED_MS)
        expect(run.locator(".run-header .badge").first).to_have_text("●Running")

        run.get_by_role("button", name="日本語").click()
        expect(run.locator(".run-facts")).to_contain_text(
            re.compile(r"first 応答なし\(最終ハートビート \d+ ?秒前\)"), timeout=MISSED_MS
        )
        workers.get_by_role("button", name="日本語").click()
        expect(card.locator(".badge").first).to_have_text("✕切断")

        start("second")
        expect(holder).to_have_text("second 稼働中", timeout=2 * MISSED_MS)
        taker = workers.locator("[data-worker=second]")
        expect(taker.locator(".badge").first).to_have_text("●実行中")
        expect(taker.locator(f"a[href='#/runs/{run_id}']").first).to_be_visible()
        expect(card.locator(".badge").first).to_have_text("✕切断")
        shop.client.post(f"/runs/{run_id}/cancel", json={})
        expect(run.locator(".run-header .badge").first).to_have_text("⊘取消済み", timeout=MISSED_MS)
        expect(holder).to_have_text("second")  # the worker of an ended run is not checked
        visit.check()
        second_visit.check()


def test_a_run_that_waits_has_no_stale_worker(look: Look, shop: Site, start: Start) -> None:
    first = start("first")
    run_id = shop.waiting("ask")
    first.kill()
    with look(shop.url) as visit:
        page = visit.go("#/workers")
        expect(page.locator("[data-worker=first] .badge").first).to_have_text("✕Disconnected", timeout=MISSED_MS)
        visit.move(f"#/runs/{run_id}")
        expect(page.locator(".run-header .badge").first).to_have_text("‖Waiting")
        expect(page.locator(fact("Worker"))).to_have_text("first")
        visit.check()
