"""Pictures of every view: in both languages, in the light and in the dark, on a wide screen and on a phone.

They are taken every time, to see that there is something on them. They are kept for the documentation only when that is
asked for: ``make screenshots``, or PYOCO_SCREENSHOTS=1.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.browser import Visit
from tests.dashboard.conftest import Look
from tests.dashboard.site import Site, a_site
from tests.dashboard.test_pages import settled
from tests.wheels.building import make_wheel, wheel_name

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 4 * 1024 * 1024
SUBMIT = """flow_name => fetch("/runs", {
  method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({flow_name}),
})"""
WISHED = "PYOCO_SCREENSHOTS"
ZONE = "Asia/Tokyo"


class Shot(NamedTuple):
    """How a picture is taken."""

    language: str
    scheme: str
    screen: str

    @property
    def name(self) -> str:
        return f"{self.language}-{self.scheme}-{self.screen}"


WIDE = {"width": 1120, "height": 700}
PHONE = {"width": 390, "height": 780}
LOOKS = [
    Shot("en", "light", "wide"),
    Shot("ja", "dark", "wide"),
    Shot("ja", "light", "phone"),
    Shot("en", "dark", "phone"),
]


def ask(page: Page) -> None:
    """Open the form of the run that waits."""
    page.locator(".run-header .button.primary, .resume .button.primary").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()


def nothing(page: Page) -> None:
    """The place is what is shown."""


def drawn(page: Page) -> None:
    """There are lines on the plots, and something has happened while they were drawn."""
    for flow in ("import-orders", "import-orders", "monthly-report", "sync-catalogue"):
        page.evaluate(SUBMIT, flow)
        expect(page.locator(".plot .line[d*=L]").nth(9)).to_be_attached(timeout=20_000)
    expect(page.locator(".plots .card").nth(2).locator(".line[d*=L]")).to_have_count(3, timeout=20_000)


VIEWS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "runs": ("#/runs", nothing),
    "run-graph": ("#/runs/{report}?node=exchange_rate", nothing),
    "run-loop": ("#/runs/{training}", nothing),
    "run-large": ("#/runs/{tiles}", nothing),
    "run-timeline": ("#/runs/{report}?tab=timeline", nothing),
    "run-events": ("#/runs/{report}?tab=events", nothing),
    "run-data": ("#/runs/{report}?tab=data", nothing),
    "run-failed": ("#/runs/{failed}?node=check_prices", nothing),
    "run-resume": ("#/runs/{waiting}", ask),
    "run-cancelled": ("#/runs/{cancelled}", nothing),
    "workers": ("#/workers?scope=all", nothing),
    "wheels": ("#/wheels", nothing),
    "queue": ("#/queue", nothing),
    "metrics": ("#/metrics", drawn),
}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site where something is going on."""
    flows = Path(__file__).with_name("showcase.py")
    with a_site(tmp_path_factory.mktemp("office"), "dev", str(flows)) as made:
        yield made


@pytest.fixture(scope="module")
def places(office: Site) -> dict[str, str]:
    """What is to be seen."""
    for version in ("1.4.0", "1.4.1"):
        upload(office, "shop_tasks", version, "default")
    upload(office, "gpu_kernels", "0.9.2", "gpu,linux")
    office.client.delete(f"/wheels/{wheel_name('shop_tasks', '1.4.0')}")
    cancelled = office.submit("nightly-backup", params={"bucket": "backups-west"})
    office.until(cancelled, lambda run: run["tasks"].get("copy") == "RUNNING")
    reason = {"reason": "wrong bucket; starting again tonight"}
    office.client.post(f"/runs/{cancelled}/cancel", json=reason, headers={"X-Correlation-Id": "ticket-4711"})
    runs = {
        "training": office.ended("train-model", params={"seed": 7}),
        "tiles": office.ended("render-tiles"),
        "failed": office.ended("sync-catalogue", params={"shop": "ginza"}),
        "orders": office.ended("import-orders", params={"day": "2026-11-15"}),
        "waiting": office.waiting("refund"),
        "cancelled": cancelled,
    }
    for _ in range(6):
        office.submit("train-model", tag="gpu", params={"seed": 8})
    office.ended("no-such-flow")
    for day in range(8):
        office.submit("import-orders", params={"day": f"2026-11-{day + 1:02d}"})
    runs["report"] = office.ended("monthly-report", params={"month": "2026-10", "currency": "USD"})
    busy = office.submit("nightly-backup", params={"bucket": "backups-east"})
    office.until(busy, lambda run: run["tasks"].get("copy") == "RUNNING")
    return {name: place.format(**runs) for name, (place, _) in VIEWS.items()}


def upload(site: Site, package: str, version: str, tags: str) -> None:
    name = wheel_name(package, version)
    files = {"wheel": (name, make_wheel(package, version), "application/octet-stream")}
    answer = site.client.post("/wheels", files=files, data={"tags": tags})
    assert answer.status_code < 300, answer.text


def rows_of(picture: bytes) -> list[bytes]:
    """The rows of a PNG, as they are compressed: enough to distinguish a picture from an empty one."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, _, depth, colour = struct.unpack(">IIBB", picture[16:26])
    assert (depth, colour) in {(8, 2), (8, 6)}
    data, at = b"", 8
    while at < len(picture):
        [length], kind = struct.unpack(">I", picture[at : at + 4]), picture[at + 4 : at + 8]
        if kind == b"IDAT":
            data += picture[at + 8 : at + 8 + length]
        at += length + 12
    plain, stride = zlib.decompress(data), 1 + width * (3 if colour == 2 else 4)
    return [plain[begin : begin + stride] for begin in range(0, len(plain), stride)]


def taken(visit: Visit, place: str, prepare: Callable[[Page], None]) -> bytes:
    page = visit.move(place)
    settled(page)
    prepare(page)
    page.mouse.move(0, 0)
    page.evaluate("document.fonts.ready")
    return page.screenshot(animations="disabled", caret="hide")


@pytest.mark.parametrize("wanted", LOOKS, ids=lambda wanted: wanted.name)
def test_every_view_has_its_picture(
    look: Look, office: Site, places: dict[str, str], wanted: Shot, tmp_path: Path
) -> None:
    folder = IMAGES if os.environ.get(WISHED) else tmp_path
    folder.mkdir(exist_ok=True)
    options: dict[str, Any] = {
        "viewport": WIDE if wanted.screen == "wide" else PHONE,
        "color_scheme": wanted.scheme,
        "locale": {"en": "en-GB", "ja": "ja-JP"}[wanted.language],
        "timezone_id": ZONE,
    }
    with look(office.url, **options) as visit:
        page = visit.go()
        page.evaluate("language => localStorage.setItem('pyoco.language', language)", wanted.language)
        page.reload()
        for name, (_, prepare) in VIEWS.items():
            picture = taken(visit, places[name], prepare)
            rows = rows_of(picture)
            assert len(set(rows)) > len(rows) / 5, f"{name} looks empty"
            (folder / f"{name}-{wanted.name}.png").write_bytes(picture)
            if page.locator("dialog[open]").count():
                page.keyboard.press("Escape")
        visit.check()


def test_the_documentation_has_a_picture_of_every_view_and_is_not_heavy() -> None:
    kept = {path.name: path.stat().st_size for path in IMAGES.glob("*.png")}
    assert {f"{view}-{wanted.name}.png" for view in VIEWS for wanted in LOOKS} == set(kept)
    assert sum(kept.values()) < MOST_BYTES
