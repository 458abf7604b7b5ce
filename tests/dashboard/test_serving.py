"""The files of the dashboard, as the gateway serves them."""

from pathlib import Path

import httpx
import pytest

from pyoco_server.gateway.dashboard.serving import STATIC
from tests.dashboard.site import Site

FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /")
def test_the_page_is_html_that_may_run_nothing_but_our_own_files(site: Site) -> None:
    answer = site.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "{{" not in answer.text


@pytest.mark.spec("004 REQ-0020", "004 §付録D GET /static/{path}")
@pytest.mark.parametrize("path", FILES)
def test_every_file_is_served_as_what_it_is(site: Site, path: str) -> None:
    answer = site.client.get(f"/static/{path}")
    assert answer.status_code == 200
    kinds = {".js": "application/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds[Path(path).suffix])
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == (STATIC / path).read_bytes()


def test_a_file_that_the_browser_has_is_not_sent_again(site: Site) -> None:
    first = site.client.get("/static/main.js")
    again = site.client.get("/static/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert site.client.head("/static/main.js").status_code == 200


@pytest.mark.spec("004 §付録D GET /static/{path}")
@pytest.mark.parametrize(
    "path",
    ["nope.js", "", "css", "..%2f..%2fapp.py", "%2e%2e/serving.py", "main.js%00.css", "/etc/passwd"],
)
def test_a_file_outside_the_dashboard_is_not_found(site: Site, path: str) -> None:
    with httpx.Client(headers={"Accept-Language": "en"}) as client:
        answer = client.send(client.build_request("GET", httpx.URL(f"{site.url}/static/{path}")))
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["err_id"], error["message"]) == ("ERR-PYOCO-0121", "asset not found")
