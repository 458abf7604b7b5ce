"""NATS, a gateway and a worker in processes of their own, for the dashboard to show."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.cli.serving import Served, free_port, serving

FLOWS = Path(__file__).with_name("flows.py")
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}


class Site(NamedTuple):
    """A gateway with a worker that has the flows of these tests."""

    url: str
    client: httpx.Client

    def submit(self, flow: str, **fields: Any) -> str:
        answer = self.client.post("/runs", json={"flow_name": flow, **fields})
        assert answer.status_code == 200, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/runs/{run_id}").json()
        return found

    def until(self, run_id: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The run's snapshot as soon as this holds of it."""
        deadline = time.monotonic() + 20
        while not holds(found := self.run(run_id)):
            assert time.monotonic() < deadline, f"it never came to that: {found}"
            time.sleep(0.02)
        return found

    def ended(self, flow: str, **fields: Any) -> str:
        """A run of this flow, when it has ended."""
        run_id = self.submit(flow, **fields)
        self.until(run_id, lambda run: run["status"] in ENDED)
        return run_id

    def waiting(self, flow: str) -> str:
        """A run of this flow that has reached its wait."""
        run_id = self.submit(flow)
        self.until(run_id, lambda run: run["waiting"])
        return run_id

    def busy(self) -> str:
        """A long run whose long task has started."""
        run_id = self.submit("long")
        self.until(run_id, lambda run: run["tasks"].get("sleeps") == "RUNNING")
        return run_id


@contextlib.contextmanager
def a_site(directory: Path, *arguments: str, **variables: str) -> Iterator[Site]:
    """Start ``pyoco-server dev``, or another command with ``given``."""
    port = free_port()
    given = arguments or ("dev", str(FLOWS))
    environment = {"PYOCO_LOG_LEVEL": "ERROR", "PYOCO_WHEEL_SYNC_ENABLED": "0", **variables}
    with serving(directory, *given, "--port", str(port), port=port, **environment) as served, _client(served) as client:
        yield Site(served.url, client)
        served.stop()


@contextlib.contextmanager
def _client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, headers={"Accept-Language": "en"}, timeout=20) as client:
        yield client
