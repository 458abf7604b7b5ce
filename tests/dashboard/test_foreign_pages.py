"""Pages of other web sites in a real browser: none reaches the platform through the browser of a developer."""

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.dashboard.conftest import Look
from tests.dashboard.site import Site, a_site

TAG = "from-another-site"
PREPARE = """
([gateway, tag]) => {
  const yaml = "version: 1\\nflow:\\n  graph: |\\n    a\\ntasks:\\n  a: {callable: 'os:getcwd'}\\n";
  const filled = (name, content) => {
    const form = new FormData();
    form.append(name, new File([content], name === "wheel" ? "evil-1.0-py3-none-any.whl" : "flow.yaml"));
    form.append("flow_name", "main");
    form.append("tag", tag);
    return form;
  };
  const submit = (path, enctype, fields) => {
    document.body.append(Object.assign(document.createElement("iframe"), { name: "sink" }));
    const form = Object.assign(document.createElement("form"),
      { action: gateway + path, method: "post", enctype, target: "sink" });
    for (const [name, value] of fields.entries()) {
      const input = Object.assign(document.createElement("input"), { name });
      if (value instanceof File) {
        input.type = "file";
        const transfer = new DataTransfer();
        transfer.items.add(value);
        input.files = transfer.files;
      } else input.value = value;
      form.append(input);
    }
    document.body.append(form);
    form.submit();
  };
  const element = (name, attributes) => document.body.append(Object.assign(document.createElement(name), attributes));
  const run = JSON.stringify({ flow_name: "hello", tag });
  const send = (path, options) => fetch(gateway + path, { method: "POST", ...options }).catch(() => {});
  const text = new FormData();
  text.append('{"flow_name": "hello", "tag": "' + tag + '", "x": "', '"}');
  window.attacks = {
    "a form with a flow.yaml": () => submit("/runs/yaml", "multipart/form-data", filled("workflow", yaml)),
    "a form with a wheel": () => submit("/wheels", "multipart/form-data", filled("wheel", "PK")),
    "a form that looks like JSON": () => submit("/runs", "text/plain", text),
    "a fetch with a form": () => send("/runs/yaml", { mode: "no-cors", body: filled("workflow", yaml) }),
    "a fetch with a text": () => send("/runs", { mode: "no-cors", body: run }),
    "a fetch without a type": () => send("/runs", { mode: "no-cors", body: new Blob([run]) }),
    "a fetch with JSON": () => send("/runs", { headers: { "Content-Type": "application/json" }, body: run }),
    "a fetch that reads": () => send("/runs", { method: "GET" }),
    "an image": () => element("img", { src: gateway + "/runs" }),
    "a script": () => element("script", { src: gateway + "/static/app.js" }),
    "a frame": () => element("iframe", { src: gateway + "/" }),
    "an event source": () => new EventSource(gateway + "/runs/~/watch"),
  };
  return Object.keys(window.attacks);
}
"""


class _Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title><body>")

    def log_message(self, *_given: Any) -> None:  # type: ignore[explicit-override]  # the arguments do not matter
        """Write nothing."""


@pytest.fixture(scope="module")
def foreign() -> Iterator[int]:
    """The port of another web server on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Callable[[], int]]]:
    """A gateway without keys, and a function that counts the requests that it has refused."""
    directory = tmp_path_factory.mktemp("attacked")

    def refused() -> int:
        [log] = directory.glob("served-*.log")
        return log.read_text(encoding="utf-8").count('"request_refused"')

    with a_site(directory, "up", "--nats-client-port", "0", PYOCO_LOG_LEVEL="WARNING") as site:
        yield site, refused


def figures(site: Site) -> tuple[Any, ...]:
    """What a foreign page must not change."""
    runs = site.client.get("/runs", params={"tag": TAG}).json()
    watchers = [line for line in site.client.get("/metrics").text.splitlines() if line.startswith("pyoco_watchers ")]
    return runs, site.client.get("/wheels").json(), watchers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1"])
def test_a_foreign_page_reaches_no_route(
    look: Look, attacked: tuple[Site, Callable[[], int]], foreign: int, host: str
) -> None:
    site, refused = attacked
    with look(f"http://{host}:{foreign}") as visit:
        names = visit.go().evaluate(PREPARE, [site.url, TAG])
        assert len(names) == 12
        for name in names:
            page, before = visit.go(), refused()
            page.evaluate(PREPARE, [site.url, TAG])
            page.evaluate("name => { window.attacks[name](); }", name)
            deadline = time.monotonic() + 15
            while refused() == before:
                assert time.monotonic() < deadline, f"{name}: the gateway refused nothing"
                page.wait_for_timeout(20)
    assert figures(site) == ([], [], ["pyoco_watchers 0"])


def test_a_rebound_name_reads_nothing(look: Look, site: Site) -> None:
    port = httpx.URL(site.url).port
    with look(f"http://rebound.example:{port}") as visit:
        for path in ("", "runs", "static/app.js"):
            answer = visit.page.goto(f"{visit.url}/{path}")
            assert answer is not None
            assert (answer.status, answer.json()["error"]["err_id"]) == (403, "ERR-PYOCO-0131")
        read = visit.page.evaluate("() => fetch('/runs').then((answer) => answer.text())")
        assert "ERR-PYOCO-0131" in read
        sent = {"method": "POST", "headers": {"Content-Type": "application/json"}}
        body = f'{{"flow_name": "hello", "tag": "{TAG}"}}'
        status = visit.page.evaluate(
            "([options, body]) => fetch('/runs', {...options, body}).then((answer) => answer.status)", [sent, body]
        )
        assert status == 403
    assert figures(site)[0] == []


def test_a_link_on_a_foreign_page_opens_the_dashboard_and_no_frame_shows_it(
    look: Look, site: Site, foreign: int
) -> None:
    with look(f"http://evil.example:{foreign}") as visit:
        page = visit.go()
        page.evaluate("url => { location.href = url; }", f"{site.url}/#/runs")
        page.wait_for_url(f"{site.url}/**")
        page.get_by_role("navigation").first.wait_for()
        head = site.client.get("/").headers
        assert head["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in head["Content-Security-Policy"]


def test_the_dashboard_itself_still_acts(look: Look, site: Site) -> None:
    run_id = site.busy()
    with look() as visit:
        page = visit.go(f"#/runs/{run_id}")
        page.on("dialog", lambda dialog: dialog.accept())
        status = page.evaluate(
            "id => fetch(`/runs/${id}/cancel`, {method: 'POST'}).then((answer) => answer.status)", run_id
        )
        assert status == 200
        visit.check()
    site.until(run_id, lambda run: run["status"] == "CANCELLED")
