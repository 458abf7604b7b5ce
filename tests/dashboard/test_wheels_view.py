"""Wheels: uploaded, refused, downloaded and deleted in the page."""

import base64
from pathlib import Path

from playwright.sync_api import expect

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site, a_site
from tests.wheels.building import make_wheel, upload, wheel_name

PATIENCE_MS = 20_000
"""The page asks for workers every five seconds; the rest is for busy machines."""


def test_a_wheel_comes_and_goes(look: Look, site: Site, tmp_path: Path) -> None:
    wheel = tmp_path / wheel_name("shown")
    wheel.write_bytes(make_wheel("shown"))
    with look() as visit:
        page = visit.go("#/wheels")
        page.get_by_label("Tags").fill("cpu,gpu")
        page.locator("input[type=file]").set_input_files(wheel)
        row = page.locator("tr", has_text=wheel.name).first
        expect(row).to_contain_text("cpugpu")
        assert site.client.get("/wheels").json()[0]["tags"] == ["cpu", "gpu"]
        page.locator("input[type=file]").set_input_files(wheel)
        expect(page.get_by_role("alert")).to_contain_text("ERR-PYOCO-0022")
        with page.expect_download() as downloaded:
            row.get_by_role("button", name="Download").click()
        assert Path(downloaded.value.path()).read_bytes() == wheel.read_bytes()
        row.get_by_role("button", name="Delete this wheel").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete this wheel").click()
        expect(page.get_by_text("No wheels")).to_be_visible()
        expect(page.locator("tr", has_text=wheel.name)).to_have_count(2)  # the history still shows it
        visit.check("409")
    assert site.client.get("/wheels").json() == []


DROP = """([place, name, content]) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name));
  const drag = (kind) => place.dispatchEvent(
    new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true }));
  drag("dragenter");
  const taken = !drag("dragover");
  const marked = place.classList.contains("over");
  drag("drop");
  return [taken, marked, place.classList.contains("over")];
}"""


def test_a_wheel_is_dropped_onto_the_page(look: Look, site: Site) -> None:
    name, content = wheel_name("dropped"), make_wheel("dropped")
    with look() as visit:
        page = visit.go("#/wheels")
        place = page.locator(".drop")
        dropped = page.evaluate(DROP, [place.element_handle(), name, base64.b64encode(content).decode()])
        assert dropped == [True, True, False]  # accepted, highlighted, and not highlighted afterwards
        expect(page.locator("tr", has_text=name).first).to_be_visible()
        visit.check()
    assert site.client.get(f"/wheels/{name}").content == content
    site.client.delete(f"/wheels/{name}")


def test_a_run_shows_its_wheels_and_a_worker_why_it_does_not_use_one(look: Look, tmp_path: Path) -> None:
    sync = {"PYOCO_WHEEL_SYNC_ENABLED": "1", "PYOCO_WHEEL_SYNC_INTERVAL_SEC": "0.2"}
    good, bad = wheel_name("named", "1.0"), wheel_name("named", "2.0")
    with a_site(tmp_path, PYOCO_WHEEL_SYNC_DIR=str(tmp_path / "wheels"), **sync) as shop, look(shop.url) as visit:
        upload(shop.client, good, make_wheel("named", "1.0"))
        page = visit.go("#/workers")
        page.get_by_text("Wheel sync details").first.click()
        details = page.locator(".worker details").first
        expect(details).to_contain_text(f"Installed{good}", timeout=PATIENCE_MS)
        run_id = shop.ended("hello")
        upload(shop.client, bad, make_wheel("named", "2.0", {"named/__init__.py": "import nowhere_to_be_found\n"}))
        reason = "named cannot be imported with it: ModuleNotFoundError: No module named 'nowhere_to_be_found'"
        error = f"Last error'{bad}' is not to be used: {reason} [ERR-PYOCO-0024]"
        expect(details).to_contain_text(error, timeout=PATIENCE_MS)
        expect(details).to_contain_text(f"Installed{good}")
        visit.move(f"#/runs/{run_id}")
        wheels = page.locator(".run-facts .facts > div:has(dt:text-is('Wheels')) dd")
        expect(wheels).to_have_text(good)
        digest = next(wheel for wheel in shop.client.get("/wheels").json() if wheel["name"] == good)["sha256_hex"]
        assert shop.run(run_id)["wheels"] == {good: digest[:12]}
        page.get_by_role("button", name="日本語").click()
        expect(page.locator(".run-facts")).to_contain_text(f"使用した wheel{good}")
        visit.check()
