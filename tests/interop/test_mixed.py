"""Gateways and workers of this version and of the public release 0.5.1 on one NATS: one platform, not two."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.site import ENDS, Site, public_release

pytestmark = pytest.mark.timeout(600)  # the public release is installed once; its workers do one run at a time

ENDED_AS = {"short": "COMPLETED", "failing": "FAILED", "cancelled": "CANCELLED"}
SHORT = 240
CANCELS = 48


class Submitted(NamedTuple):
    run_id: str
    flow: str
    key: str
    is_logged: bool
    """Was it submitted to a gateway of this version, which begins a log?"""


@pytest.fixture(scope="module")
def release() -> Path:
    return public_release()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.mark.spec("004 §付録E", "004 §付録F", "004 REQ-0023", "004 REQ-0024")
def test_no_run_is_executed_twice_and_no_cancel_is_lost(site: Site, release: Path) -> None:
    """A few hundred runs: each gateway submits, each worker executes, each gateway cancels runs of the other."""
    new = site.gateway("new-gateway")
    old = site.public_gateway("old-gateway", release)
    for number in range(2):
        site.worker(f"new-{number}")
        site.public_worker(f"old-{number}", release)
    chance = random.Random(6)
    flows = ["short"] * SHORT + ["failing"] * (SHORT // 10) + ["cancelled"] * CANCELS
    chance.shuffle(flows)
    runs = _submitted(site, [(new, True), (old, False)], flows)
    _cancel(site, [new, old], [run for run in runs if run.flow == "cancelled"], chance)
    for run in runs:
        ended = site.until(new, run.run_id, ENDS)["status"]
        assert ended == ENDED_AS[run.flow], (run, ended, site.account(run.run_id, run.key))
        if run.is_logged:
            types = site.until_log_ended(new, run.run_id)
            assert ("EXECUTION_CANCELED" in types) == (run.flow == "cancelled"), site.account(run.run_id, run.key)
    _check(site, [new, old], runs)


def _submitted(site: Site, gateways: list[tuple[str, bool]], flows: list[str]) -> list[Submitted]:
    def submit(number: int) -> Submitted:
        url, is_logged = gateways[number % 2]
        key = f"run-{number}"
        return Submitted(site.submit(url, flows[number], key), flows[number], key, is_logged)

    with ThreadPoolExecutor(4) as threads:
        return [*threads.map(submit, range(len(flows)))]


def _cancel(site: Site, urls: list[str], runs: list[Submitted], chance: random.Random) -> None:
    """Cancel half of the runs where they are, queued or at work, and half of them when they are at work."""

    names = dict(zip(urls, ("our gateway", "the public gateway"), strict=True))

    def cancel(number: int) -> None:
        run, url = runs[number], urls[(number // 2) % 2]
        if number % 4 >= 2:
            site.until_called(run.key, "long")
        site.history.note(run.run_id, f"{names[url]} is asked to cancel")
        answer = site.ask("POST", f"{url}/runs/{run.run_id}/cancel")
        site.history.note(run.run_id, f"{names[url]} answered {answer['status']}")
        assert answer["status"] in {"CANCELLING", "CANCELLED"}, (run, answer)

    order = [*range(len(runs))]
    chance.shuffle(order)
    with ThreadPoolExecutor(len(runs)) as threads:  # each waits for a worker that waits for a cancel
        for _ in threads.map(cancel, order):
            pass


def _check(site: Site, urls: list[str], runs: list[Submitted]) -> None:
    for run in runs:
        for url in urls:  # a public worker may say RUNNING for a moment: it has not read yet that the run was cancelled
            ended = site.until(url, run.run_id, ENDS)["status"]
            assert ended == ENDED_AS[run.flow], (run, url, site.account(run.run_id, run.key))
        calls = {task: site.calls(run.key, task) for task in ("first", "long", "fails", "last")}
        assert max(calls.values()) <= 1, (run, site.account(run.run_id, run.key))
        if run.flow == "short":
            assert (calls["first"], calls["last"]) == (1, 1), (run, calls)
        assert run.flow != "cancelled" or calls["last"] == 0, (run, site.account(run.run_id, run.key))


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
@pytest.mark.parametrize("first", ["old", "new"])
def test_a_cancel_that_a_public_worker_overwrites_is_not_lost(site: Site, release: Path, first: str) -> None:
    """A public gateway and a public worker, and a run that has no log: the worker overwrites what it has not read.

    What the public release created announces nothing until its settings are changed.
    """
    if first == "old":
        old = site.public_gateway("old-gateway", release)
        site.migrate()
        new = site.gateway("new-gateway")
    else:
        new = site.gateway("new-gateway")
        old = site.public_gateway("old-gateway", release)
    site.public_worker("old", release)
    for number in range(8):
        key = f"at-work-{number}"
        run_id = site.submit(old, "cancelled", key)
        site.until_called(key, "first" if number % 2 else "long")
        assert site.ask("POST", f"{old}/runs/{run_id}/cancel")["status"] == "CANCELLING"
        ended = [site.until(url, run_id, ENDS)["status"] for url in (new, old)]
        assert ended == ["CANCELLED", "CANCELLED"], site.account(run_id, key)
        assert site.calls(key, "last") == 0, site.account(run_id, key)


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
def test_a_run_that_was_cancelled_in_the_queue_stays_cancelled(site: Site, release: Path) -> None:
    """A public worker takes every job it gets for one to execute, and its first snapshot says RUNNING."""
    new = site.gateway("new-gateway")
    old = site.public_gateway("old-gateway", release)
    runs = {site.submit(old, "cancelled", key, tag="later"): key for key in ("queued-0", "queued-1")}
    for run_id in runs:
        assert site.ask("POST", f"{old}/runs/{run_id}/cancel")["status"] == "CANCELLING"
    site.public_worker("old", release, tags="later")
    behind = site.submit(old, "short", "behind", tag="later")
    assert site.until(old, behind, ENDS)["status"] == "COMPLETED"  # it does one run at a time: it had the others before
    for run_id, key in runs.items():
        ended = [site.until(url, run_id, ENDS)["status"] for url in (new, old)]
        assert ended == ["CANCELLED", "CANCELLED"], site.account(run_id, key)
        assert site.calls(key, "last") == 0, site.account(run_id, key)


@pytest.mark.spec("004 REQ-0023", "004 REQ-0024")
def test_our_worker_heeds_a_gateway_that_has_no_log(site: Site, release: Path) -> None:
    """Only the worker itself can see the cancel: there is no gateway of this version."""
    old = site.public_gateway("old-gateway", release)
    site.worker("new")
    running = [site.submit(old, "cancelled", f"at-work-{number}") for number in range(5)]
    queued = [site.submit(old, "cancelled", f"queued-{number}", tag="later") for number in range(5)]
    for number in range(5):
        site.until_called(f"at-work-{number}", "long")
    for run_id in (*running, *queued):
        assert site.ask("POST", f"{old}/runs/{run_id}/cancel")["status"] == "CANCELLING"
    site.worker("late", tags="later")
    for run_id in (*running, *queued):
        assert site.until(old, run_id, ENDS)["status"] == "CANCELLED"
    for number in range(5):
        assert [site.calls(f"at-work-{number}", task) for task in ("first", "long", "last")] == [1, 1, 0]
        assert site.calls(f"queued-{number}", "first") == 0


@pytest.mark.spec("004 §付録E")
@pytest.mark.parametrize("first", ["old", "new"])
def test_workers_of_both_versions_share_the_consumer_of_a_tag(site: Site, release: Path, first: str) -> None:
    new = site.gateway("new-gateway")
    if first == "old":
        site.public_worker("old", release, tags="shared")
        run_id = site.submit(new, "short", "by-old", tag="shared")
        assert site.until(new, run_id, ENDS)["worker_id"] in {None, "old", "snapshot"}
    site.worker("new", tags="shared")
    assert site.until(new, site.submit(new, "short", "by-any", tag="shared"), ENDS)["status"] == "COMPLETED"
    if first == "new":
        site.public_worker("old", release, tags="shared")
        for number in range(20):
            run_id = site.submit(new, "cancelled" if number == 0 else "short", f"more-{number}", tag="shared")
            if number == 0:
                site.until_called("more-0", "long")
                site.ask("POST", f"{new}/runs/{run_id}/cancel")
            assert site.until(new, run_id, ENDS)["status"] == ("CANCELLED" if number == 0 else "COMPLETED")
