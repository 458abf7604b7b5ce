"""``redrive`` without a run: many runs, page by page; and what it refuses."""

from typing import Any

import pytest

from tests.cli.gateway_commands import LETTER, PLAN, Caller
from tests.client.scripted_gateway import ScriptedGateway, says


@pytest.fixture
def call(gateway: ScriptedGateway, capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(gateway, capsys)


def results(*numbers: int, following: str | None = None) -> Any:
    rows = [{"of": f"old{number}", "run_id": f"new{number}", "status": "RUNNING", **PLAN} for number in numbers]
    return says({"results": rows, "next_cursor": following})


def test_many_runs_are_redriven_page_by_page(call: Caller) -> None:
    call.gateway.on("POST", "/runs/redrive", results(1, 2, following="c2"), results(3))
    done = call("redrive", "--status", "FAILED", "--flow", "f", "--per-sec", "40", "--reason", "mended")
    assert (done.code, done.err) == (0, "")
    assert [line.count("new") for line in done.out.splitlines()] == [1, 1, 1]
    first, second = (request.json for request in call.gateway.requests)
    wanted = {"filter": {"status": "FAILED", "flow": "f"}, "from": "failed", "per_sec": 40.0, "reason": "mended"}
    assert first == {**wanted, "limit": 1000}
    assert second == {**first, "cursor": "c2"}


def test_a_limit_is_that_of_all_pages_together(call: Caller) -> None:
    call.gateway.on("POST", "/runs/redrive", results(1, 2, following="c2"), results(3, following="c3"))
    done = call("redrive", "--error-code", "E", "--limit", "3", "--output", "table")
    assert (done.code, done.err) == (0, "3 runs redriven\n")
    assert [request.json["limit"] for request in call.gateway.requests] == [3, 1]


def test_a_refused_run_is_a_failure(call: Caller) -> None:
    refused = {"of": "old1", "run_id": None, "status": None, "error": {"err_id": "ERR-PYOCO-0103", "message": "no"}}
    call.gateway.on("POST", "/runs/redrive", says({"results": [refused], "next_cursor": None}))
    done = call("redrive", "--flow", "f")
    assert (done.code, done.json["error"]["message"]) == (1, "no")


def test_the_run_of_a_dead_letter_is_redriven(call: Caller) -> None:
    letter = {**LETTER, "entry": {**LETTER["entry"], "run_id": "r1"}}  # type: ignore[dict-item]
    call.gateway.on("GET", "/dlq/17", says(letter))
    call.gateway.on("POST", "/runs/r1/redrive", says({"run_id": "r2", "status": "RUNNING"}))
    assert call("dlq", "redrive", "17").json == {"run_id": "r2", "status": "RUNNING"}
    call.gateway.on("GET", "/dlq/17", says(LETTER))
    assert "dead letter 17 names no run" in call("dlq", "redrive", "17").err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("redrive",), "name a run, or choose runs by --status"),
        (("redrive", "r1", "--flow", "f"), "with RUN_ID, --flow has no meaning"),
        (("redrive", "r1", "--per-sec", "4"), "with RUN_ID, --per-sec has no meaning"),
        (("redrive", "--flow", "f", "--ask-again", "w"), "--ask-again needs a RUN_ID"),
        (("redrive", "--flow", "f", "--wait"), "--wait needs a RUN_ID"),
        (("redrive", "r1", "--dry-run", "--wait"), "with --dry-run there is no run to wait for"),
        (("redrive", "--status", "RUNNING"), "invalid choice: 'RUNNING'"),
    ],
)
def test_a_mistake_is_explained_and_nothing_is_sent(call: Caller, line: tuple[str, ...], said: str) -> None:
    done = call(*line)
    assert done.code == 1
    assert said in done.err
    assert call.gateway.requests == []
