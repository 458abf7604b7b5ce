"""The view of a run: live, in the past, and its actions."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site

SOON_MS = 2_000
FOLD = """async (events) => {
  const { fold } = await import("/static/lib/fold.js");
  return events.map((_, at) => {
    const state = fold(events, at + 1);
    return {
      status: state.status,
      nodes: Object.fromEntries([...state.nodes].map(([id, node]) => [id, [node.status, node.attempt]])),
    };
  });
}"""


def node(page: Page, name: str) -> str:
    """What is said of a node in the graph."""
    return page.locator(f".node[data-id='{name}']").get_attribute("aria-label") or ""


def test_the_graph_has_every_node_and_every_way(look: Look, site: Site) -> None:
    run_id = site.ended("diamond")
    graph = site.client.get(f"/runs/{run_id}/graph").json()
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".graph .node")).to_have_count(len(graph["nodes"]))
        expect(page.locator(".graph .wire")).to_have_count(len(graph["edges"]))
        assert {one["nodeId"] for one in graph["nodes"]} == set(
            page.locator(".graph .node").evaluate_all("nodes => nodes.map((node) => node.dataset.id)")
        )
        assert node(page, "left").startswith("left, Succeeded")
        page.locator(".node[data-id=finish]").click()
        expect(page.locator(".inspector h2")).to_have_text("finish")
        expect(page.locator(".node-input .link")).to_have_text(["left", "right"])
        page.keyboard.press("Escape")
        expect(page.locator(".inspector")).to_be_hidden()
        visit.check()


def test_an_output_is_downloaded_whole(look: Look, site: Site) -> None:
    run_id = site.ended("diamond")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}?node=finish")
        with page.expect_download() as downloaded:
            page.locator(".inspector").get_by_role("button", name="Download the output").click()
        assert downloaded.value.suggested_filename == "finish.json"
        content = Path(downloaded.value.path()).read_bytes()
        assert content == site.client.get(f"/runs/{run_id}/nodes/finish/output").content
        assert b"said" in content
        page.locator(".node[data-type=Start], .node[data-id=':start']").first.click()
        expect(page.locator(".inspector h2")).not_to_have_text("finish")
        expect(page.get_by_role("button", name="Download the output")).to_have_count(0)
        visit.check()


def test_a_run_is_seen_to_go_on_and_cancelled_with_a_reason(look: Look, site: Site) -> None:
    run_id = site.busy()
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}?node=sleeps")
        expect(page.locator(".node[data-id=sleeps]")).to_have_attribute("data-tone", "running")
        expect(page.locator(".node-progress")).to_contain_text("two of five")
        expect(page.locator(".run-header .alive")).to_have_text("alive")
        page.get_by_role("button", name="Cancel run").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("wrong month")
        page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
        expect(page.locator(".run-header .badge").first).to_contain_text("Cancel", timeout=SOON_MS)
        expect(page.locator(".run-header")).to_contain_text("wrong month")
        site.until(run_id, lambda run: run["status"] == "CANCELLED")
        expect(page.locator(".run-header .badge").first).to_have_text("⊘Cancelled", timeout=SOON_MS)
        expect(page.locator(".node[data-id=sleeps]")).to_have_attribute("data-tone", "cancelled", timeout=SOON_MS)
        page.get_by_role("button", name="Archive").click()
        page.get_by_role("dialog").get_by_role("button", name="Archive").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Archive")).to_be_hidden()
        visit.check()
    assert site.run(run_id)["archived_at"] is not None


def test_the_rounds_of_a_loop_are_drawn_one_below_the_other(look: Look, site: Site) -> None:
    run_id = site.ended("rounds")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".graph .round")).to_have_text(["1", "2", "3"])
        boxes = [
            box
            for one in page.locator(".graph .node[aria-label^='train,']").all()
            if (box := one.bounding_box()) is not None
        ]
        assert len(boxes) == 3
        assert len({round(box["x"]) for box in boxes}) == 1
        tops = [box["y"] for box in boxes]
        assert len(set(tops)) == 3
        visit.check()


def test_a_wait_is_drawn_as_one(look: Look, site: Site) -> None:
    run_id = site.waiting("ask")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".node[data-id=approval]")).to_have_attribute("data-tone", "waiting")
        page.get_by_role("tab", name="Timeline").click()
        expect(page.locator(".time-bar[data-kind=waiting]")).to_have_count(1)
        visit.check()
    site.client.post(f"/runs/{run_id}/cancel", json={})


def test_times_are_in_the_zone_of_the_browser(look: Look, site: Site) -> None:
    run_id = site.ended("hello")
    shown: dict[str, str] = {}
    for zone in ("UTC", "Asia/Tokyo"):
        with look(timezone_id=zone) as visit:
            page = visit.go(f"#/runs/{run_id}")
            shown[zone] = page.locator(".run-header time").first.inner_text()
            visit.check()
    hours = {zone: int(re.search(r"(\d\d):\d\d:\d\d", text)[1]) for zone, text in shown.items()}  # type: ignore[index]
    assert (hours["Asia/Tokyo"] - hours["UTC"]) % 24 == 9


def test_a_wait_is_resumed_by_a_choice(look: Look, site: Site) -> None:
    run_id = site.waiting("ask")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_label("Seven").check()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(page.locator(".run-header .badge").first).to_have_text("✓Completed", timeout=SOON_MS)
        visit.check()
    assert output(site, run_id, "take") == 7


def test_a_wait_is_resumed_by_a_form(look: Look, site: Site) -> None:
    run_id = site.waiting("form")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        page.get_by_role("button", name="Resume").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Resume").click()
        expect(dialog).to_be_visible()  # the amount is required
        dialog.get_by_label("Amount").fill("12")
        dialog.get_by_role("button", name="Resume").click()
        expect(page.locator(".run-header .badge").first).to_have_text("✓Completed", timeout=SOON_MS)
        visit.check()
    assert output(site, run_id, "take") == {"amount": 12, "notify": False}


def test_an_answer_that_does_not_fit_is_refused_and_may_be_corrected(look: Look, site: Site) -> None:
    run_id = site.waiting("checked")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        page.get_by_role("button", name="Resume").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("By").fill("Ann 7")
        dialog.get_by_role("button", name="Resume").click()
        expect(dialog).to_contain_text("does not match", timeout=SOON_MS)
        dialog.get_by_label("By").fill("ann")
        dialog.get_by_role("button", name="Resume").click()
        expect(page.locator(".run-header .badge").first).to_have_text("✓Completed", timeout=SOON_MS)
    assert output(site, run_id, "approval") == "ann"


def test_the_rounds_of_a_loop_are_counted(look: Look, site: Site) -> None:
    run_id = site.ended("items")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        expect(page.locator(".run-header .tallies")).to_have_text("odd: 4 ok, 1 failed", timeout=SOON_MS)
        visit.check()


def output(site: Site, run_id: str, task: str) -> object:
    records = site.client.get(f"/runs/{run_id}", params={"include": "records"}).json()["task_records"]
    return records[task]["output"]


def test_the_past_is_what_the_server_says_it_was(look: Look, site: Site) -> None:
    cancelled = site.busy()
    site.client.post(f"/runs/{cancelled}/cancel")
    site.until(cancelled, lambda run: run["status"] == "CANCELLED")
    words = {"COMPLETED": "COMPLETED", "FAILED": "FAILED", "CANCELED": "CANCELLED"}
    with look() as visit:
        page = visit.go()
        for run_id in (cancelled, site.ended("retried"), site.ended("boom"), site.ended("diamond")):
            events = site.client.get(f"/runs/{run_id}/events").json()["events"]
            for version, folded in enumerate(page.evaluate(FOLD, events), start=1):
                state = site.client.get(f"/runs/{run_id}/state", params={"at": version}).json()
                nodes = {name: [one["status"], one["attempt"]] for name, one in state["nodes"].items()}
                assert folded["nodes"] == nodes, version
                started = "RUNNING" if state["startedAt"] else "PENDING"
                active = "CANCELLING" if state["cancelRequestedAt"] else started
                assert folded["status"] == words.get(state["status"], active), version
        visit.check()


def test_the_slider_shows_the_run_as_it_was(look: Look, site: Site) -> None:
    run_id = site.ended("diamond")
    events = site.client.get(f"/runs/{run_id}/events").json()["events"]
    begun = next(
        one["version"] for one in events if one["payload"].get("nodeId") == "begin" and "STARTED" in one["type"]
    )
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}?at={begun}")
        expect(page.locator(".node[data-id=begin]")).to_have_attribute("data-tone", "running")
        expect(page.locator(".node[data-id=finish]")).to_have_attribute("data-tone", "pending")
        expect(page.locator(".then")).to_be_visible()
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        expect(page.locator(".node[data-id=finish]")).to_have_attribute("data-tone", "good")
        expect(page.locator(".then")).to_be_hidden()
        visit.check()


def test_parameters_and_results_are_shown(look: Look, site: Site) -> None:
    run_id = site.ended("retried", params={"month": "2026-10"})
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}?tab=data")
        expect(page.get_by_role("region", name="Parameters")).to_contain_text('"month": "2026-10"')
        expect(page.get_by_role("region", name="Results")).to_contain_text('"flaky": "there you are"')
        expect(page.get_by_role("region", name="Raw JSON")).to_contain_text('"task_records"')
        visit.move(f"#/runs/{run_id}?node=flaky")  # another place of the same run, by its address
        expect(page.locator(".inspector h2")).to_have_text("flaky")
        expect(page.locator(".inspector")).to_contain_text("Failed attempts")
        expect(page.get_by_role("heading", name="Error", exact=True)).to_have_count(0)  # in the end it was well
        visit.check()


def test_the_log_is_filtered_and_shows_causes(look: Look, site: Site) -> None:
    run_id = site.ended("retried")
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}?tab=events")
        page.locator(".panel-tools select").select_option("NODE_FAIL_REPORTED")
        expect(page.locator(".event-row")).to_have_count(1)
        page.locator(".event-row").click()
        expect(page.locator(".inspector")).to_contain_text("not the first time")
        page.locator(".panel-tools select").select_option("EXECUTION_COMPLETED")
        page.locator(".event-row").click()
        page.locator(".inspector .link").first.click()
        expect(page.locator(".inspector h2")).to_have_text("Node succeeded")
        page.get_by_role("tab", name="Timeline").click()
        kinds = page.locator(".time-bar").evaluate_all("bars => bars.map((bar) => bar.dataset.kind)")
        assert kinds.count("attempt") == 2
        assert "backoff" in kinds
        visit.check()


def test_a_request_can_be_copied_for_the_command_line(look: Look, site: Site) -> None:
    run_id = site.waiting("ask")
    with look(permissions=["clipboard-read", "clipboard-write"]) as visit:
        page = visit.go(f"#/runs/{run_id}")
        page.get_by_role("button", name="Cancel run").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("it's late")
        page.get_by_role("dialog").get_by_role("button", name="Copy as curl").click()
        expect(page.get_by_text("Copied.")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("curl -sS -X POST")
        assert copied.endswith(f"'{site.url}/runs/{run_id}/cancel'")
        said = copied.partition("-d '")[2].partition("' 'http")[0].replace("'\\''", "'")
        assert json.loads(said) == {"reason": "it's late"}
        visit.check()
