"""A real HTTP server that is down as often as a test says; minutes of pauses take no time."""

# ruff: noqa: S101 (assert is how tests speak)
import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from examples.nightly_report.nightly_report import nightly

from pyoco_server.testing import (
    FlowTester,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_never_started,
    assert_node_failed,
    assert_succeeded,
    pauses_of,
)

ANSWERS: Final[dict[str, Any]] = {
    "/sales.json": [{"item": "tea", "count": 2}, {"item": "rice", "count": 1}, {"item": "tea", "count": 3}],
    "/stock.json": {"tea": 10, "rice": 4},
    "/announce.json": "announced",
}


class Source:
    """Where the data comes from, and how often it will fail to."""

    def __init__(self) -> None:
        self.outages: Counter[str] = Counter()
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                down = source.outages[path] > 0
                source.outages[path] -= down
                self.send_response(503 if down else 200)
                self.end_headers()
                if not down:
                    self.wfile.write(json.dumps(ANSWERS[path]).encode())

            def log_message(self, *_: object) -> None:  # type: ignore[explicit-override]  # needs Python 3.12
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def params(self) -> dict[str, str]:
        """The run's parameters."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return {"source": url, "chat": url}

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def source() -> Iterator[Source]:
    """A source for one test."""
    found = Source()
    yield found
    found.close()


def test_a_quiet_night(flow_tester: FlowTester, source: Source) -> None:
    """Both sources, one report, and it is written down."""
    result = flow_tester.run(nightly, source.params)
    assert_completed(result)
    assert result.results["report"]["lines"] == ["rice: 1 sold, 4 left", "tea: 5 sold, 10 left"]
    assert Path(result.results["report"]["file"]).read_text() == "rice: 1 sold, 4 left\ntea: 5 sold, 10 left\n"


def test_a_source_that_is_down_is_asked_again(flow_tester: FlowTester, source: Source) -> None:
    """The other one is not asked twice for it; pauses grow."""
    source.outages["/sales.json"] = 3
    result = flow_tester.run(nightly, source.params)
    assert_completed(result)
    assert_attempts(result, "sales", 4)
    assert_attempts(result, "stock", 1)
    assert pauses_of(result, "sales") == [pytest.approx(wanted, rel=0.2) for wanted in (1, 4, 16)]


def test_a_source_that_stays_away_fails_the_run(flow_tester: FlowTester, source: Source) -> None:
    """One try and five more; there is no report from half of the data."""
    source.outages["/stock.json"] = 99
    result = flow_tester.run(nightly, source.params)
    assert_failed(result, node="stock", code="ConnectionError")
    assert_attempts(result, "stock", 6)
    assert_never_started(result, "report", "announce")


def test_the_announcement_may_fail(flow_tester: FlowTester, source: Source) -> None:
    """The report is there, and the run completes."""
    source.outages["/announce.json"] = 99
    result = flow_tester.run(nightly, source.params)
    assert_node_failed(result, "announce", code="ConnectionError")
    assert_succeeded(result, "report")
    assert_completed(result)
